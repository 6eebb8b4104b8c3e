"""The flow `replay`: how often what is kept is learnt from, in one process and spread; what is refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError
from ludus.experiment.config import resolve
from ludus.experiment.flows.replay import Collected, ReplayFlow
from ludus.experiment.replay import TrainingReplay
from ludus.learn.algorithms.learner import Update
from ludus.learn.algorithms.replay_algorithm import ReplayConfig, ReplayItems
from ludus.services.buffer.trajectory_spec import TrajectorySpec
from ludus.telemetry.metrics_file import read_metrics
from ludus.training import api as training

from . import runs

QUICK = {"threads": 1, "eval_episodes": 2, "hidden": "16", "min_size": 400, "batch_size": 32, "seed": 1}
OBS = ArraySpec((2,), np.float32)


def last(folder: Path, name: str) -> float:
    return float([line[name] for line in read_metrics(folder) if name in line][-1])


@pytest.mark.parametrize(("updates_per_step", "num_steps"), [(0.25, 1), (2.0, 1), (0.5, 8)])
def test_as_many_gradient_steps_are_made_as_steps_pay_for(
    updates_per_step: float, num_steps: int, tmp_path: Path
) -> None:
    settings = {**QUICK, "updates_per_step": updates_per_step, "num_steps": num_steps, "steps": 2_000}
    training.train("dqn", "CartPole-v1", trial="t", project=str(tmp_path), **settings)
    sampled, inserted = (last(tmp_path / "t", f"count/replay_{name}") for name in ("sampled", "inserted"))
    wanted = (inserted - 400) * updates_per_step * 32
    tolerance = max(2 * 32, 2 * updates_per_step * 32 * 8 * num_steps)
    assert abs(sampled - wanted) <= tolerance + 32


def test_turns_that_only_learn_are_not_taken_for_envs_that_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment pays for 8 gradient steps, and a turn makes one of them."""
    monkeypatch.setattr("ludus.experiment.flows.replay._MOST_BATCHES", 1)
    monkeypatch.setattr("ludus.experiment.training._MOST_BARREN", 5)
    settings = {**QUICK, "updates_per_step": 1.0, "num_steps": 1, "min_size": 50, "steps": 200}
    run = training.train("dqn", "CartPole-v1", trial="t", project=str(tmp_path), **settings)
    assert run.result["steps"] >= 200
    assert last(tmp_path / "t", "count/replay_sampled") >= 100 * 32


@pytest.mark.parametrize("algorithm", ["dqn", "r2d2"])
def test_spread_over_simulators_the_ratio_holds_while_one_is_killed(algorithm: str, tmp_path: Path) -> None:
    steps = 60_000 if algorithm == "dqn" else 8_000
    settings = {**QUICK, "updates_per_step": 0.1, "simulators": 2, "steps": steps, "capacity": 5_000, "num_steps": 10}
    killed: list[int] = []

    def kill_one(step: int, values: dict[str, float]) -> None:
        if not killed and step > 1_000:  # it learns
            killed.append(runs.pid_of(tmp_path / "t", "simulator/0"))
            os.kill(killed[0], signal.SIGKILL)
            runs.hurry(tmp_path)

    env = runs.slow_cartpole(tmp_path)
    training.train(algorithm, env, trial="t", project=str(tmp_path), on_progress=kill_one, **settings)
    assert killed
    sampled, inserted = (last(tmp_path / "t", f"count/replay_{name}") for name in ("sampled", "inserted"))
    per_item = 1 if algorithm == "dqn" else 16  # a sequence begins with each segment
    ratio = 0.1 * 32 * per_item
    tolerance = max(2 * 32, 2 * 0.1 * 32 * 8 * 16, ratio)
    assert abs(sampled - (inserted - 400 // per_item) * ratio) <= 2 * tolerance


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flow": "sync"}, "flow=sync is not for dqn, which learns from replay"),
        ({"flow": "async"}, "flow=async is not for dqn"),
    ],
)
def test_a_flow_that_is_not_for_the_algorithm_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve("dqn", "CartPole-v1", settings)
    with pytest.raises(ConfigError, match="flow=replay is not for ppo"):
        resolve("ppo", "CartPole-v1", {"flow": "replay"})


