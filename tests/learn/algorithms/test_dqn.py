"""Whole updates of DQN and R2D2 against a slow, plain one (`q_reference.py`), and what is around them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from q_reference import FakeSpec, QReference, make_learner, make_transitions
from synthetic_segments import make_segment, parameters_of

from ludus import data
from ludus.data import nest as nests
from ludus.data.actions import Continuous, MultiDiscrete
from ludus.data.segment import Segment
from ludus.errors import ConfigError
from ludus.learn.algorithms.registry import algorithm_class
from ludus.learn.algorithms.replay_learner import Replayed, ReplayLearner
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy

# None of them is a default, and no two are the same.
SETTINGS: dict[str, Any] = {
    "batch_size": 12,
    "gamma": 0.9,
    "learning_rate": 2e-2,
    "max_grad_norm": 0.0,
    "reward_scale": 1.3,
    "adam_eps": 1e-3,
    "tau": 0.3,
    "huber": 0.7,
    "num_atoms": 6,
    "v_min": -1.1,
    "v_max": 1.7,
    "num_quantiles": 4,
    "normalise_obs": False,
    "normalise_rewards": False,
}
SEQUENCES: dict[str, Any] = {**SETTINGS, "batch_size": 5, "n_step": 2, "sequence_length": 9, "burn_in": 3, "eta": 0.6}


def compare(learner: ReplayLearner, batches: list[Any], *, weights: bool = True) -> dict[str, float]:
    """Both learn from the same batches. Returns the last metrics."""
    reference = QReference(learner)
    rng = np.random.default_rng(5)
    for number, batch in enumerate(batches):
        weight = rng.random(batch.num_rows).astype(np.float32) if weights else None
        progress = 0.25 * number
        update = learner.update(Replayed(batch, np.arange(batch.num_rows), weight), progress=progress)
        expected, priorities = reference.update(batch, weight, progress=progress)
        assert {key: update.metrics[key] for key in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert update.priorities is not None
        np.testing.assert_allclose(update.priorities, priorities, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(parameters_of(learner.policy), parameters_of(reference.policy), atol=5e-5)
        ours, theirs = (parameters_of(each) for each in (learner.networks.targets["target"], reference.target))
        np.testing.assert_allclose(ours, theirs, atol=5e-5)
    return update.metrics


def transitions(num: int = 3, **settings: Any) -> list[Any]:
    return [make_transitions(seed=seed, **settings) for seed in range(num)]


# --- DQN


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("distribution", ["none", "c51", "qr"])
def test_updates_are_those_of_the_reference(distribution: str, double: bool, has_mask: bool) -> None:
    learner = make_learner("dqn", distribution=distribution, double=double, **SETTINGS)
    compare(learner, transitions(has_mask=has_mask))


@pytest.mark.parametrize(
    "settings",
    [
        {"dueling": True},
        {"dueling": True, "distribution": "qr"},
        {"dueling": True, "max_grad_norm": 0.05},
        {"max_grad_norm": 0.05},
        {"anneal": True},
        {"target_every": 2},
        {"tau": 1.0},
        {"tau": 0.0},
        {"huber": 100.0},
        {"reward_scale": 1.0},
        {"distribution": "c51", "v_min": -0.2, "v_max": 0.3},
        {"distribution": "qr", "num_quantiles": 1},
    ],
    ids=str,
)
def test_every_setting_does_what_it_does_in_the_reference(settings: dict[str, Any]) -> None:
    metrics = compare(make_learner("dqn", **{**SETTINGS, **settings}), transitions(), weights=False)
    if "max_grad_norm" in settings:
        assert metrics["gradient_norm"] > 0.05, "nothing was clipped"


def test_ape_x_learns_as_dqn_does() -> None:
    compare(make_learner("apex", **SETTINGS), transitions())


def test_several_minibatches_are_as_many_updates() -> None:
    together, apart = make_learner("dqn", **SETTINGS), make_learner("dqn", **SETTINGS)
    batches = transitions(3)
    whole = type(batches[0])(
        **{
            name: None if value is None else np.concatenate([getattr(batch, name) for batch in batches])
            for name, value in batches[0].to_nest().items()
        }
    )
    update = together.update(Replayed(whole, np.arange(36)))
    parts = [apart.update(Replayed(batch, np.arange(12))) for batch in batches]
    assert np.array_equal(parameters_of(together.policy), parameters_of(apart.policy))
    assert np.array_equal(update.priorities, np.concatenate([part.priorities for part in parts]))
    assert update.metrics["loss"] == pytest.approx(np.mean([part.metrics["loss"] for part in parts]), rel=1e-5)
    assert together.num_gradient_steps == 3


def test_observations_are_scaled_for_both_networks_and_rewards_by_what_was_seen() -> None:
    learner = make_learner("dqn", **{**SETTINGS, "normalise_obs": True, "normalise_rewards": True})
    segment = make_segment(make_learner("dqn", **SETTINGS).policy, num_steps=20)
    segment.obs[...] = 50.0 + 4.0 * segment.obs
    learner.observe(segment, "a")
    plain = make_learner("dqn", **SETTINGS)
    normaliser = learner.policy.normaliser
    assert normaliser is not None
    for batch in transitions():
        far = copy.deepcopy(batch)
        far.obs, far.next_obs = 50.0 + 4.0 * batch.obs, 50.0 + 4.0 * batch.next_obs
        batch.obs, batch.next_obs = (normaliser(torch.from_numpy(obs)).numpy() for obs in (far.obs, far.next_obs))
        scale = learner.update(Replayed(far)).metrics["reward_scale"]
        assert scale != 1.0
        batch.reward = (batch.reward / scale).astype(np.float32)
        plain.update(Replayed(batch))
    np.testing.assert_allclose(parameters_of(learner.policy), parameters_of(plain.policy), atol=1e-5)


def test_epsilon_is_1_until_learning_starts_and_then_decays() -> None:
    learner = make_learner("dqn", min_size=100, epsilon_start=0.9, epsilon_end=0.1, epsilon_fraction=0.5)
    explore = learner.algorithm.exploration
    assert explore(99, 0.4) == (1.0,)
    assert explore(100, 0.0) == (0.9,)
    assert explore(100, 0.25) == pytest.approx((0.5,))
    assert explore(100, 0.5) == explore(10**9, 1.0) == pytest.approx((0.1,))
    learner.explore(100, 0.25)
    assert learner.policy.weights()["exploration"] == pytest.approx([0.5])
    at_once = make_learner("dqn", min_size=1, epsilon_fraction=0.0, epsilon_end=0.2).algorithm
    assert at_once.exploration(1, 0.0) == pytest.approx((0.2,))


def test_rows_of_ape_x_explore_by_powers_of_one_epsilon() -> None:
    learner = make_learner("apex", min_size=100)
    exponents = learner.algorithm.exploration_exponents(8)
    assert exponents is not None
    learner.explore(100, 0.3)
    params, _ = learner.policy.runner()(np.zeros((8, 4), np.float32))
    spread = learner.policy.head.spread_exploration(params, exponents)
    np.testing.assert_allclose(spread[:, -1], [0.4 ** (1 + 7 * row / 7) for row in range(8)], rtol=1e-5)
    assert np.array_equal(spread[:, :-1], params[:, :-1])
    assert learner.algorithm.exploration_exponents(1) == [1.0]
    assert make_learner("dqn").algorithm.exploration_exponents(8) is None


@pytest.mark.parametrize("name", ["dqn", "apex", "r2d2"])
def test_other_actions_than_single_choices_are_refused(name: str) -> None:
    algorithm = algorithm_class(name)

    class Other(FakeSpec):
        action = Continuous((-1.0,), (1.0,))

    spec: Any = Other
    with pytest.raises(ConfigError, match="sac or td3"):
        Policy(algorithm(algorithm.Config()).policy_spec(spec, NetworkConfig()))
    spec.action = MultiDiscrete((2, 3))
    with pytest.raises(ConfigError, match="single choices"):
        Policy(algorithm(algorithm.Config()).policy_spec(spec, NetworkConfig()))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("dqn", {"dueling": True, "distribution": "c51"}, "does not go with"),
        ("dqn", {"distribution": "c51", "v_min": 1.0, "v_max": 1.0}, "v_min below v_max"),
        ("r2d2", {"distribution": "qr"}, "not for r2d2"),
        ("r2d2", {"burn_in": 40, "sequence_length": 40}, "leaves nothing"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_learner(name, **settings)


# --- R2D2


def sequences(learner: ReplayLearner, num: int = 2, **settings: Any) -> list[Segment]:
    """By an older policy, from states that it had in the middle of episodes."""
    behaviour = copy.deepcopy(learner.policy)
    assert behaviour.exploration is not None
    behaviour.exploration.fill_(0.6)
    found = []
    for seed in range(num):
        segment = make_segment(behaviour, num_steps=9, num_rows=5, seed=seed, turns=0.2, **settings)
        draw = np.random.default_rng(seed).standard_normal
        segment.state = {name: draw(leaf.shape).astype(np.float32) for name, leaf in segment.state.items()}
        found.append(segment)
    return found


@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
@pytest.mark.parametrize("has_mask", [False, True])
def test_updates_from_sequences_are_those_of_the_reference(recurrent: str, has_mask: bool) -> None:
    learner = make_learner("r2d2", recurrent=recurrent, **SEQUENCES)
    found = sequences(learner, 3, has_mask=has_mask)
    for name in ("terminated", "truncated"):
        assert any(getattr(segment, name)[3:].any() for segment in found)
    compare(learner, found)


@pytest.mark.parametrize(
    "settings",
    [
        {"double": False},
        {"dueling": True},
        {"rescale": True},
        {"burn_in": 0},
        {"burn_in": 8},
        {"n_step": 1},
        {"n_step": 20},
        {"eta": 0.0},
        {"eta": 1.0},
        {"max_grad_norm": 0.05},
        {"target_every": 2},
    ],
    ids=str,
)
def test_every_setting_of_sequences_does_what_it_does_in_the_reference(settings: dict[str, Any]) -> None:
    learner = make_learner("r2d2", recurrent="gru", **{**SEQUENCES, **settings})
    compare(learner, sequences(learner), weights=False)


def test_a_sequence_is_over_where_its_last_episode_ends_and_padding_counts_for_nothing() -> None:
    def learn(junk: float) -> np.ndarray:
        learner = make_learner("r2d2", recurrent="gru", **SEQUENCES)
        (segment,) = sequences(learner, 1)
        for name in ("active", "first", "terminated", "truncated"):
            getattr(segment, name)[...] = False
        segment.active[:7] = True
        segment.truncated[6, :2], segment.terminated[6, 2:] = True, True
        segment.active[:, 4] = False  # nothing of this row counts
        segment.obs[8:] += junk
        segment.reward[7:] += junk
        segment.reward[:, 4] += junk
        segment.obs[:, 4] += junk
        reference = QReference(learner)
        update = learner.update(Replayed(segment, np.arange(5), np.ones(5, np.float32)))
        reference.update(segment)
        np.testing.assert_allclose(parameters_of(learner.policy), parameters_of(reference.policy), atol=5e-5)
        assert update.priorities is not None
        assert (update.priorities[:4] > 0.0).all()
        assert update.priorities[4] == 0.0
        return parameters_of(learner.policy)

    np.testing.assert_array_equal(learn(0.0), learn(3.0))


def test_a_network_without_state_gets_an_lstm() -> None:
    assert make_learner("r2d2").policy.spec.network.recurrent == "lstm"
    assert make_learner("r2d2", recurrent="gru").policy.spec.network.recurrent == "gru"


# --- checkpoints


@pytest.mark.parametrize(
    ("name", "settings"),
    [("dqn", {}), ("dqn", {"distribution": "c51"}), ("dqn", {"dueling": True, "target_every": 2}), ("r2d2", {})],
)
def test_a_learner_goes_on_from_a_checkpoint_bit_by_bit(name: str, settings: dict[str, Any]) -> None:
    base = SEQUENCES if name == "r2d2" else SETTINGS

    def make(seed: int) -> ReplayLearner:
        own = {**base, "normalise_obs": True, "normalise_rewards": True, **settings}
        return make_learner(name, seed=seed, recurrent="gru" if name == "r2d2" else "none", **own)

    def learn(learner: ReplayLearner, seeds: range) -> None:
        for seed in seeds:
            segment = sequences(make(3), seed + 1)[-1] if name == "r2d2" else make_segment(make(3).policy, seed=seed)
            learner.explore(2_000 * seed, seed / 10.0)
            learner.observe(segment, "a")
            batch = segment if name == "r2d2" else make_transitions(seed=seed)
            learner.update(Replayed(batch, np.arange(batch.num_rows)))

    whole, early, late = make(3), make(3), make(4)
    learn(whole, range(4))
    learn(early, range(2))
    late.restore(data.decode(data.encode(early.save())))
    learn(late, range(2, 4))
    for mine, other in zip(nests.leaves(whole.save()), nests.leaves(late.save()), strict=True):
        assert np.array_equal(mine, other)
