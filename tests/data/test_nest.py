from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import given, settings

from ludus.data import ArraySpec, Structure, nest
from ludus.errors import DataError, SpecError

from . import nests

NEST = {"obs": {"image": np.ones((2, 3)), "speed": (1.0, [2, 3])}, 7: np.zeros(4), "none": None}


# --- walking


def test_map_keeps_the_structure():
    assert nest.map(lambda x: x + 1, {"a": [1, (2,)], 3: 4}) == {"a": [2, (3,)], 3: 5}
    assert nest.map(lambda x, y: x + y, [1, {"a": 2}], [10, {"a": 20}]) == [11, {"a": 22}]
    assert nest.map(lambda x: x, {}) == {}


def test_the_order_of_keys_does_not_matter_and_the_first_nest_gives_it():
    result = nest.map(lambda x, y: (x, y), {"a": 1, "b": 2}, {"b": 20, "a": 10})
    assert list(result.items()) == [("a", (1, 10)), ("b", (2, 20))]


def test_only_plain_containers_are_containers():
    leaf = collections.namedtuple("Pair", "a b")(1, 2)
    assert nest.leaves([leaf, collections.OrderedDict(a=1)]) == [leaf, {"a": 1}]


def test_paths_are_spelled_with_slashes():
    assert nest.paths(NEST) == ["obs/image", "obs/speed/0", "obs/speed/1/0", "obs/speed/1/1", "7", "none"]
    assert nest.paths(5) == [""]
    assert nest.map_with_path(lambda path, x: f"{path}={x}", {"a": [1]}) == {"a": ["a/0=1"]}


@given(nests.nests())
@settings(max_examples=100, deadline=None)
def test_unflatten_is_the_inverse_of_flatten(value):
    leaves, structure = nest.flatten(value)
    assert len(leaves) == structure.num_leaves == len(nest.paths(value))
    nests.assert_same(nest.unflatten(structure, leaves), value)


def test_structures_are_values():
    assert nest.flatten({"a": [1, 2]})[1] == nest.flatten({"a": ["x", None]})[1]
    assert nest.flatten({"a": [1, 2]})[1] != nest.flatten({"a": (1, 2)})[1]
    assert len({nest.flatten([1])[1], nest.flatten([2])[1], Structure()}) == 2


def test_unflatten_wants_the_right_number_of_leaves():
    with pytest.raises(DataError, match="2 leaves, 1 were given"):
        nest.unflatten(nest.flatten([1, 2])[1], [1])


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 1}}, "a"),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 1}}, "a"),
        ({"a": [1, [2]]}, {"a": [1, [2, 3]]}, "a/1"),
        ({"a": [1, [2]]}, {"a": [1, (2,)]}, "a/1"),
        ({"a": [1, [2]]}, {"a": [1, 2]}, "a/1"),
        ({"a": [1, 2]}, {"a": [1, [2]]}, "a/1"),
        ([], {}, ""),
    ],
)
@pytest.mark.parametrize(
    "join",
    [
        lambda one, other: nest.map(lambda x, y: x, one, other),
        lambda one, other: nest.map_with_path(lambda path, x, y: x, one, other),
        lambda one, other: nest.stack([one, one, other]),
        lambda one, other: nest.concat([one, one, other]),
    ],
)
def test_nests_that_differ_are_refused_with_the_path(one, other, path, join):
    one, other = (nest.map(lambda x: np.full(2, x), value) for value in (one, other))
    with pytest.raises(SpecError, match="the nests differ") as caught:
        join(one, other)
    assert caught.value.path == path


# --- stack and unstack


def test_stack_adds_an_axis_and_turns_numbers_into_arrays():
    stacked = nest.stack([{"x": np.full((2, 3), i, "f4"), "r": 0.5 * i, "n": i, "d": i == 1} for i in range(4)])
    assert stacked["x"].shape == (4, 2, 3)
    assert stacked["x"].dtype == "f4"
    assert stacked["x"][:, 0, 0].tolist() == [0, 1, 2, 3]
    assert stacked["r"].dtype == "f8"
    assert stacked["n"].dtype.kind == "i"
    assert stacked["d"].tolist() == [False, True, False, False]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_stack_along_any_axis_does_what_numpy_does(axis):
    arrays = [np.random.default_rng(i).random((2, 3)) for i in range(4)]
    np.testing.assert_array_equal(nest.stack([{"x": a} for a in arrays], axis)["x"], np.stack(arrays, axis))


