"""The scale of returns: whatever the size of rewards, learning is the same; values keep their meaning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from synthetic_segments import make_learner, make_policy, make_segment

from ludus import data
from ludus.learn.algorithms.learner import Sample
from ludus.learn.policies.policy import Policy
from ludus.learn.policies.served import ServedPolicy
from ludus.learn.policies.value_scale import ValueScale

ALGORITHMS = ("ppo", "a2c", "impala", "appo")


def in_rewards(policy: Policy, obs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        value = policy.evaluate(torch.from_numpy(obs))[1]
        return policy.value_scale(value).numpy()


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("size", [1e6, 1e-3])
def test_rewards_of_any_size_teach_the_same(name: str, size: float) -> None:
    weights = []
    for scale in (1.0, size):
        policy = make_policy(normalise_returns=True)
        learner = make_learner(name, policy, learning_rate=1e-2)
        for seed in range(4):
            segment = make_segment(make_policy(), seed=seed)
            segment.reward *= np.float32(scale)
            learner.update(Sample(segment))
        weights.append(policy.weights())
    for key, weight in weights[0].items():
        if not key.startswith("value_scale"):
            np.testing.assert_allclose(weights[1][key], weight, rtol=2e-2, atol=2e-3, err_msg=key)
    assert weights[1]["value_scale.std"] == pytest.approx(size * weights[0]["value_scale.std"], rel=1e-2)


def test_without_the_scale_large_rewards_change_what_is_learnt() -> None:
    """What the test above would see if the scale did nothing."""
    found = []
    for scale in (1.0, 1e6):
        policy = make_policy()
        learner = make_learner("a2c", policy, learning_rate=1e-2, max_grad_norm=0.0)
        segment = make_segment(make_policy())
        segment.reward *= np.float32(scale)
        found.append(learner.update(Sample(segment)).metrics["gradient_norm"])
    assert found[1] > 1e4 * found[0]


@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_values_stay_what_they_were_when_the_scale_moves(recurrent: str) -> None:
    policy = make_policy(normalise_returns=True, recurrent=recurrent)
    scale = policy.value_scale
    scale.update(torch.tensor([[1.0, 3.0]]), torch.ones(1, 2, dtype=torch.bool), policy.model)
    obs = torch.randn(5, 4)

    def values() -> torch.Tensor:
        with torch.no_grad():
            if recurrent == "none":
                return scale(policy.evaluate(obs)[1])
            state = {name: torch.zeros(1, 6) for name in policy.initial_state(1)}
            return scale(policy.evaluate(obs.unsqueeze(1), state, torch.zeros(5, 1, dtype=torch.bool))[1])

    before = values()
    scale.update(torch.tensor([[100.0, 300.0, -50.0]]), torch.ones(1, 3, dtype=torch.bool), policy.model)
    assert float(scale.std) > 50.0
    torch.testing.assert_close(values(), before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("recurrent", ["none", "gru"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_values_that_are_right_already_have_nothing_to_learn(name: str, recurrent: str) -> None:
    """Every state is worth 10: the end of an episode gives that much, no other step gives anything."""
    policy = make_policy(normalise_returns=True, recurrent=recurrent)
    policy.value_scale.update(torch.tensor([8.0, 12.0]), torch.ones(2, dtype=torch.bool))
    policy.model.rescale_value(0.0, 0.0)  # what the network gives: 0, the mean
    segment = make_segment(policy)
    segment.reward[...] = np.where(segment.terminated, 10.0, 0.0)
    assert segment.terminated.any()
    metrics = make_learner(name, policy, gamma=1.0, num_epochs=1, minibatch_size=0).update(Sample(segment)).metrics
    assert metrics["value_loss"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_scale_follows_the_returns(name: str) -> None:
    """Rewards become a thousand times as large."""
    policy = make_policy(normalise_returns=True)
    learner = make_learner(name, policy)
    learner.update(Sample(make_segment(make_policy())))
    before = float(policy.value_scale.std)
    segment = make_segment(make_policy(), seed=1)
    segment.reward *= np.float32(1e3)
    learner.update(Sample(segment))
    assert float(policy.value_scale.std) > 100.0 * before


def test_only_active_targets_count_and_old_ones_fade() -> None:
    scale = ValueScale()
    active = torch.tensor([True, False, True])
    scale.update(torch.tensor([1.0, 1e9, 3.0]), active)
    assert (float(scale.mean), float(scale.std)) == pytest.approx((2.0, 1.0))
    for _ in range(40):
        many = torch.tensor([10.0, 14.0]).repeat(10_000)
        scale.update(many, torch.ones(20_000, dtype=torch.bool))
    assert (float(scale.mean), float(scale.std)) == pytest.approx((12.0, 2.0), rel=0.05)
    for _ in range(30):  # fewer than before
        scale.update(many + 100.0, torch.ones(20_000, dtype=torch.bool))
    assert float(scale.mean) == pytest.approx(112.0, rel=0.05)


def test_the_scale_of_batches_with_different_means_is_that_of_all_targets_together() -> None:
    scale, rng = ValueScale(), np.random.default_rng(0)
    batches = [rng.normal(10.0 * i, 1.0 + i, 30 * (i + 1)) for i in range(3)]
    for batch in batches:
        scale.update(torch.from_numpy(batch), torch.ones(len(batch), dtype=torch.bool))
    together = np.concatenate(batches)
    assert (float(scale.mean), float(scale.std)) == pytest.approx((together.mean(), together.std()))


def test_each_target_of_a_recurrent_policy_counts_once_whatever_the_number_of_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = make_policy(normalise_returns=True, recurrent="gru")
    policy.value_scale.update(torch.tensor([8.0, 12.0]), torch.ones(2, dtype=torch.bool))
    counted: list[int] = []
    monkeypatch.setattr(policy.value_scale, "update", lambda target, *_args: counted.append(target.numel()))
    make_learner("ppo", policy, num_epochs=3).update(Sample(make_segment(policy, num_steps=6, num_rows=5)))
    assert counted == [6 * 5]


def test_returns_that_are_all_alike_are_no_scale() -> None:
    """Before a first, rare reward: dividing it by a std of about 0 would blow it up."""
    scale, active = ValueScale(), torch.ones(4, dtype=torch.bool)
    for alike in (0.0, 7.0):
        scale.update(torch.full((4,), alike), active)
        assert not scale.is_known
        assert (float(scale.mean), float(scale.std)) == (0.0, 1.0)
    scale.update(torch.tensor([0.0, 0.0, 1.0, 0.0]), active)
    assert scale.is_known


def test_a_value_learns_the_returns_in_units_of_the_rewards() -> None:
    """Every step is the last of its episode and gives 5,000 or 9,000, as its observation says."""
    policy = make_policy(normalise_returns=True)
    learner = make_learner("ppo", policy, learning_rate=1e-2)
    for seed in range(60):
        segment = make_segment(make_policy(), num_steps=8, num_rows=32, seed=seed)
        segment.terminated[...], segment.truncated[...] = segment.active[:-1], False
        segment.obs[...] = np.sign(segment.obs[..., :1])
        segment.reward[...] = np.where(segment.obs[:-1, :, 0] > 0, 9000.0, 5000.0)
        learner.update(Sample(segment))
    found = in_rewards(policy, np.float32([[1, 1, 1, 1], [-1, -1, -1, -1]]))
    np.testing.assert_allclose(found, [9000.0, 5000.0], rtol=0.05)


def test_a_served_value_is_in_units_of_the_rewards() -> None:
    policy = make_policy(normalise_returns=True)
    policy.value_scale.update(torch.tensor([10.0, 30.0]), torch.ones(2, dtype=torch.bool))
    served = ServedPolicy(policy.spec)
    served.load_weights(data.decode(data.encode(policy.weights())))
    obs = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(
        served(torch.from_numpy(obs))["value"].detach().numpy(), in_rewards(policy, obs), rtol=1e-6
    )


def test_the_first_ratio_is_one_though_observations_are_normalised() -> None:
    policy = make_policy(normalise_obs=True, normalise_returns=True)
    segment = make_segment(policy, stray=0.0)
    segment.obs[...] = segment.obs * 50.0 + 20.0
    params, _ = policy.runner()(segment.obs[:-1].reshape(-1, 4), None, np.zeros(30, np.bool_))
    rng = np.random.default_rng(0)
    action, logp = policy.head.sample(params, rng)
    segment.action[...], segment.logp[...] = action.reshape(6, 5), logp.reshape(6, 5)
    metrics = make_learner("ppo", policy, num_epochs=1, minibatch_size=0).update(Sample(segment)).metrics
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6)
    assert float(policy.normaliser.mean_0[0]) > 5.0, "the next segment sees the new scale"


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala", "appo"])
def test_a_frozen_policy_is_warned_of_once(algorithm: str, caplog: pytest.LogCaptureFixture) -> None:
    """Images or state: policy and value share a body, and the value's gradient takes all that clipping leaves."""
    policy = make_policy(recurrent="gru")
    whole = {"num_epochs": 1, "minibatch_size": 0} if algorithm in ("ppo", "appo") else {}
    learner = make_learner(algorithm, policy, learning_rate=1e-4, **whole)
    for _ in range(25):
        segment = make_segment(policy, stray=0.0)
        segment.reward *= np.float32(1e6)
        learner.update(Sample(segment))
    said = [record.getMessage() for record in caplog.records if "hardly changes" in record.getMessage()]
    assert len(said) == 1
    assert "normalise_returns" in said[0]
