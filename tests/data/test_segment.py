"""Segments: what joins them, what they count, what is no segment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ludus.data import nest as nests
from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.errors import DataError


def make(num_rows: int, *, version: int, seed: int = 0, num_steps: int = 4) -> Segment:
    rng = np.random.default_rng(seed)
    segment = Segment.allocate(
        num_steps,
        num_rows,
        obs={"a": ArraySpec((3,), np.float32), "b": ArraySpec((), np.int64)},
        action=Discrete(2),
        state=ArraySpec((5,), np.float32),
        has_mask=True,
        extra=ArraySpec((2,), np.float32),
    )
    for leaf in nests.leaves(segment.to_nest()):
        if leaf is not None:
            leaf[...] = rng.integers(0, 2 if leaf.dtype == np.bool_ else 100, leaf.shape)
    segment.version[:] = version + np.arange(num_steps)
    return segment


def test_joined_segments_have_the_rows_of_all_in_order_and_the_oldest_version() -> None:
    parts = [make(2, version=7, seed=1), make(3, version=5, seed=2), make(1, version=9, seed=3)]
    joined = Segment.concat(parts)
    assert (joined.num_steps, joined.num_rows) == (4, 6)
    assert joined.version.tolist() == [5, 6, 7, 8]
    for name, value in joined.to_nest().items():
        if name in ("version", "global_state"):
            continue
        axis = 0 if name == "state" else 1
        for index, leaf in enumerate(nests.leaves(value)):
            expected = np.concatenate([nests.leaves(getattr(part, name))[index] for part in parts], axis)
            assert np.array_equal(leaf, expected), name
    assert joined.num_active == sum(part.num_active for part in parts)
    assert Segment.concat(parts[:1]) is parts[0]
    with pytest.raises(DataError, match="zero segments"):
        Segment.concat([])


def test_only_steps_at_which_a_row_acts_count_and_the_last_observation_is_no_step() -> None:
    segment = make(2, version=0)
    segment.active[...] = False
    segment.active[1, 0] = segment.active[3, 1] = segment.active[4] = True
    assert segment.num_active == 2


@pytest.mark.parametrize(
    "name", ["obs", "first", "active", "action", "logp", "terminated", "mask", "version", "state", "extra"]
)
def test_what_has_other_axes_is_no_segment(name: str) -> None:
    nest = make(2, version=0).to_nest()
    assert Segment.from_nest(nest).num_rows == 2

    def shorter(leaf: Any) -> Any:
        return leaf[:-1]

    with pytest.raises(DataError, match=f"a segment's {name} begins with"):
        Segment.from_nest({**nest, name: nests.map(shorter, nest[name])})
    with pytest.raises(DataError, match="not a segment"):
        Segment.from_nest({**nest, "more": 1})
