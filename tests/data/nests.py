"""Nests to test with, and what it means for two of them to be the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ludus.data import Batch, layout


def assert_same(actual: Any, expected: Any, path: str = "") -> None:
    """Types, dtypes, shapes and every bit that means something."""
    if not isinstance(expected, np.longlong | np.ulonglong):  # types that differ from int64 by name alone
        assert type(actual) is type(expected), path
    match expected:
        case dict():
            assert list(actual) == list(expected), path
            assert list(map(type, actual)) == list(map(type, expected)), path
            for key in expected:
                assert_same(actual[key], expected[key], f"{path}/{key}")
        case list() | tuple():
            assert len(actual) == len(expected), path
            for index, (one, other) in enumerate(zip(actual, expected, strict=True)):
                assert_same(one, other, f"{path}/{index}")
        case Batch():
            assert actual.leading == expected.leading, path
            assert_same(dict(actual.items()), dict(expected.items()), path)
        case np.ndarray() | np.void():
            assert layout.describe(actual.dtype) == layout.describe(expected.dtype), path
            assert actual.dtype == expected.dtype, path
            assert actual.shape == expected.shape, path
            assert_same_values(np.asarray(actual), np.asarray(expected), path)
        case np.generic():
            assert actual.dtype == expected.dtype, path
            assert actual.tobytes() == expected.tobytes(), path
        case float():
            assert np.float64(actual).tobytes() == np.float64(expected).tobytes(), path
        case complex():
            assert np.complex128(actual).tobytes() == np.complex128(expected).tobytes(), path
        case _:
            assert actual == expected, path


def assert_same_values(actual: np.ndarray, expected: np.ndarray, path: str) -> None:
    """Field by field: the padding between fields is not part of the value."""
    if expected.dtype.names is None:
        assert actual.tobytes() == expected.tobytes(), path
        return
    for name in expected.dtype.names:
        assert_same_values(actual[name], expected[name], f"{path}/{name}")


def simple_dtypes() -> st.SearchStrategy[np.dtype]:
    """Every kind of NumPy's own that is not an object, in both byte orders."""
    return st.one_of(
        hnp.scalar_dtypes(),
        hnp.floating_dtypes(sizes=(16, 32, 64, 128)),
        hnp.complex_number_dtypes(sizes=(64, 128, 256)),
        hnp.datetime64_dtypes(),
        hnp.timedelta64_dtypes(),
        hnp.byte_string_dtypes(),
        hnp.unicode_string_dtypes(),
        st.sampled_from(["V1", "V7", "M8", "m8[25s]", ">M8[10us]"]).map(np.dtype),
    )


@st.composite
def padded_dtypes(draw: st.DrawFn) -> np.dtype:
    """Structured dtypes with gaps between the fields and behind them."""
    formats = draw(st.lists(simple_dtypes(), max_size=3))
    offsets, end = [], 0
    for field in formats:
        offsets.append(end + draw(st.integers(0, 5)))
        end = offsets[-1] + field.itemsize
    itemsize = end + draw(st.integers(0, 5))
    names = [f"f{index}" for index in range(len(formats))]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize})


def dtypes() -> st.SearchStrategy[np.dtype]:
    nested = hnp.nested_dtypes(simple_dtypes() | padded_dtypes(), max_itemsize=2000)
    empty = st.sampled_from(["S0", "U0", "V0", []]).map(np.dtype)
    return simple_dtypes() | padded_dtypes() | nested | empty


def fill(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> np.ndarray:
    """An array of random bytes, hence of NaNs, NaTs and other rare values, too."""
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    return np.ndarray(shape, dtype, bytearray(np.random.default_rng(seed).bytes(size)))


REORDERINGS = {
    "as it is": lambda a: a,
    "fortran": np.asfortranarray,
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1] if a.ndim else a,
    "every second": lambda a: a[..., ::2] if a.ndim else a,
    "axes swapped": lambda a: np.swapaxes(a, 0, -1) if a.ndim else a,
    "one repeated": lambda a: np.broadcast_to(a, (2, *a.shape)),
}


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype = draw(dtypes().filter(lambda dtype: dtype.subdtype is None))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    array = REORDERINGS[draw(st.sampled_from(list(REORDERINGS)))](fill(shape, dtype, draw(st.integers(0, 9))))
    if draw(st.booleans()):
        array = array.view()
        array.flags.writeable = False
    return array


def scalars() -> st.SearchStrategy[Any]:
    text = st.text(st.characters(exclude_categories=["Cs"]))
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.complex_numbers(),
        text,
        st.binary(),
    )
    of_numpy = st.one_of(
        hnp.scalar_dtypes().flatmap(hnp.from_dtype),
        padded_dtypes().map(lambda dtype: fill((), dtype, 1)[()]),
        text.map(np.str_),
        st.binary().map(np.bytes_),
    )
    return plain | of_numpy.filter(lambda value: isinstance(value, np.generic))


def nests() -> st.SearchStrategy[Any]:
    keys = st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**63), 2**64 - 1)
    return st.recursive(
        arrays() | scalars(),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(keys, inner, max_size=4),
        ),
        max_leaves=8,
    )
