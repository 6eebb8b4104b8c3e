from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ludus.data import ArraySpec, nest, spec, spec_of, validate
from ludus.errors import SpecError

SPEC = {
    "image": ArraySpec((2, 3), np.uint8),
    "parts": (ArraySpec((), "f4", minimum=0.0, maximum=1.0), [ArraySpec((2,), "i8", minimum=[0, 10])]),
    "none": None,
}


def example() -> dict:
    return {"image": np.zeros((2, 3), "u1"), "parts": (np.float32(0.5), [np.array([0, 10])]), "none": None}


def test_a_nest_that_fits_passes():
    validate(example(), SPEC)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("image", np.zeros((3, 2), "u1"), "shape"),
        ("image", np.zeros((2, 3), "i1"), "dtype"),
        ("image", np.zeros((2, 3), "u1").tolist(), "differ"),
        ("image", "text", "not an array"),
        ("image", None, "not an array"),
        ("image", 3, "shape"),
        ("parts", [np.float32(0), [np.array([0, 10])]], "differ"),
        ("parts/0", np.float32(-0.1), "at least"),
        ("parts/0", np.float32(1.1), "at most"),
        ("parts/0", np.float32("nan"), "at least"),
        ("parts/0", np.float64(0.5), "dtype"),
        ("parts/0", True, "bool"),
        ("parts/1/0", np.array([0, 9]), "at least"),
        ("none", 1, "None"),
    ],
)
def test_a_leaf_that_does_not_fit_is_named_by_its_path(path, value, why):
    def put(at, leaf):
        return value if at == path else leaf

    wrong = nest.map_with_path(put, example())
    if path == "parts":
        wrong = {**example(), "parts": value}
    with pytest.raises(SpecError, match=why) as caught:
        validate(wrong, SPEC)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("value", "dtype", "fits"),
    [
        (True, bool, True),
        (1, "i4", True),
        (1, "u1", True),
        (1, "f4", True),
        (1.5, "f4", True),
        (1j, "c8", True),
        (1.5, "i4", False),
        (1, bool, False),
        (True, "i4", False),
        (1j, "f4", False),
        (1, "M8[s]", False),
    ],
)
def test_a_python_number_stands_for_an_array_of_its_kind(value, dtype, fits):
    if fits:
        validate(value, ArraySpec((), dtype))
    else:
        with pytest.raises(SpecError):
            validate(value, ArraySpec((), dtype))


def test_specs_are_values():
    one = ArraySpec([2, 3], "float32", minimum=np.zeros((2, 3)), maximum=[1, 2, 3], name="x")
    other = ArraySpec((2, 3), np.float32, 0.0, (1, 2, 3), "x")
    assert one == other
    assert hash(one) == hash(other)
    assert one.minimum == 0.0
    assert one.maximum == (1, 2, 3)
    assert one != dataclasses.replace(one, maximum=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.shape = ()  # type: ignore[misc]


def test_a_leading_dimension_keeps_the_bounds():
    batched = ArraySpec((2,), "i8", minimum=[0, 10]).with_leading(4, 3)
    assert batched.shape == (4, 3, 2)
    validate(np.full((4, 3, 2), 10), batched)
    with pytest.raises(SpecError):
        validate(np.full((4, 3, 2), 9), batched)
    assert spec.with_leading(SPEC, 5)["image"].shape == (5, 2, 3)
    assert spec.with_leading(SPEC, 5)["none"] is None


def test_spec_of_a_nest_fits_the_nest_and_names_the_leaves():
    found = spec_of(example())
    validate(example(), found)
    assert found["parts"][1][0] == ArraySpec((2,), np.int64, name="parts/1/0")
    assert found["none"] is None
    assert spec_of(1.5) == ArraySpec((), np.float64)
    with pytest.raises(SpecError) as caught:
        spec_of({"a": ["text"]})
    assert caught.value.path == "a/0"


def test_a_spec_allocates():
    array = ArraySpec((2,), "f4").allocate((5,))
    assert array.shape == (5, 2)
    assert array.dtype == "f4"
    validate(nest.allocate(SPEC, leading=(7,))["image"], SPEC["image"].with_leading(7))


def test_specs_that_make_no_sense_are_refused():
    with pytest.raises(SpecError, match="negative"):
        ArraySpec((-1,), "f4")
    with pytest.raises(SpecError, match="broadcast"):
        ArraySpec((2,), "f4", minimum=[1, 2, 3])
    with pytest.raises(SpecError, match="not a number"):
        ArraySpec((2,), "f4", minimum="low")
    with pytest.raises(SpecError, match="not an ArraySpec"):
        validate([1], [1])
    with pytest.raises(TypeError):
        ArraySpec((2,), "nonsense")


def test_arrays_of_size_zero_are_within_any_bounds():
    validate(np.zeros((0, 2)), ArraySpec((0, 2), "f8", minimum=[1, 2], maximum=3))
