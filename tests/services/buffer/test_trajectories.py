"""Trajectories as they come back, against a reader that goes through them one step at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.data import codec
from ludus.data.actions import Continuous, Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError, DataError
from ludus.services.buffer.limiters import SamplesPerInsert
from ludus.services.buffer.selectors import Prioritised
from ludus.services.buffer.table import TableSettings
from ludus.services.buffer.trajectories import TrajectoryStore
from ludus.services.buffer.trajectory_reader import TrajectoryReader
from ludus.services.buffer.trajectory_spec import TrajectorySpec

from . import rollouts

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


def test_streams_of_which_nothing_is_left_are_forgotten() -> None:
    store = make_store(1, 60)
    store.add_table("items")
    for number in range(1000):
        segments, _ = rollouts.make_segments(number, num_segments=1, num_steps=4, num_rows=1)
        store.insert(segments[0], f"session/{number}")
        assert len(store._streams) <= 64
    segments, _ = rollouts.make_segments(3, num_segments=2, num_steps=4, num_rows=1)
    store.insert(segments[0], "ended")
    store.end_stream("ended")
    store.end_stream("never seen")
    assert "ended" not in store._streams


# -- what else is kept


def test_nests_masks_versions_and_log_probabilities_come_back() -> None:
    obs = {"image": ArraySpec((2, 3), np.uint8), "pair": (ArraySpec((), np.float32), None)}
    spec = TrajectorySpec(obs=obs, action=ArraySpec((2,), np.float32), mask_size=3, has_logp=True, has_version=True)
    segment = Segment.allocate(4, 2, obs=obs, action=Continuous((-1.0, -1.0), (1.0, 1.0)))
    rng = np.random.default_rng(0)
    segment.obs["image"][...] = rng.integers(0, 256, segment.obs["image"].shape)
    segment.obs["pair"][0][...] = rng.random((5, 2))
    segment.mask = rng.random((5, 2, 3)) < 0.5
    segment.action[...] = rng.random((4, 2, 2))
    segment.logp[...], segment.reward[...] = rng.random((4, 2)), rng.random((4, 2))
    segment.active[...], segment.version[:] = True, [3, 3, 4, 4]
    store = TrajectoryStore(spec, num_entries=100)
    store.add_table("steps")
    store.add_table("sequences", kind="sequence", length=3)
    store.insert(segment, "a")
    batch, keys, probabilities = store.sample_transitions("steps", 50, rng, gamma=0.5)
    step, row = keys // 2, keys % 2
    assert set(keys) == set(range(6))  # those of the last step wait for the next observation
    assert (batch.obs["image"] == segment.obs["image"][step, row]).all()
    assert (batch.next_obs["pair"][0] == segment.obs["pair"][0][step + 1, row]).all()
    assert batch.obs["pair"][1] is None
    assert (batch.action == segment.action[step, row]).all()
    assert (batch.mask == segment.mask[step, row]).all()
    assert (batch.next_mask == segment.mask[step + 1, row]).all()
    assert (batch.discount == 0.5).all()
    assert probabilities == pytest.approx(1 / 6)
    sequences, keys, _ = store.sample_sequences("sequences", 20, rng)
    assert (sequences.logp == segment.logp[:3, keys]).all()
    assert (sequences.mask == segment.mask[:4, keys]).all()
    assert sequences.version.tolist() == [3, 3, 4]
    assert Segment.from_nest(sequences.to_nest()).num_rows == 20


def test_sequences_start_where_the_recurrent_state_is_known_and_have_it() -> None:
    obs, state = ArraySpec((1,), np.float32), {"h": ArraySpec((2,), np.float32), "c": None}
    spec = TrajectorySpec(obs=obs, action=ArraySpec((), np.int64), state=state)
    store = TrajectoryStore(spec, num_entries=100, num_states=6)
    store.add_table("sequences", kind="sequence", length=3, burn_in=1)
    rng = np.random.default_rng(0)
    for number in range(6):
        segment = Segment.allocate(4, 2, obs=obs, action=Discrete(5), state=state)
        segment.active[...] = True
        segment.obs[..., 0] = 100 * number + 10 * np.arange(2) + np.arange(5)[:, None]
        segment.state["h"][...] = 100 * number + 10 * np.arange(2)[:, None]
        store.insert(segment, "a")
        if number:
            batch, keys, _ = store.sample_sequences("sequences", 32, rng)
            assert (batch.state["h"] == batch.obs[0]).all()  # [B, 2] and [B, 1]
            assert batch.state["c"] is None
            assert (keys % 8 < 2).all()
    assert store.tables["sequences"].keys().tolist() == [24, 25, 32, 33]  # of 6 states, the last 2 segment's go on


def test_a_period_thins_the_starts_of_a_row_across_its_segments() -> None:
    segments, _ = rollouts.make_segments(1, num_segments=8, num_steps=5, num_rows=2, waits=0.3)
    store = make_store()
    store.add_table("all")
    store.add_table("some", period=3)
    for segment in segments:
        store.insert(segment, "a")
    rows: dict[int, list[int]] = {0: [], 1: []}
    at = store._streams["a"]
    flags = store._entries.arrays["flags"]
    assert at.num_rows == 2
    every, some = store.tables["all"].keys(), set(store.tables["some"].keys().tolist())
    # Which row an entry is of is found by walking from the first two.
    following = store._entries.arrays["next"]
    for row in (0, 1):
        key = row
        while key >= 0:
            if flags[key] & 2:
                rows[row].append(key)
            key = int(following[key])
    assert set(every) <= {*rows[0], *rows[1]}
    assert some == {key for keys in rows.values() for key in keys[::3]} & set(every.tolist())


@pytest.mark.parametrize("stack", [1, 4])
def test_a_restored_store_samples_and_goes_on_bit_for_bit(stack: int) -> None:
    segments, _ = rollouts.make_segments(5, num_segments=40, num_steps=4, num_rows=3, stack=stack, waits=0.2, void=0.1)

    def make() -> TrajectoryStore:
        store = make_store(stack, 300)
        store.add_table("steps", TableSettings(sampler=Prioritised(exponent=0.7)), length=3)
        store.add_table("sequences", TableSettings(capacity=20), kind="sequence", length=4, period=2)
        return store

    def step(store: TrajectoryStore, segment: Segment, rng: np.random.Generator) -> list[Any]:
        complete = store.insert(segment, "a")
        batch, keys, probabilities = store.sample_transitions("steps", 16, rng, gamma=GAMMA)
        store.tables["steps"].update_priorities(keys, rng.random(16))
        rows, other, _ = store.sample_sequences("sequences", 5, rng)
        return [
            *(array.tolist() for array in complete.values()),
            *(np.array(array).tolist() for array in (batch.obs, batch.reward, batch.next_obs, keys, probabilities)),
            *(np.array(array).tolist() for array in (rows.obs, rows.active, rows.reward, other)),
            store.statistics(),
        ]

    first, rng = make(), np.random.default_rng(1)
    for segment in segments[:4]:
        first.insert(segment, "a")
    for segment in segments[4:25]:
        step(first, segment, rng)
    second, other = make(), np.random.default_rng(0)
    second.restore(codec.decode([bytes(frame) for frame in codec.encode(first.save())]))
    other.bit_generator.state = rng.bit_generator.state
    for segment in segments[25:]:
        assert step(first, segment, rng) == step(second, segment, other)
    smaller = make_store(stack, 200)
    smaller.add_table("steps", length=3)
    smaller.add_table("sequences", kind="sequence", length=4)
    with pytest.raises(DataError, match="not those of a ring of 200"):
        smaller.restore(first.save())
    with pytest.raises(DataError, match="the saved tables are"):
        make_store(stack, 300).restore(first.save())


# -- folders


@pytest.mark.parametrize("stack", [1, 4])
def test_a_folder_is_opened_again_with_its_tables(stack: int, tmp_path: Path) -> None:
    segments, _ = rollouts.make_segments(6, num_segments=30, num_steps=4, num_rows=3, stack=stack, waits=0.2)
    store = make_store(stack, 250, folder=tmp_path / "replay")
    limiter = SamplesPerInsert(ratio=2.0, min_size=4, tolerance=1000.0)
    store.add_table("steps", TableSettings(sampler=Prioritised(), limiter=limiter, max_times_sampled=5), length=3)
    store.add_table("sequences", kind="sequence", length=4)
    rng = np.random.default_rng(0)
    for segment in segments:
        store.insert(segment, "a")
        if store.tables["steps"].can_sample(6):
            _, keys, _ = store.sample_transitions("steps", 6, rng, gamma=GAMMA)
            store.tables["steps"].update_priorities(keys, rng.random(6))
    again = TrajectoryStore.open(tmp_path / "replay")
    assert again.statistics() == store.statistics()
    assert again.kinds == store.kinds
    assert again.num_inserted == store.num_inserted
    for name, table in store.tables.items():
        assert again.tables[name].keys().tolist() == table.keys().tolist()
        assert again.tables[name].priorities(table.keys()).tolist() == table.priorities(table.keys()).tolist()
    same_transitions(read_transitions(again, "steps", 3), read_transitions(store, "steps", 3))
    again.insert(segments[0], "b")
    assert again.num_inserted > store.num_entries


def test_another_process_reads_what_it_was_given_the_keys_of(tmp_path: Path) -> None:
    segments, _ = rollouts.make_segments(7, num_segments=30, num_steps=4, num_rows=2)
    store = make_store(1, 100, folder=tmp_path)
    store.add_table("steps", length=2)
    for segment in segments[:8]:
        store.insert(segment, "a")
    reader = TrajectoryReader.open(tmp_path)
    keys = store.tables["steps"].keys()
    expected = read_transitions(store, "steps", 2)
    batch, whole = reader.transitions(keys, length=2, gamma=GAMMA)
    assert whole is not None
    assert whole.all()
    assert {float(obs[0]) for obs in batch.obs} == expected.keys()
    for segment in segments[8:16]:
        store.insert(segment, "a")
    batch, whole = reader.transitions(keys, length=2, gamma=GAMMA)
    assert whole is not None
    assert whole.tolist() == store.tables["steps"].has(keys).tolist()
    assert 0 < whole.sum() < len(keys)
    for row in np.flatnonzero(whole):
        assert batch.next_obs[row] == expected[float(batch.obs[row, 0])][3]


def test_a_checkpoint_of_a_folder_keeps_what_was_not_overwritten_since(tmp_path: Path) -> None:
    segments, _ = rollouts.make_segments(8, num_segments=30, num_steps=4, num_rows=2)
    store = make_store(1, 100, folder=tmp_path)
    store.add_table("steps")
    for segment in segments[:12]:
        store.insert(segment, "a")
    saved, keys, num = store.save(), store.tables["steps"].keys(), store.num_inserted
    before = read_transitions(store, "steps", 1)
    assert saved["entries"] is None
    for segment in segments[12:16]:
        store.insert(segment, "a")
    written = store.num_inserted
    again = TrajectoryStore.open(tmp_path)
    again.restore(saved)
    assert again.num_inserted == num
    assert again.tables["steps"].keys().tolist() == keys[keys >= written - 100].tolist()
    found = read_transitions(again, "steps", 1)
    same_transitions(found, {name: before[name] for name in found})


def test_folders_without_a_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no columns"):
        TrajectoryStore.open(tmp_path)
    make_store(1, 10, folder=tmp_path).add_table("steps")
    with pytest.raises(DataError, match="has columns already"):
        make_store(1, 10, folder=tmp_path)
    (tmp_path / "tables" / "000" / "table.json").write_text("{}")
    with pytest.raises(DataError, match=r"table\.json is damaged"):
        TrajectoryStore.open(tmp_path)


# -- what does not fit


def test_segments_that_do_not_fit_are_refused_and_leave_no_trace() -> None:
    store = make_store(1, 10)
    store.add_table("steps")
    segments, _ = rollouts.make_segments(0, num_segments=1, num_steps=5, num_rows=2)
    with pytest.raises(DataError, match="may need 12 entries"):
        store.insert(segments[0], "a")
    stacked, _ = rollouts.make_segments(0, num_segments=1, num_steps=2, num_rows=2, stack=4)
    with pytest.raises(DataError, match=r"obs/ is float32 \(3, 2, 4, 1\), not float32 \(3, 2, 1\)"):
        store.insert(stacked[0], "a")
    wrong, _ = rollouts.make_segments(0, num_segments=1, num_steps=2, num_rows=2)
    wrong[0].action = wrong[0].action + 0.5
    with pytest.raises(DataError, match="action is float64"):
        store.insert(wrong[0], "a")
    assert store.num_inserted == 0
    with pytest.raises(DataError, match="no table 'other'"):
        store.sample_transitions("other", 1, np.random.default_rng(0), gamma=1.0)
    with pytest.raises(DataError, match="are transitions, not sequences"):
        store.sample_sequences("steps", 1, np.random.default_rng(0))


def test_tables_that_make_no_sense_are_refused() -> None:
    store = make_store(1, 10)
    store.add_table("steps")
    for name, kwargs in {"steps": {}, "a": {"kind": "x"}, "b": {"length": 0}, "c": {"length": 10}}.items():
        with pytest.raises(ConfigError):
            store.add_table(name, **kwargs)  # type: ignore[arg-type]
    segments, _ = rollouts.make_segments(0, num_segments=1, num_steps=2, num_rows=1)
    store.insert(segments[0], "a")
    with pytest.raises(ConfigError, match="after the first segment"):
        store.add_table("late")


def test_a_stack_that_no_observation_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="no observation has so many frames"):
        TrajectorySpec(obs=ArraySpec((4,), np.float32), action=ArraySpec((), np.int64), frame_stack=4)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("first", (5, 2)),
        ("active", (5, 2)),
        ("reward", (4, 2)),
        ("terminated", (4, 2)),
        ("truncated", (4, 2)),
        ("version", (4,)),
        ("action", (4, 2)),
        ("obs", (5, 2, 1)),
    ],
)
def test_segments_whose_arrays_do_not_fit_are_refused_and_change_nothing(name: str, shape: tuple[int, ...]) -> None:
    def segment() -> Segment:
        made = Segment.allocate(4, 2, obs=ArraySpec((1,), np.float32), action=Discrete(2))
        made.active[:] = True
        return made

    store = make_store()
    store.add_table("steps")
    store.insert(segment(), "a")
    before = [bytes(frame) for frame in codec.encode(store.save())]
    dtype = getattr(segment(), name).dtype
    wrong = [(), shape[:-1], (*shape, 1), (shape[0] - 1, *shape[1:]), (shape[0] + 1, *shape[1:]), (0, *shape[1:])]
    bad: list[Any] = [np.zeros(other, dtype) for other in wrong]
    bad += [np.zeros(shape, np.complex128), np.full(shape, "a"), None]
    for array in bad:
        changed = segment()
        setattr(changed, name, array)
        with pytest.raises(DataError, match="nothing was inserted"):
            store.insert(changed, "a")
    assert [bytes(frame) for frame in codec.encode(store.save())] == before
    store.insert(segment(), "a")


def test_observations_in_another_order_are_refused() -> None:
    leaf = ArraySpec((1,), np.float32)
    spec = TrajectorySpec(obs={"near": leaf, "far": leaf}, action=ArraySpec((), np.int64))
    store = TrajectoryStore(spec, num_entries=64)
    store.add_table("steps")
    with pytest.raises(DataError, match=r"\['obs/far', 'obs/near'\], not \['obs/near', 'obs/far'\]"):
        store.insert(Segment.allocate(4, 2, obs={"far": leaf, "near": leaf}, action=Discrete(2)), "a")


@pytest.mark.parametrize("obs", [ArraySpec((1,), np.float64), ArraySpec((3,), np.float32), ArraySpec((), np.float32)])
def test_a_store_of_other_arrays_is_not_restored_from_and_nothing_changes(obs: ArraySpec) -> None:
    saved = make_store()
    saved.add_table("steps")
    saved.insert(Segment.allocate(4, 2, obs=ArraySpec((1,), np.float32), action=Discrete(2)), "a")
    spec = TrajectorySpec(obs=obs, action=ArraySpec((), np.int64), has_version=True)
    store = TrajectoryStore(spec, num_entries=4000)
    store.add_table("steps")
    with pytest.raises(DataError, match=r"the saved columns are .*nothing was restored"):
        store.restore(saved.save())
    other = make_store()
    other.add_table("steps", TableSettings(sampler=Prioritised()))
    with pytest.raises(DataError, match="other settings; nothing was restored"):
        other.restore(saved.save())
    assert other.num_inserted == store.num_inserted == 0
    assert (other._entries.arrays["key"] == -1).all()


def test_items_of_another_length_are_not_restored() -> None:
    saved = make_store()
    saved.add_table("steps", length=1)
    saved.insert(Segment.allocate(4, 2, obs=ArraySpec((1,), np.float32), action=Discrete(2)), "a")
    store = make_store()
    store.add_table("steps", length=3)
    with pytest.raises(DataError, match="Use the same lengths"):
        store.restore(saved.save())
    assert store.num_inserted == 0
    earlier = {name: part for name, part in saved.save().items() if name != "kinds"}
    same = make_store()
    same.add_table("steps", length=1)
    same.restore(earlier)
    assert same.num_inserted == saved.num_inserted
