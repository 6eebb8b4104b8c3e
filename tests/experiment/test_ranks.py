"""Trainer ranks: together they make the step that one would make; when one is lost, the run ends and can go on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import discovery
from ludus.data.segment import Segment
from ludus.errors import TrainingError
from ludus.experiment import wiring
from ludus.experiment.config import Config, resolve
from ludus.learn.algorithms.learner import Learner, Sample
from ludus.learn.policies.policy import Policy
from ludus.services.trainer.ranks import TorchRanks
from ludus.training import api as training
from ludus.trial import services

from . import runs

SETTINGS = {"num_envs": 6, "num_steps": 16, "num_epochs": 1, "minibatch_size": 0, "threads": 1, "flow": "sync"}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", {}),
    "ppo recurrent": ("ppo", "CartPole-v1", {"recurrent": "gru"}),
    "ppo continuous normalised": ("ppo", "Pendulum-v1", {"normalise_obs": True}),
    "ppo accumulated": ("ppo", "CartPole-v1", {"accumulate": 2}),
    "impala": ("impala", "CartPole-v1", {}),
    "appo": ("appo", "CartPole-v1", {}),
}


def config_of(case: str) -> Config:
    algorithm, env, settings = CASES[case]
    return resolve(algorithm, env, {**SETTINGS, **settings})


def make_learner(config: Config, ranks: Any = None) -> Learner:
    groups = wiring.make_groups(config)
    policy = Policy(wiring.make_policy_spec(config, groups[0].spec), seed=1)
    return wiring.make_learner(config, policy, ranks=ranks)


def joined(config: Config) -> Segment:
    """The rows of all ranks, of which the first half has far fewer active steps."""
    groups = wiring.make_groups(config)
    policy = Policy(wiring.make_policy_spec(config, groups[0].spec), seed=1)
    simulator = wiring.make_simulator(config, groups, policy, seed=1)
    for version in range(3):
        segment = simulator.collect(version).segment
    segment.active[5:, :2] = False
    segment.logp -= np.float32(0.1) * np.random.default_rng(1).random(segment.logp.shape, np.float32)
    simulator.close()
    return segment


def half(segment: Segment, rank: int) -> Segment:
    part = slice(rank * segment.num_rows // 2, (rank + 1) * segment.num_rows // 2)

    def take(name: str, value: Any) -> Any:
        if value is None or name == "version":
            return value
        if name == "state":
            return {key: leaf[part] for key, leaf in value.items()}
        return value[:, part]

    return Segment(**{name: take(name, value) for name, value in segment.to_nest().items()})


def learn_as_rank(rank: int, names_url: str, out: str) -> None:
    with contextlib.closing(discovery.connect(names_url)) as names:
        ranks = TorchRanks(rank, 2, names=names, key="rendezvous", timeout_s=60.0)
        for case in CASES:
            config = config_of(case)
            learner = make_learner(config, ranks)
            metrics = learner.update(Sample(half(joined(config), rank))).metrics
            np.savez(f"{out}-{rank}-{case}.npz", **learner.policy.weights())
            Path(f"{out}-{rank}-{case}.json").write_text(json.dumps(metrics))
        assert ranks.least(5.0 - rank) == 4.0
        ranks.close()
        ranks.close()


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ranks")
    children = [runs.start(learn_as_rank, rank, f"file://{folder}/names", str(folder / "of")) for rank in (0, 1)]
    for child in children:
        child.join(90)
    assert [child.exitcode for child in children] == [0, 0]
    return str(folder / "of")


@pytest.mark.parametrize("case", sorted(CASES))
def test_two_ranks_on_halves_make_the_step_of_one_on_all(learnt: str, case: str) -> None:
    config = config_of(case)
    learner = make_learner(config)
    before = learner.policy.weights()
    segment = joined(config)
    assert half(segment, 0).num_active < half(segment, 1).num_active
    metrics = learner.update(Sample(segment)).metrics
    after = learner.policy.weights()
    first, second = (np.load(f"{learnt}-{rank}-{case}.npz") for rank in (0, 1))
    assert any(not np.array_equal(before[name], after[name]) for name in after)
    for name in after:
        assert np.array_equal(first[name], second[name]), f"the ranks differ in {name}"
        # a step of Adam is as long as the learning rate, 1e-4 to 1e-3, however small the gradient
        np.testing.assert_allclose(first[name], after[name], atol=1e-5, err_msg=name)
    report = json.loads(Path(f"{learnt}-0-{case}.json").read_text())
    assert report == pytest.approx(metrics, abs=1e-4)


def test_two_ranks_play_different_episodes(tmp_path: Path) -> None:
    config = config_of("ppo")
    learner = make_learner(config)
    program, _ = services.training_program(config, tmp_path, began=0.0)
    (factory,) = program.node("trainer").args
    first_obs = []
    for rank in range(2):
        source = factory._source(rank, learner.policy, None)
        first_obs.append(source.collect(learner)[0].obs[0])
        source.close()
    together = np.concatenate(first_obs)
    assert len(np.unique(together, axis=0)) == len(together)


def sum_until_lost(names_url: str, out: str) -> None:
    import torch

    with contextlib.closing(discovery.connect(names_url)) as names:
        ranks = TorchRanks(0, 2, names=names, key="rendezvous", timeout_s=60.0)
        Path(out).write_text("joined")
        try:
            ranks.sum_(torch.ones(4))
        except TrainingError as error:
            Path(out).write_text(str(error))


def join_and_wait(names_url: str) -> None:
    with contextlib.closing(discovery.connect(names_url)) as names:
        TorchRanks(1, 2, names=names, key="rendezvous", timeout_s=60.0)
        threading.Event().wait()


def test_a_rank_that_waits_for_one_that_is_killed_is_notified_and_does_not_hang(tmp_path: Path) -> None:
    url, out = f"file://{tmp_path}/names", tmp_path / "said"
    waiting = runs.start(sum_until_lost, url, str(out))
    other = runs.start(join_and_wait, url)
    runs.wait_until(lambda: out.exists() and out.read_text() == "joined")
    runs.kill(other)
    began = time.monotonic()
    waiting.join(60)
    assert time.monotonic() - began < 50
    assert waiting.exitcode == 0
    assert "lost another of the 2 ranks" in out.read_text()
    assert "ludus resume" in out.read_text()


# --- whole runs


@pytest.mark.chaos
@pytest.mark.parametrize("victim", [0, 1])
def test_a_run_that_loses_a_rank_ends_soon_says_how_to_go_on_and_does(tmp_path: Path, victim: int) -> None:
    settings = {
        "num_envs": 4, "num_steps": 32, "num_epochs": 1, "steps": 30_000, "seed": 3, "eval_episodes": 2, "trainers": 2,
        "checkpoint_seconds": 0.2, "project": str(tmp_path), "trial": "two",
    }  # fmt: skip
    folder, env = tmp_path / "two", runs.slow_cartpole(tmp_path)
    killed: list[float] = []

    def on_progress(step: int, values: dict[str, float]) -> None:
        both = all((folder / name).exists() for name in ("checkpoints", "checkpoints-1"))
        if not killed and both:
            os.kill(runs.pid_of(folder, f"trainer/{victim}"), signal.SIGKILL)
            killed.append(time.monotonic())
            runs.hurry(tmp_path)

    with pytest.raises(TrainingError, match="ludus resume two") as caught:
        training.train("ppo", env, on_progress=on_progress, **settings)
    assert time.monotonic() - killed[0] < 60
    assert f"trainer/{victim}" in str(caught.value) or "lost another" in str(caught.value)
    resumed = training.resume("two", project=str(tmp_path)).result
    assert resumed["steps"] >= 30_000
    whole = training.train("ppo", env, **{**settings, "trial": "whole"}).result
    assert resumed["weights_hash"] == whole["weights_hash"]
