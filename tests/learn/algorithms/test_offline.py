"""Whole updates of BC and IQL against slow, plain ones: see `offline_reference.py`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from offline_reference import OfflineReference

from ludus import data
from ludus.core import EnvSpec
from ludus.data import nest as nests
from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.data.spec import ArraySpec
from ludus.data.transitions import Transitions
from ludus.learn.algorithms.registry import algorithm_class
from ludus.learn.algorithms.replay_learner import Replayed, ReplayLearner
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy

torch.set_num_threads(1)

ACTIONS: dict[str, ActionSpec] = {
    "discrete": Discrete(3),
    "multi-discrete": MultiDiscrete((2, 3)),
    "continuous": Continuous((-1.0, -2.0), (1.0, 5.0)),
    "half unbounded": Continuous((-1.0, -math.inf), (3.0, math.inf)),
}
# None of them is a default, and no two are the same.
SETTINGS: dict[str, dict[str, Any]] = {
    "bc": {"entropy_coef": 0.07},
    "iql": {"expectile": 0.7, "temperature": 2.5, "max_weight": 1.6, "tau": 0.3, "reward_scale": 1.3, "num_critics": 3},
}
COMMON: dict[str, Any] = {
    "learning_rate": 2e-2,
    "max_grad_norm": 0.0,
    "adam_eps": 1e-3,
    "normalise_obs": False,
    "normalise_rewards": False,
    "batch_size": 24,
    "log_std": -0.4,
}


def make_learner(name: str, kind: str = "discrete", *, seed: int = 1, **settings: Any) -> ReplayLearner:
    algorithm = algorithm_class(name)
    made = algorithm(algorithm.Config(**{**COMMON, **SETTINGS[name], **settings}))
    env = EnvSpec(name="e", obs=ArraySpec((4,), np.float32), action=ACTIONS[kind])
    policy = Policy(made.policy_spec(env, NetworkConfig(hidden=(8, 8))), seed=seed)
    return ReplayLearner(made, policy, seed=seed)  # type: ignore[arg-type]


def make_batch(kind: str, *, num_rows: int = 24, seed: int = 0, has_mask: bool = False) -> Transitions:
    """Ends by the rules, cut-off ends and n-step discounts among them."""
    rng = np.random.default_rng(seed)
    spec = ACTIONS[kind]
    mask = None
    if isinstance(spec, Continuous):
        action = (rng.random((num_rows, 2)) * 2.0 - 1.0).astype(np.float32)
        action[0] = (-0.99, -1.9)  # near its bounds
    else:
        sizes = (spec.num_choices,) if isinstance(spec, Discrete) else spec.num_choices
        action = np.stack([rng.integers(size, size=num_rows) for size in sizes], 1)
        if has_mask:
            mask = rng.random((num_rows, sum(sizes))) < 0.5
            for start, choice in zip(np.cumsum((0, *sizes[:-1])), action.T, strict=True):
                mask[np.arange(num_rows), start + choice] = True
        action = action[:, 0] if isinstance(spec, Discrete) else action
    return Transitions(
        obs=rng.standard_normal((num_rows, 4)).astype(np.float32),
        action=action,
        reward=rng.standard_normal(num_rows).astype(np.float32),
        discount=rng.choice([0.0, 0.9, 0.81], num_rows).astype(np.float32),
        next_obs=rng.standard_normal((num_rows, 4)).astype(np.float32),
        mask=mask,
        next_mask=mask,
    )


def parameters_of(network: torch.nn.Module) -> np.ndarray:
    return np.concatenate([each.detach().numpy().ravel() for each in network.parameters()])


def compare(name: str, kind: str, *, has_mask: bool = False, **settings: Any) -> dict[str, float]:
    learner = make_learner(name, kind, **settings)
    reference = OfflineReference(name, learner)
    for seed in range(3):
        batch = make_batch(kind, seed=seed, has_mask=has_mask)
        metrics = learner.update(Replayed(batch)).metrics
        expected = reference.update(batch)
        if settings.get("squash"):
            del expected["entropy"]  # it has no closed form
        assert {key: metrics[key] for key in expected} == pytest.approx(expected, rel=2e-4, abs=2e-5)
        np.testing.assert_allclose(parameters_of(learner.policy), parameters_of(reference.policy), atol=1e-4)
        for network, other in zip(
            [*learner.networks.trained.values(), *learner.networks.targets.values()],
            [*reference.trained.values(), *reference.targets.values()],
            strict=True,
        ):
            np.testing.assert_allclose(parameters_of(network), parameters_of(other), atol=1e-4)
    return metrics


@pytest.mark.parametrize("name", ["bc", "iql"])
@pytest.mark.parametrize(
    ("kind", "has_mask"),
    [*((kind, False) for kind in sorted(ACTIONS)), ("discrete", True), ("multi-discrete", True)],
)
def test_updates_are_those_of_the_reference(name: str, kind: str, has_mask: bool) -> None:
    compare(name, kind, has_mask=has_mask)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bc", {"entropy_coef": 0.0}),
        ("bc", {"max_grad_norm": 0.1}),
        ("iql", {"expectile": 0.5}),
        ("iql", {"expectile": 0.95, "temperature": 0.0}),
        ("iql", {"max_weight": 1000.0, "num_critics": 1}),
        ("iql", {"tau": 1.0, "reward_scale": 0.5}),
        ("iql", {"max_grad_norm": 0.1}),
    ],
    ids=str,
)
def test_every_setting_does_what_it_does_in_the_reference(name: str, settings: dict[str, Any]) -> None:
    metrics = compare(name, "discrete", has_mask=True, **settings)
    if "max_grad_norm" in settings:
        assert metrics["gradient_norm"] > 0.1, "nothing was clipped"
    if settings.get("temperature") == 0.0:
        assert metrics["weight"] == 1.0


@pytest.mark.parametrize("name", ["bc", "iql"])
def test_squashed_actions_are_imitated_within_their_bounds(name: str) -> None:
    settings = {"entropy_coef": 0.0} if name == "bc" else {}
    compare(name, "continuous", squash=True, **settings)


def test_several_batches_at_once_are_several_gradient_steps() -> None:
    whole, parts = make_learner("iql", batch_size=8), make_learner("iql", batch_size=8)
    batch = make_batch("discrete")
    whole.update(Replayed(batch))
    for start in range(0, 24, 8):
        rows = {name: None if value is None else value[start : start + 8] for name, value in batch.to_nest().items()}
        parts.update(Replayed(Transitions(**rows)))
    assert np.array_equal(parameters_of(whole.policy), parameters_of(parts.policy))
    assert whole.num_gradient_steps == 3


@pytest.mark.parametrize("name", ["bc", "iql"])
def test_all_networks_go_on_from_a_checkpoint_bit_by_bit(name: str) -> None:
    def learn(learner: ReplayLearner, seeds: range) -> None:
        for seed in seeds:
            learner.update(Replayed(make_batch("discrete", seed=seed)))

    whole, early, late = (make_learner(name, seed=seed, normalise_rewards=name == "iql") for seed in (3, 3, 4))
    learn(whole, range(4))
    learn(early, range(2))
    late.restore(data.decode(data.encode(early.save())))
    learn(late, range(2, 4))
    for mine, other in zip(nests.leaves(whole.save()), nests.leaves(late.save()), strict=True):
        assert np.array_equal(mine, other)
