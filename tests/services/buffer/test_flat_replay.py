from __future__ import annotations

import numpy as np
import pytest

from ludus.data.spec import ArraySpec
from ludus.errors import DataError
from ludus.services.buffer.flat_replay import FlatReplay
from ludus.services.buffer.selectors import Prioritised
from ludus.services.buffer.table import TableSettings

SPEC = {"obs": ArraySpec((2,), np.float32), "n": ArraySpec((), np.int64)}


def rows(start: int, num: int) -> dict[str, np.ndarray]:
    number = np.arange(start, start + num)
    return {"obs": np.stack([number, -number], 1).astype(np.float32), "n": number}


def test_what_is_sampled_was_inserted_and_is_among_the_newest() -> None:
    replay = FlatReplay(SPEC, num_slots=100)
    for start in range(0, 330, 33):
        replay.insert(rows(start, 33))
    batch, keys, probabilities = replay.sample(1000)
    assert (batch["n"] == keys).all()
    assert (batch["obs"] == np.stack([keys, -keys], 1)).all()
    assert set(keys) == set(range(230, 330))
    assert (probabilities == 0.01).all()


def test_priorities_steer_the_draws_and_a_checkpoint_repeats_them() -> None:
    settings = TableSettings(sampler=Prioritised(exponent=1.0))
    replay = FlatReplay(SPEC, settings, num_slots=100, seed=3)
    keys = replay.insert(rows(0, 50))
    replay.update_priorities(keys, (keys == 7) + 0.0)
    assert set(replay.sample(20)[1]) == {7}
    again = FlatReplay(SPEC, settings, num_slots=100)
    replay.insert(rows(50, 20))
    again.restore(replay.save())
    for _ in range(3):
        first, second = replay.sample(30), again.sample(30)
        assert (first[0]["obs"] == second[0]["obs"]).all()
        assert (first[1] == second[1]).all()
        assert (first[2] == second[2]).all()
    assert again.statistics() == replay.statistics()
    with pytest.raises(DataError, match="not those of 60 slots"):
        FlatReplay(SPEC, settings, num_slots=60).restore(replay.save())


def test_samples_are_written_to_again_after_so_many_calls() -> None:
    replay = FlatReplay(SPEC, num_slots=100, num_buffers=2)
    replay.insert(rows(0, 50))
    first, second, third = (replay.sample(8)[0]["n"] for _ in range(3))
    assert first is third
    assert first is not second
    fresh = FlatReplay(SPEC, num_slots=100, num_buffers=0)
    fresh.insert(rows(0, 50))
    assert len({id(array) for array in [fresh.sample(8)[0]["n"] for _ in range(4)]}) == 4


def test_batches_that_do_not_fit_are_refused() -> None:
    replay = FlatReplay(SPEC, num_slots=10)
    with pytest.raises(DataError, match="the columns are"):
        replay.insert({"obs": np.zeros((1, 2))})
    with pytest.raises(DataError, match="nothing was inserted"):
        replay.insert(rows(0, 11))
    with pytest.raises(DataError, match="nothing was inserted"):
        replay.insert({**rows(0, 3), "n": np.arange(2)})
    assert len(replay) == 0