def test_sequences_are_not_mixed_with_datasets() -> None:
    with pytest.raises(ConfigError, match="is not for r2d2: it learns from sequences"):
        resolve("r2d2", "CartPole-v1", {"dataset": "expert"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_size": 2_000, "capacity": 1_000}, "min_size=2000 is more than capacity=1000"),
        ({"capacity": 30}, "capacity=30 is too small for .* up to 40 steps, by num_envs=8 and num_steps=4"),
        ({"simulators": 1}, "capacity=100 is too small for .* up to 136 steps"),
        ({"simulators": 1, "capacity": 1_000, "dataset": "nowhere"}, "nowhere is not a dataset"),
        ({"n_step": 100}, "n_step=100 does not fit into capacity=100"),
        ({"capacity": 10**11}, "capacity=100000000000 takes .* GB, which cannot be had"),
    ],
)
def test_a_capacity_that_cannot_be_is_refused_before_there_is_a_trial(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    settings = {**QUICK, "min_size": 10, "capacity": 100, **settings}
    with pytest.raises(ConfigError, match=message):
        training.train("dqn", "CartPole-v1", steps=100, trial="t", project=str(tmp_path), **settings)
    assert not (tmp_path / "t").exists()
    settings |= {"capacity": 200, "min_size": 10, "n_step": 1, "dataset": ""}
    training.train("dqn", "CartPole-v1", steps=100, trial="t", project=str(tmp_path), **settings)


def test_more_than_the_memory_of_the_machine_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_replay()
    assert caplog.text == ""
    monkeypatch.setattr("ludus.experiment.replay._memory_bytes", lambda: 1000)
    make_replay()
    assert "capacity=64 takes" in caplog.text


@pytest.mark.parametrize("steps", [400, 399])
def test_a_run_that_ends_before_it_learns_is_warned_of(
    steps: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training.train("dqn", "CartPole-v1", steps=steps, project=str(tmp_path), **QUICK)
    assert ("nothing will be learnt: learning begins after min_size=400 steps" in caplog.text) == (steps < 400)


def test_without_a_limit_learning_waits_for_min_size_all_the_same() -> None:
    replay = make_replay(updates_per_step=0.0)
    for number in range(3):
        replay.insert(segment(number), "a")
    assert replay.num_ready(1) == 0
    replay.insert(segment(3), "a")
    replay.insert(segment(4), "a")
    assert replay.num_ready(1) == 1


@pytest.mark.parametrize("stack_num", [1, 2])
def test_stacks_of_any_number_of_frames_are_kept(stack_num: int, tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    settings = {**QUICK, "env_args": f'{{"stack_num": {stack_num}}}', "min_size": 40, "eval_episodes": 0, "num_envs": 2}
    training.train("dqn", "ALE/Pong-v5", steps=50, trial="t", project=str(tmp_path), **settings)
    assert last(tmp_path / "t", "count/replay_sampled") > 0


def make_replay(**settings: Any) -> TrainingReplay:
    config = ReplayConfig(**{"min_size": 8, "batch_size": 4, "capacity": 64, "num_envs": 2, **settings})
    spec = TrajectorySpec(obs=OBS, action=Discrete(2).array)
    return TrainingReplay(config, spec, ReplayItems(kind="transition", length=1))


def segment(number: int) -> Segment:
    made = Segment.allocate(1, 2, obs=OBS, action=Discrete(2))
    made.obs[0], made.obs[1] = number, number + 1
    made.active[:] = True
    made.reward[:] = number
    return made


def test_importance_is_1_for_the_rarest_of_a_batch_and_corrects_fully_at_the_end() -> None:
    replay = make_replay(prioritised=True, priority_exponent=1.0, importance_exponent=0.5)
    for number in range(20):
        replay.insert(segment(number), "a")
    drawn = replay.draw(1, progress=0.0)
    assert drawn.keys is not None
    replay.update_priorities(drawn.keys, np.full(4, 3.0))
    sizes = {}
    for progress in (0.0, 1.0):
        again = replay.draw(8, progress=progress)
        assert again.weight is not None
        assert again.keys is not None
        often = np.isin(again.keys, drawn.keys)
        assert again.weight.max() == 1.0
        assert often.any()
        assert not often.all()
        sizes[progress] = float(again.weight[often].min())
    np.testing.assert_allclose(sizes[1.0], 1 / 3, rtol=1e-4)
    np.testing.assert_allclose(sizes[0.0], 1 / np.sqrt(3), rtol=1e-4)


class Feed:
    """Gives numbered segments for as long as it is asked."""

    waits_for = "collect"

    def __init__(self) -> None:
        self.num_taken = 0

    def take(self, learner: Any, *, wait_s: float) -> Collected:
        self.num_taken += 1
        return Collected(segment(self.num_taken), "a", [])

    def seconds(self) -> dict[str, float]:
        return {}

    counts = seconds

    def save(self) -> None:
        return None

    def restore(self, saved: Any) -> bool:
        return False

    def close(self) -> None: ...


class FixedLearner:
    """Every row of every update has the same priority."""

    version = 0

    def __init__(self) -> None:
        self.keys: list[Any] = []

    def explore(self, num_steps: int, progress: float) -> bool:
        return False

    def observe(self, segment: Segment, stream: str) -> None: ...

    def update(self, sample: Any, *, progress: float) -> Update:
        self.version += 1
        self.keys.append(sample.keys)
        return Update({}, np.full(len(sample.keys), 5.0, np.float32))


def test_new_priorities_reach_the_table() -> None:
    replay, learner = make_replay(prioritised=True, updates_per_step=0.5), FixedLearner()
    flow = ReplayFlow(Feed(), replay, learner)  # type: ignore[arg-type]
    while not learner.keys:
        flow.turn(0.0)
    np.testing.assert_allclose(replay._table.priorities(learner.keys[-1]), 5.0, rtol=1e-5)


def test_nothing_is_collected_while_there_is_no_room_in_the_band() -> None:
    """The learner is far behind: only updates are made, until it has caught up."""
    replay, learner, feed = make_replay(updates_per_step=4.0, prioritised=True), FixedLearner(), Feed()
    flow = ReplayFlow(feed, replay, learner)  # type: ignore[arg-type]
    for number in range(100, 140):
        replay.insert(segment(number), "b")
    assert not replay.has_room()
    report = flow.turn(0.0)
    assert report is not None
    assert report.num_steps == feed.num_taken == 0
    while not feed.num_taken:
        flow.turn(0.0)
    assert replay.has_room()