@pytest.mark.parametrize(
    "column",
    [
        [np.array(1.0), np.array(2.0)],
        [np.float32(1), np.float32(2)],
        [np.float32(1), 2.0],
        [np.array(1), 2],
        [np.zeros((0,)), np.zeros((0,))],
        [np.zeros((3, 0, 2)), np.zeros((3, 0, 2))],
        [np.zeros(2, "f4"), np.zeros(2, "f8")],
        [np.zeros(2, ">i4"), np.zeros(2, "<i4")],
        [np.datetime64(1, "s"), np.datetime64(2, "s")],
        [np.zeros(2, "M8[s]"), np.zeros(2, "M8[ms]")],
        [np.zeros(2, "f4,i4"), np.ones(2, "f4,i4")],
        [np.array(["a"]), np.array(["bc"])],
        [1, 2.5],
        [True, 2],
        [1j, 2],
    ],
)
def test_stack_agrees_with_numpy_on(column):
    expected = np.stack([np.asarray(value) for value in column])
    actual = nest.stack(column)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


def test_stack_never_shares_memory_even_with_a_single_nest():
    array = np.zeros(3)
    assert not np.shares_memory(nest.stack([array]), array)
    array.flags.writeable = False
    assert nest.stack([array]).flags.writeable


def test_an_argument_nobody_gave_stays_none():
    stacked = nest.stack([{"x": 1, "state": None}, {"x": 2, "state": None}])
    assert stacked["state"] is None
    assert nest.unstack(stacked) == [{"x": 1, "state": None}, {"x": 2, "state": None}]


@pytest.mark.parametrize(
    "column",
    [
        ["a", "bc"],
        [b"a", b"bc\0"],
        [None, "a"],
        [None, 1],
        [None, np.zeros(3)],
        [np.zeros(3), "a"],
        [np.str_("a\0"), np.str_("b")],
        [2**70, 1],
        [object(), object()],
    ],
)
def test_what_is_not_a_number_is_kept_as_it_is_and_comes_back(column):
    stacked = nest.stack([{"x": value, "n": 0} for value in column])
    assert stacked["x"].dtype == object
    assert stacked["x"].shape == (2,)
    for row, value in zip(nest.unstack(stacked), column, strict=True):
        assert row["x"] is value or row["x"] == value


def test_unstack_is_the_inverse_of_stack():
    rows = [{"x": np.full((2, 3), i), "pair": (np.array([i]), [np.float64(i)]), "e": {}, "t": ()} for i in range(3)]
    unstacked = nest.unstack(nest.stack(rows))
    assert len(unstacked) == 3
    for actual, expected in zip(unstacked, rows, strict=True):
        nests.assert_same(actual, expected)


def test_unstacked_rows_are_views():
    array = np.zeros((2, 3))
    nest.unstack({"x": array})[1]["x"][0] = 5
    assert array[1, 0] == 5


@pytest.mark.parametrize("value", [None, [], {"a": None}])
def test_unstack_needs_to_know_the_number_of_rows(value):
    with pytest.raises(DataError, match="unknown"):
        nest.unstack(value)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": np.zeros(2), "b": [np.zeros(3)]}, "b/0"),
        ({"a": [1.0], "b": np.zeros(3)}, "a/0"),
        ([np.zeros(2), "x"], "1"),
    ],
)
def test_unstack_names_the_leaf_whose_rows_are_wrong(value, path):
    with pytest.raises(SpecError) as caught:
        nest.unstack(value)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "column",
    [
        [np.zeros(3), np.zeros(2), np.zeros(4)],  # as many numbers as three of the first
        [np.zeros((2, 3)), np.zeros((3, 2))],
        [np.zeros(1), np.array(1.0)],
        [np.zeros(1), 1.0],
        [np.zeros(2, "M8[s]"), np.zeros(2, "f4,i4")],
    ],
)
def test_stack_names_the_leaf_whose_shape_or_dtype_does_not_fit(column):
    with pytest.raises(SpecError) as caught:
        nest.stack([{"obs": [value]} for value in column])
    assert caught.value.path == "obs/0"


def test_zero_nests_have_no_structure():
    for join in (nest.stack, nest.concat):
        with pytest.raises(DataError, match="zero nests"):
            join([])


# --- rows allocated before


def test_stack_writes_into_rows_allocated_before():
    spec = {"x": ArraySpec((2, 3), np.float32), "r": ArraySpec((), np.float64), "none": None}
    out = nest.allocate(spec, leading=(8,))
    rows = nest.stack([{"x": np.full((2, 3), i, "f4"), "r": i, "none": None} for i in range(3)], out=out)
    assert rows["x"].shape == (3, 2, 3)
    assert np.shares_memory(rows["x"], out["x"])
    assert np.shares_memory(rows["r"], out["r"])
    assert out["r"].tolist() == [0, 1, 2, 0, 0, 0, 0, 0]
    assert out["x"][:, 0, 0].tolist() == [0, 1, 2, 0, 0, 0, 0, 0]


