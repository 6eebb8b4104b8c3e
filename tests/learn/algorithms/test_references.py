"""Whole updates of every algorithm against a slow, plain one: see `reference.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import Reference
from synthetic_segments import make_learner, make_policy, make_segment, parameters_of

from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.learn.algorithms.learner import Sample

ALGORITHMS = ("ppo", "a2c", "impala", "appo")
ACTIONS: dict[str, ActionSpec] = {
    "discrete": Discrete(3),
    "multi-discrete": MultiDiscrete((2, 3)),
    "continuous": Continuous((-1.0, -2.0), (1.0, 5.0)),
}
# None of them is a default, and no two are the same: what is left out or mistaken for another makes a difference.
SETTINGS: dict[str, Any] = {
    "num_epochs": 2,
    "minibatch_size": 0,
    "gamma": 0.9,
    "lam": 0.7,
    "learning_rate": 2e-2,
    "value_coef": 0.6,
    "entropy_coef": 0.05,
    "max_grad_norm": 0.0,
    "reward_scale": 1.3,
    "adam_eps": 1e-3,
}


def compare(
    name: str,
    *,
    kind: str = "discrete",
    recurrent: str = "none",
    has_mask: bool = False,
    num_updates: int = 2,
    **settings: Any,
) -> dict[str, float]:
    """Both learn from the same segments, which an older policy has chosen the actions of. Returns the last metrics."""
    policy = make_policy(ACTIONS[kind], recurrent=recurrent)
    learner = make_learner(name, policy, **{**SETTINGS, **settings})
    reference = Reference(name, policy, learner.algorithm.config)
    behaviour = make_policy(ACTIONS[kind], recurrent=recurrent)
    for seed in range(num_updates):
        segment = make_segment(behaviour, num_steps=7, num_rows=5, seed=seed, has_mask=has_mask, turns=0.2)
        assert segment.terminated.any()
        assert segment.truncated.any()
        progress = 0.25 * seed
        metrics = learner.update(Sample(segment), progress=progress).metrics
        expected = reference.update(segment, progress=progress)
        assert {key: metrics[key] for key in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)
        np.testing.assert_allclose(parameters_of(policy), parameters_of(reference.policy), atol=5e-5)
    return metrics


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", sorted(ACTIONS))
@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_updates_are_those_of_the_reference(name: str, kind: str, recurrent: str) -> None:
    compare(name, kind=kind, recurrent=recurrent, has_mask=kind != "continuous")


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(
    "settings",
    [
        {"max_grad_norm": 0.1},
        {"anneal": True},
        {"gamma": 1.0, "lam": 1.0},
        {"lam": 0.0},
        {"entropy_coef": 0.0, "value_coef": 0.0},
        {"reward_scale": 1.0, "num_epochs": 1},
    ],
    ids=str,
)
def test_every_setting_does_what_it_does_in_the_reference(name: str, settings: dict[str, Any]) -> None:
    metrics = compare(name, **settings)
    if "max_grad_norm" in settings:
        assert metrics["gradient_norm"] > 0.1, "nothing was clipped"


@pytest.mark.parametrize("name", ["impala", "appo"])
@pytest.mark.parametrize("settings", [{"rho_max": 0.8, "c_max": 0.9}, {"rho_max": 1.6, "c_max": 0.5}], ids=str)
def test_the_weights_of_v_trace_are_cut_off_where_they_should_be(name: str, settings: dict[str, Any]) -> None:
    compare(name, has_mask=True, **settings)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("is_normalised", [False, True])
def test_advantages_are_normalised_over_active_steps_alone_or_not_at_all(name: str, is_normalised: bool) -> None:
    compare(name, normalise_advantage=is_normalised)


@pytest.mark.parametrize("name", ["ppo", "appo"])
@pytest.mark.parametrize("clip", [0.0, 0.05, 0.5])
def test_ratios_are_clipped_on_the_side_that_the_advantage_asks_for(name: str, clip: float) -> None:
    compare(name, clip=clip, has_mask=True)


@pytest.mark.parametrize("name", ["impala", "appo"])
@pytest.mark.parametrize("kind", sorted(ACTIONS))
@pytest.mark.parametrize("max_ratio", [1.0, 1.05, 1.3, 1e9])
def test_all_updates_together_push_no_further_than_the_largest_ratio(name: str, kind: str, max_ratio: float) -> None:
    compare(name, kind=kind, max_ratio=max_ratio, num_epochs=4)
