"""Trajectories as they come back, against a reader that goes through them one step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.services.buffer import rollouts

from ludus.data.spec import ArraySpec
from ludus.services.buffer.selectors import Prioritised
from ludus.services.buffer.table import TableSettings
from ludus.services.buffer.trajectories import TrajectoryStore
from ludus.services.buffer.trajectory_reader import TrajectoryReader
from ludus.services.buffer.trajectory_spec import TrajectorySpec

GAMMA = 0.9
CASES = {
    "plain": {},
    "turns": {"waits": 0.4},
    "void rows": {"void": 0.3},
    "torn episodes": {"torn": 0.5},
    "all at once": {"waits": 0.3, "void": 0.2, "torn": 0.3},
}


def make_store(stack: int = 1, num_entries: int = 4000, **kwargs: Any) -> TrajectoryStore:
    shape = (1,) if stack == 1 else (stack, 1)
    spec = TrajectorySpec(
        obs=ArraySpec(shape, np.float32), action=ArraySpec((), np.int64), frame_stack=stack, has_version=True
    )
    return TrajectoryStore(spec, num_entries=num_entries, **kwargs)


def reader_of(store: TrajectoryStore) -> TrajectoryReader:
    return TrajectoryReader(store.spec, store._entries, store._states, num_buffers=0)


def read_transitions(store: TrajectoryStore, name: str, length: int) -> dict[float, tuple[Any, ...]]:
    keys = store.tables[name].keys()
    if store.spec.frame_stack > 1 and len(keys):
        keys = keys[reader_of(store).has_frames(keys)]
    batch, whole = reader_of(store).transitions(keys, length=length, gamma=GAMMA)
    assert whole is not None
    assert whole.all()
    return {
        float(np.ravel(batch.obs[i])[-1]): (
            int(batch.action[i]), float(batch.reward[i]), float(batch.discount[i]), batch.next_obs[i],
        )
        for i in range(len(keys))
    }  # fmt: skip


def same_transitions(found: dict[float, tuple[Any, ...]], expected: dict[float, tuple[Any, ...]]) -> None:
    assert found.keys() == expected.keys()
    for name, (action, reward, discount, next_obs) in expected.items():
        assert found[name][0] == action
        assert found[name][1] == pytest.approx(reward, abs=1e-4)
        assert found[name][2] == pytest.approx(discount, abs=1e-6)
        assert np.array_equal(found[name][3], next_obs)


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_transitions_are_those_of_a_plain_reader(case: str, seed: int, stack: int) -> None:
    segments, stretches = rollouts.make_segments(
        seed, num_segments=9, num_steps=1 + 3 * (seed % 3), num_rows=1 + seed, stack=stack, **CASES[case]
    )
    store = make_store(stack)
    for length in (1, 3, 7):
        store.add_table(f"of {length}", length=length)
    complete: dict[str, list[int]] = {name: [] for name in store.tables}
    for segment in segments:
        for name, keys in store.insert(segment, "a").items():
            complete[name] += keys.tolist()
    for length in (1, 3, 7):
        expected: dict[float, tuple[Any, ...]] = {}
        for stretch in (stretch for row in stretches for stretch in row):
            for chain in rollouts.chains(stretch):
                expected |= rollouts.transitions(chain, length, GAMMA)
        same_transitions(read_transitions(store, f"of {length}", length), expected)
        assert sorted(complete[f"of {length}"]) == store.tables[f"of {length}"].keys().tolist()


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_sequences_are_those_of_a_plain_reader(case: str, seed: int, stack: int) -> None:
    segments, stretches = rollouts.make_segments(
        seed + 50, num_segments=9, num_steps=2 + 2 * (seed % 3), num_rows=1 + seed, stack=stack, **CASES[case]
    )
    store = make_store(stack)
    store.add_table("sequences", kind="sequence", length=4, burn_in=2)
    for segment in segments:
        store.insert(segment, "a")
    expected: dict[float, list[rollouts.Step]] = {}
    for stretch in (stretch for row in stretches for stretch in row):
        for chain in rollouts.chains(stretch):
            expected |= rollouts.sequences(chain, 6)
    keys = store.tables["sequences"].keys()
    batch, whole = reader_of(store).sequences(keys, length=6)
    assert whole is not None
    assert whole.all()
    assert batch.obs.shape[:2] == batch.first.shape == batch.active.shape == (7, len(keys))
    found = {float(np.ravel(batch.obs[0, i])[-1]): i for i in range(len(keys))}
    assert found.keys() == expected.keys()
    for name, steps in expected.items():
        row = found[name]
        for at, step in enumerate(steps):
            assert np.array_equal(batch.obs[at, row], step.obs)
            assert (at, bool(batch.first[at, row])) == (at, step.first)
            is_last = at == len(steps) - 1
            assert is_last or bool(batch.active[at, row]) == step.active
            if step.active and not is_last:
                assert batch.action[at, row] == step.action
            if not is_last:
                assert batch.reward[at, row] == pytest.approx(step.reward)
                assert (batch.terminated[at, row], batch.truncated[at, row]) == (step.terminated, step.truncated)


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_ring_that_is_written_over_has_the_newest_items_and_they_are_whole(seed: int, stack: int) -> None:
    segments, stretches = rollouts.make_segments(
        seed, num_segments=60, num_steps=3, num_rows=2, stack=stack, waits=0.2, void=0.05
    )
    num_entries = 120 if stack == 1 else 200
    store = make_store(stack, num_entries)
    store.add_table("items", TableSettings(sampler=Prioritised()), length=2)
    complete: list[int] = []
    rng = np.random.default_rng(seed)
    expected: dict[float, tuple[Any, ...]] = {}
    for stretch in (stretch for row in stretches for stretch in row):
        for chain in rollouts.chains(stretch):
            expected |= rollouts.transitions(chain, 2, GAMMA)
    for segment in segments:
        complete += store.insert(segment, "a")["items"].tolist()
        oldest = store.num_inserted - num_entries
        assert store.tables["items"].keys().tolist() == sorted(key for key in complete if key >= oldest)
        if store.tables["items"].can_sample(8):
            batch, keys, _ = store.sample_transitions("items", 8, rng, gamma=GAMMA)
            store.tables["items"].update_priorities(keys, rng.random(8))
            for row in range(8):
                action, reward, discount, next_obs = expected[float(np.ravel(batch.obs[row])[-1])]
                assert (batch.action[row], batch.reward[row]) == (action, pytest.approx(reward, abs=1e-4))
                assert batch.discount[row] == pytest.approx(discount)
                assert np.array_equal(batch.next_obs[row], next_obs)
            complete = [key for key in complete if store.tables["items"].has(np.array([key]))[0] or key < oldest]
    assert store.num_inserted > 2 * num_entries


def test_streams_are_apart() -> None:
    segments, stretches = rollouts.make_segments(3, num_segments=6, num_steps=4, num_rows=2)
    others, other_stretches = rollouts.make_segments(4, num_segments=6, num_steps=4, num_rows=3)
    store = make_store()
    store.add_table("items", length=2)
    for segment, other in zip(segments, others, strict=True):
        store.insert(segment, "a")
        store.insert(other, "b")
    expected: dict[float, tuple[Any, ...]] = {}
    for stretch in (stretch for row in [*stretches, *other_stretches] for stretch in row):
        for chain in rollouts.chains(stretch):
            expected |= rollouts.transitions(chain, 2, GAMMA)
    same_transitions(read_transitions(store, "items", 2), expected)
