from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from ludus import errors
from ludus.data.rows import MAX_LAYOUTS, Layouts, RowLayout, row_count


class Pair(NamedTuple):
    one: np.ndarray
    other: np.ndarray


X, Y = np.zeros((2, 3), np.float32), np.zeros(4, np.int64)


def test_a_row_gets_an_axis_and_is_put_together_again() -> None:
    layout = RowLayout.of(({"x": X, "y": Y},), {"k": 0.5, "n": None})
    leaves = layout.take(({"x": X, "y": Y},), {"k": 0.25, "n": None})
    assert leaves is not None
    assert [None if leaf is None else leaf.shape for leaf in leaves] == [(1, 2, 3), (1, 4), (1,), None]
    args, kwargs = layout.nest(leaves)
    assert args[0]["y"].shape == (1, 4)
    assert (kwargs["k"][0], kwargs["n"]) == (0.25, None)


def test_the_order_of_keys_is_of_no_matter() -> None:
    layout = RowLayout.of(({"x": X, "y": Y},), {"a": X, "b": Y})
    leaves = layout.take(({"y": Y, "x": X},), {"b": Y, "a": X})
    assert leaves is not None
    assert [leaf.shape[1:] for leaf in leaves if leaf is not None] == [(2, 3), (4,), (2, 3), (4,)]


@pytest.mark.parametrize(
    "given",
    [
        ((X.astype(np.float64), Y), {}),
        ((X[:1], Y), {}),
        ((X,), {}),
        ((X, Y, Y), {}),
        ((X, Y), {"z": Y}),
        ((X, None), {}),
        ((X, [Y]), {}),
    ],
)
def test_what_is_not_alike_is_reported(given: tuple) -> None:
    layout = RowLayout.of((X, Y), {})
    assert layout.take(*given) is None
    with pytest.raises(errors.SpecError, match=r"forward_args.*float32\[2, 3\]"):
        Layouts("net", layout).take(*given)


def test_rows_that_are_not_alike_are_not_taken() -> None:
    layout = RowLayout.of((X, Y), {})
    xs, ys = np.stack([X, X, X]), np.stack([Y, Y, Y])
    assert layout.take_rows((xs, ys), {}) is not None
    assert layout.take_rows((xs[:, :1], ys), {}) is None
    assert layout.take_rows((xs.astype(np.float64), ys), {}) is None
    assert layout.take_rows((xs, None), {}) is None
    assert layout.take_rows((xs,), {}) is None


def test_without_an_example_each_kind_of_call_has_its_own_layout() -> None:
    layouts = Layouts("net")
    one, other = layouts.take((X,), {})[0], layouts.take((Y,), {})[0]
    assert one is not other
    assert layouts.take((X,), {})[0] is one
    assert layouts.take_rows((np.stack([Y, Y]),), {})[0] is other


def test_calls_of_ever_new_kinds_are_taken_and_the_oldest_kinds_forgotten() -> None:
    layouts = Layouts("net")
    first = layouts.take((np.zeros(0),), {})[0]
    for size in range(3 * MAX_LAYOUTS):
        layout, leaves = layouts.take((np.zeros(size),), {})
        assert leaves[0] is not None
        assert (layout.specs[0], leaves[0].shape) == (((size,), np.float64), (1, size))
    assert len(layouts._known) == MAX_LAYOUTS
    assert layouts.take((np.zeros(size),), {})[0] is layout
    again = layouts.take((np.zeros(0),), {})[0]
    assert again == first
    assert again is not first


def test_a_container_is_never_taken_for_an_array_whatever_was_called_before() -> None:
    pair = (np.ones(2), np.ones(2))
    layouts = Layouts("net")
    array = layouts.take((np.ones((2, 2)),), {})[0]
    for given in (pair, list(pair)):
        layout, leaves = layouts.take((given,), {})
        assert layout is not array
        assert [leaf.shape for leaf in leaves if leaf is not None] == [(1, 2), (1, 2)]
    assert array.take(([[1.0, 1.0], [1.0, 1.0]],), {}) is None
    with pytest.raises(errors.SpecError, match="a Pair cannot be given to a model; give a plain dict"):
        layouts.take((Pair(*pair),), {})


def test_what_can_be_no_array_is_refused() -> None:
    for given in (("text",), (object(),), (b"bytes",)):
        with pytest.raises(errors.SpecError, match="cannot be given to a model"):
            RowLayout.of(given, {})
    with pytest.raises(errors.DataError, match="no array"):
        RowLayout.of((None,), {})


def test_rows_are_counted_and_must_agree() -> None:
    assert row_count((np.zeros((3, 2)), None), {"k": np.zeros(3)}) == 3
    for bad in ((np.zeros(3), np.zeros(4)), (np.zeros(()),), (np.zeros((0, 2)),)):
        with pytest.raises(errors.DataError, match="number of rows"):
            row_count(bad, {})
