"""Kill -9 again and again while a store is written to and sampled from: what was reported must have happened, once."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.services.buffer import replay_history as history

from ludus.services.buffer.trajectories import TrajectoryStore

ROOT = Path(__file__).parents[3]


def run_and_kill(folder: Path, seed: int, num_lines: int) -> list[list[str]]:
    """All that the process reported until it was killed, a little after so many lines."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "tests.services.buffer.replay_history", str(folder), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline() for _ in range(num_lines)]
            assert process.poll() is None
        finally:
            process.kill()
        lines += process.stdout.readlines()
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return [line.decode().split() for line in lines]


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [0, 1])
def test_no_acknowledged_insert_is_lost_and_no_item_is_sampled_too_often(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    folder = tmp_path / "replay"
    num_kills = 6
    acknowledged = 0
    taken: list[int] = []
    times: collections.Counter[int] = collections.Counter()
    ends: list[int] = []  # where a process began to write: what was before it is not linked to it
    for number in range(num_kills):
        lines = run_and_kill(folder, 100 * seed + number, int(rng.integers(20, 800)))
        assert lines[0][0] == "opened"
        opened = int(lines[0][1])
        assert opened >= acknowledged
        assert opened - acknowledged <= history.NUM_STEPS  # at most the one that was not reported any more
        ends.append(opened)
        for what, *numbers in lines[1:]:
            match what:
                case "inserted":
                    acknowledged = int(numbers[0])
                case "taken":
                    taken += map(int, numbers)
                case "sampled":
                    times.update(map(int, numbers))
    store = TrajectoryStore.open(folder)
    num = store.num_inserted
    assert acknowledged <= num <= acknowledged + history.NUM_STEPS
    # Every entry that the ring has room for is there, with what was written.
    oldest = max(0, num - history.NUM_ENTRIES + history.NUM_STEPS)  # an insert that was killed may have taken its room
    keys = np.arange(oldest, num)
    entries = store._entries.arrays
    assert (entries["key"][keys % history.NUM_ENTRIES] == keys).all()
    assert (entries["obs/"][keys % history.NUM_ENTRIES, 1] == -keys).all()
    assert (entries["reward"][keys % history.NUM_ENTRIES] == keys).all()
    # The queue gives items in order, each once, and nothing is missing but what a kill took with it.
    assert taken == sorted(set(taken))
    left = store.tables["queue"].keys().tolist()
    assert not taken or not left or taken[-1] < left[0]
    cut = {end - 1 for end in [*ends, num]}
    missing = set(range(oldest, num)) - set(taken) - set(left) - cut
    assert len(missing) <= (3 + history.NUM_STEPS) * num_kills  # taken, or inserted, and not reported
    # Nothing is sampled too often, and what may be sampled again is there.
    assert max(times.values()) <= history.MAX_TIMES
    cut |= {end - 2 for end in [*ends, num]}
    alive = set(range(oldest, num)) - cut
    lost = {key for key in alive if times[key] < history.MAX_TIMES} - set(store.tables["replay"].keys().tolist())
    assert len(lost) <= (16 + history.NUM_STEPS) * num_kills  # sampled, or inserted, and not reported
    # The limiter counts on across processes.
    stats = store.tables["replay"].statistics()
    balance = stats.num_inserted * history.RATIO - stats.num_sampled
    middle = history.MIN_SIZE * history.RATIO
    slack = (history.NUM_STEPS * history.RATIO + 16) * num_kills
    assert middle - history.TOLERANCE - slack <= balance <= middle + history.TOLERANCE + slack
    assert stats.num_sampled >= sum(times.values())
    assert num > 200
