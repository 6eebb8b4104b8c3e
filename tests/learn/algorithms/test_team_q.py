"""VDN and QMIX: whole updates against a slow, plain one (`team_reference.py`), the mixer, and agents that are gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from synthetic_segments import parameters_of
from team_reference import TeamReference

from data.team_segments import NUM_CHOICES, OBS, play
from ludus.core import EnvSpec
from ludus.data.actions import Continuous, Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError
from ludus.learn.algorithms.registry import algorithm_class
from ludus.learn.algorithms.replay_learner import Replayed, ReplayLearner
from ludus.learn.networks.central_critic import TeamReader
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.mixer import MonotonicMixer
from ludus.learn.policies.policy import Policy

NUM_AGENTS = 3
GLOBAL_STATE = ArraySpec((5,), np.float32)
# None of them is a default, and no two are the same.
SETTINGS: dict[str, Any] = {
    "batch_size": 3,
    "gamma": 0.9,
    "learning_rate": 2e-2,
    "max_grad_norm": 0.0,
    "reward_scale": 1.3,
    "adam_eps": 1e-3,
    "tau": 0.3,
    "huber": 0.7,
    "n_step": 2,
    "sequence_length": 12,
    "eta": 0.6,
    "prioritised": True,
    "limit_ends": False,
    "normalise_rewards": False,
    "normalise_obs": False,
}
OF_MIXER = {"mixer_size": 4, "hyper_size": 6}


def make_learner(
    name: str, *, recurrent: str = "none", global_state: Any = GLOBAL_STATE, seed: int = 1, **settings: Any
) -> ReplayLearner:
    made = algorithm_class(name)
    settings = {**SETTINGS, **(OF_MIXER if name == "qmix" else {}), **settings}
    algorithm = made(made.Config(**settings), num_agents=NUM_AGENTS, global_state=global_state)  # type: ignore[arg-type]
    env = EnvSpec(name="fake", obs=OBS, action=Discrete(NUM_CHOICES), agents=("a", "b", "c"), global_state=global_state)
    network = NetworkConfig(hidden=(8,), recurrent=recurrent, recurrent_size=6)
    policy = Policy(algorithm.policy_spec(env, network), seed=seed)
    learner = ReplayLearner(algorithm, policy, seed=seed)  # type: ignore[arg-type]
    with torch.no_grad():  # outputs begin near 0, where everything looks alike
        for parameter in learner.policy.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)), alpha=0.3)
    learner.networks.targets["target"].load_state_dict(learner.policy.model.state_dict())
    return learner


def make_joined(learner: ReplayLearner, seed: int = 0, **settings: Any) -> Segment:
    state = {"hidden": ArraySpec((6,), np.float32)} if learner.policy.is_recurrent else None
    given = {"global_state": learner.algorithm.global_state, "state": state, **settings}
    return learner.algorithm.prepare(play(num_agents=NUM_AGENTS, seed=seed, **given).segment)


def compare(learner: ReplayLearner, *, has_mask: bool = True, weights: bool = True) -> None:
    reference = TeamReference(learner)
    rng = np.random.default_rng(5)
    for seed in range(3):
        segment = make_joined(learner, seed, has_mask=has_mask)
        weight = rng.random(segment.num_rows).astype(np.float32) if weights else None
        expected, priorities = reference.update(segment, weight)
        update = learner.update(Replayed(segment, np.arange(segment.num_rows), weight))
        assert {key: update.metrics[key] for key in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert update.priorities is not None
        np.testing.assert_allclose(update.priorities, priorities, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(parameters_of(learner.policy), parameters_of(reference.policy), atol=5e-5)
        target = learner.networks.targets["target"]
        np.testing.assert_allclose(parameters_of(target), parameters_of(reference.target), atol=5e-5)
        for theirs, ours in (
            (reference.mixer, learner.networks.trained.get("mixer")),
            (reference.mixer_target, learner.networks.targets.get("mixer_target")),
        ):
            for name, tensor in (theirs or {}).items():
                found = getattr(ours, "core", ours).state_dict()[name]
                np.testing.assert_allclose(found.numpy(), tensor.detach().numpy(), atol=5e-5)


@pytest.mark.parametrize("recurrent", ["none", "gru"])
@pytest.mark.parametrize("name", ["vdn", "qmix"])
def test_updates_are_those_of_the_reference(name: str, recurrent: str) -> None:
    compare(make_learner(name, recurrent=recurrent))


@pytest.mark.parametrize(
    "settings",
    [
        {"double": False, "n_step": 1},
        {"max_grad_norm": 0.05},
        {"pessimism": 0.2},
        {"global_state": None},
        {"recurrent": "gru", "burn_in": 4},
    ],
)
def test_settings_of_qmix_are_those_of_the_reference(settings: dict[str, Any]) -> None:
    compare(make_learner("qmix", **settings))


def test_updates_without_masks_and_weights_are_those_of_the_reference() -> None:
    compare(make_learner("qmix"), has_mask=False, weights=False)


@pytest.mark.parametrize("global_state", [None, GLOBAL_STATE])
def test_what_is_seen_is_normalised_by_scales_of_its_own(global_state: Any) -> None:
    learner = make_learner("qmix", global_state=global_state, normalise_obs=True)
    for seed in range(2):
        segment = make_joined(learner, 50 + seed)
        segment.obs["obs"][...] = 3.0 + 2.0 * segment.obs["obs"]
        learner.observe(segment, "0")
    normaliser = learner.policy.normaliser
    assert normaliser is not None
    np.testing.assert_allclose(normaliser.mean_0.numpy(), 3.0, atol=0.6)
    assert (learner.networks.trained["mixer"].normaliser is None) == (global_state is None)  # type: ignore[union-attr]
    compare(learner)


def test_a_teams_value_never_falls_where_that_of_an_agent_rises() -> None:
    torch.manual_seed(1)
    reader = TeamReader(OBS, num_agents=NUM_AGENTS, global_state=GLOBAL_STATE)
    mixer = MonotonicMixer(reader, num_agents=NUM_AGENTS, size=8, hyper_size=8)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter)
    q = torch.randn(200, NUM_AGENTS, requires_grad=True)
    total = mixer(q, torch.randn(200, 5))
    (slope,) = torch.autograd.grad(total.sum(), q)
    assert (slope >= 0.0).all()
    assert (slope > 0.0).float().mean() > 0.9
    assert total.std() > 0.5


def test_at_first_a_teams_value_is_about_0_where_those_of_its_agents_are_and_rises_about_as_they_do() -> None:
    """A mixer that begins with values of its own made up by chance has to unlearn them, and targets pass them on."""
    torch.manual_seed(1)
    reader = TeamReader(OBS, num_agents=NUM_AGENTS, global_state=ArraySpec((54,), np.float32))
    mixer = MonotonicMixer(reader, num_agents=NUM_AGENTS, size=32, hyper_size=64)
    q = torch.zeros(200, NUM_AGENTS, requires_grad=True)
    total = mixer(q, torch.randn(200, 54))
    (slope,) = torch.autograd.grad(total.sum(), q)
    assert float(total.detach().abs().max()) < 0.1
    assert 0.1 < float(slope.mean()) < 2.0


def test_what_an_agent_saw_and_did_when_it_was_gone_changes_nothing() -> None:
    """But in the global state, which may show it."""

    def learn(junk: float) -> np.ndarray:
        learner = make_learner("qmix", recurrent="gru")
        segment = make_joined(learner, has_mask=False)
        is_gone = ~segment.obs["active"]
        assert is_gone[:-1][segment.active[:-1]].any()
        segment.obs["obs"][is_gone] += junk
        segment.action[is_gone[:-1]] = int(junk) % NUM_CHOICES
        learner.update(Replayed(segment))
        return parameters_of(learner.policy)

    assert np.array_equal(learn(1.0), learn(5.0))


def test_an_episode_that_is_cut_off_goes_on_in_its_value_and_one_that_ends_does_not() -> None:
    def target(learner: ReplayLearner, *, is_cut_off: bool) -> float:
        segment = play(num_agents=NUM_AGENTS, num_envs=1, num_steps=1, leave=0.0, end=0.0, global_state=GLOBAL_STATE)
        rows = segment.segment
        rows.truncated[0], rows.terminated[0], rows.active[1] = is_cut_off, not is_cut_off, False
        rows.reward[...] = 0.0
        joined = learner.algorithm.prepare(rows)
        return float(learner.update(Replayed(joined, np.zeros(1, np.int64))).priorities[0])  # type: ignore[index]

    settings = {"batch_size": 1, "learning_rate": 0.0, "sequence_length": 1}
    both = [target(make_learner("qmix", **settings), is_cut_off=cut_off) for cut_off in (False, True)]
    assert abs(both[0] - both[1]) > 0.01
    assert target(make_learner("qmix", limit_ends=True, **settings), is_cut_off=True) == both[0]


def test_two_learners_go_on_alike_after_a_checkpoint() -> None:
    one, other = (make_learner("qmix", seed=seed, normalise_obs=True) for seed in (1, 2))
    for seed in range(2):
        segment = make_joined(one, seed)
        one.observe(segment, "0")
        one.update(Replayed(segment))
    other.restore(one.save())
    segment = make_joined(one, 3)
    assert one.update(Replayed(segment)).metrics == other.update(Replayed(segment)).metrics
    assert np.array_equal(parameters_of(one.policy), parameters_of(other.policy))
    mixers = [learner.networks.trained["mixer"].state_dict() for learner in (one, other)]
    assert all(torch.equal(mixers[0][name], mixers[1][name]) for name in mixers[0])


def test_what_teams_cannot_learn_from_is_refused() -> None:
    with pytest.raises(ConfigError, match="burn_in=12 leaves nothing"):
        make_learner("vdn", burn_in=12)
    algorithm = algorithm_class("vdn")
    env = EnvSpec(name="fake", obs=OBS, action=Continuous((-1.0,), (1.0,)), agents=("a", "b"))
    spec = algorithm(algorithm.Config(), num_agents=2).policy_spec(env, NetworkConfig())
    with pytest.raises(ConfigError, match="Q-learning chooses"):
        Policy(spec)
