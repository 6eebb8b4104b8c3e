"""From which step several ranks go on, when their checkpoints differ."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ludus.errors import CheckpointError
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.ranked import load_together


class Together:
    """The numbers of ranks that are threads."""

    def __init__(self, size: int) -> None:
        self.numbers = [0.0] * size
        self.barrier = threading.Barrier(size, timeout=10.0)


class ThreadRanks:
    def __init__(self, rank: int, together: Together) -> None:
        self.rank = rank
        self.size = len(together.numbers)
        self._together = together

    def least(self, number: float) -> float:
        self._together.numbers[self.rank] = number
        self._together.barrier.wait()
        least = min(self._together.numbers)
        self._together.barrier.wait()
        return least


def saved(folder: Path, *steps: list[int]) -> list[CheckpointStore]:
    stores = [CheckpointStore(folder / f"rank-{rank}", keep=5) for rank in range(len(steps))]
    for rank, (store, own) in enumerate(zip(stores, steps, strict=True)):
        for step in own:
            store.save(step, {"rank": rank, "step": step})
    return stores


def tear(store: CheckpointStore, step: int) -> None:
    path = store._folder / f"checkpoint-{step:09d}.ludus"
    path.write_bytes(path.read_bytes()[:-3])


def load(stores: list[CheckpointStore]) -> list[Any]:
    """What each rank goes on from, or raises."""
    together = Together(len(stores))

    def one(rank: int) -> Any:
        try:
            return load_together(stores[rank], ThreadRanks(rank, together))
        except CheckpointError as error:
            return str(error)

    with ThreadPoolExecutor(len(stores)) as pool:
        return list(pool.map(one, range(len(stores))))


def went_on_from(step: int, size: int) -> list[Any]:
    return [(step, {"rank": rank, "step": step}) for rank in range(size)]


def test_they_go_on_from_the_newest_that_all_have(tmp_path: Path) -> None:
    assert load(saved(tmp_path, [10, 20, 30], [10, 20], [10, 20, 30])) == went_on_from(20, 3)


def test_a_damaged_list_does_no_harm(tmp_path: Path) -> None:
    stores = saved(tmp_path, [10, 20], [10, 20])
    (tmp_path / "rank-1" / "checkpoints.json").write_text("{")
    assert load(stores) == went_on_from(20, 2)


def test_they_go_down_together_past_what_is_torn_on_any_of_them(tmp_path: Path) -> None:
    stores = saved(tmp_path, [10, 20, 30, 40], [10, 20, 30, 40], [10, 20, 30, 40])
    tear(stores[0], 40)
    tear(stores[2], 30)
    tear(stores[1], 20)
    assert load(stores) == went_on_from(10, 3)


def test_with_nothing_in_common_all_are_notified_and_nothing_is_restarted(tmp_path: Path) -> None:
    stores = saved(tmp_path, [10, 20], [10, 20])
    tear(stores[0], 20)
    tear(stores[1], 10)
    before = sorted(path.read_bytes() for path in tmp_path.rglob("*.ludus"))
    errors = load(stores)
    assert all("no valid checkpoint in common" in one and "20, 10" in one for one in errors)
    assert sorted(path.read_bytes() for path in tmp_path.rglob("*.ludus")) == before


def test_a_rank_whose_checkpoints_are_gone_is_reported(tmp_path: Path) -> None:
    errors = load(saved(tmp_path, [10, 20], []))
    assert "Those of rank 1 are of the steps: none" in errors[1]
    assert "no valid checkpoint in common" in errors[0]


def test_a_run_that_has_none_yet_begins(tmp_path: Path) -> None:
    assert load(saved(tmp_path, [], [])) == [None, None]


def test_a_run_killed_while_its_first_was_written_starts_again(tmp_path: Path) -> None:
    assert load(saved(tmp_path, [10], [])) == [None, None]


def test_a_first_checkpoint_that_is_torn_is_no_reason_to_start_again(tmp_path: Path) -> None:
    stores = saved(tmp_path, [10], [10])
    tear(stores[1], 10)
    assert all("no valid checkpoint in common" in one for one in load(stores))