def test_rows_need_not_be_contiguous():
    out = np.zeros((4, 2, 5))[:, :, ::2]
    rows = nest.stack([np.ones((2, 3)), np.ones((2, 3))], out=out)
    assert rows.sum() == out.sum() == 12


@pytest.mark.parametrize(
    "out",
    [
        {"x": np.zeros((1, 3))},
        {"x": np.zeros((2, 4))},
        {"x": np.zeros((2, 3, 1))},
        {"x": np.zeros((2, 3), "i4")},
        {"x": None},
        {"x": [np.zeros((2, 3))]},
        {"x": np.array(1.0)},
    ],
)
def test_rows_that_do_not_fit_are_refused_with_the_path(out):
    with pytest.raises(SpecError) as caught:
        nest.stack([{"x": np.zeros(3)}, {"x": np.zeros(3)}], out=out)
    assert caught.value.path == "x"


def test_rows_are_along_the_first_axis():
    with pytest.raises(DataError, match="axis=0"):
        nest.stack([np.zeros(3)], 1, out=np.zeros((3, 1)))


# --- concat, split, take, allocate


def test_concat_joins_along_an_axis():
    parts = [{"x": np.zeros((2, 3)), "n": None}, {"x": np.ones((1, 3)), "n": None}]
    joined = nest.concat(parts)
    assert joined["x"][:, 0].tolist() == [0, 0, 1]
    assert joined["n"] is None
    assert nest.concat([np.zeros((2, 3)), np.zeros((2, 1))], axis=-1).shape == (2, 4)


@pytest.mark.parametrize("value", [1.0, None, "x", np.zeros((2, 4))])
def test_concat_names_the_leaf_that_cannot_be_joined(value):
    with pytest.raises(SpecError) as caught:
        nest.concat([{"a": [np.zeros((2, 3))]}, {"a": [value]}])
    assert caught.value.path == "a/0"


def test_split_gives_equal_parts_or_parts_of_given_sizes():
    value = {"x": np.arange(6), "y": np.arange(12).reshape(6, 2), "n": None}
    assert [part["x"].tolist() for part in nest.split(value, 3)] == [[0, 1], [2, 3], [4, 5]]
    assert [part["x"].tolist() for part in nest.split(value, [1, 0, 5])] == [[0], [], [1, 2, 3, 4, 5]]
    assert all(np.shares_memory(part["y"], value["y"]) for part in nest.split(value, 2))
    assert [part.shape for part in nest.split(np.zeros((2, 6, 3)), [4, 2], axis=1)] == [(2, 4, 3), (2, 2, 3)]


@pytest.mark.parametrize("sizes", [4, 0, -1, [1, 2], [7], [7, -1]])
def test_split_refuses_sizes_that_do_not_add_up(sizes):
    with pytest.raises(DataError):
        nest.split(np.arange(6), sizes)


def test_split_refuses_rows_that_differ_and_axes_from_behind():
    with pytest.raises(SpecError) as caught:
        nest.split({"a": np.zeros(2), "b": np.zeros(4)}, 2)
    assert caught.value.path == "b"
    with pytest.raises(DataError, match="front"):
        nest.split(np.zeros((2, 2)), 2, axis=-1)
    with pytest.raises(DataError, match="unknown"):
        nest.split({"a": None}, 2)


def test_take_indexes_every_leaf():
    value = {"x": np.arange(4), "y": [np.arange(8).reshape(4, 2), None]}
    assert nest.take(value, 1)["x"] == 1
    assert nest.take(value, slice(1, 3))["y"][0].tolist() == [[2, 3], [4, 5]]
    assert nest.take(value, np.array([3, 0]))["x"].tolist() == [3, 0]
    assert nest.take(value, np.array([True, False, False, True]))["x"].tolist() == [0, 3]
    assert nest.take(value, 1)["y"][1] is None
    with pytest.raises(SpecError) as caught:
        nest.take({"x": [1.5]}, 0)
    assert caught.value.path == "x/0"


def test_allocate_makes_zeros_from_specs_or_arrays():
    made = nest.allocate({"x": ArraySpec((2,), "f4"), "y": [np.ones((3, 1), "i2"), None]}, leading=(5, 4))
    assert made["x"].shape == (5, 4, 2)
    assert made["y"][0].shape == (5, 4, 3, 1)
    assert made["y"][0].dtype == "i2"
    assert made["y"][1] is None
    assert not made["y"][0].any()
    with pytest.raises(SpecError) as caught:
        nest.allocate({"x": [5]})
    assert caught.value.path == "x/0"
