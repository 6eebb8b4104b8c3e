"""Policies: what is chosen with is what is learnt from."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from ludus.data import nest as nests
from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.data.spec import ArraySpec
from ludus.errors import DataError
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.normaliser import Normaliser
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.learn.policies.runner import NumpyRunner, TorchRunner

torch.set_num_threads(1)
VECTOR = ArraySpec((4,), np.float32)


def make(seed: int = 1, **settings: Any) -> Policy:
    return Policy(PolicySpec(**{"obs": VECTOR, "action": Discrete(3), **settings}), seed=seed)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("action", [Discrete(3), MultiDiscrete((2, 3)), Continuous((-1.0, -1.0), (1.0, 1.0))])
@pytest.mark.parametrize("num_rows", [1, 64, 513])
def test_the_runner_gives_what_the_learner_sees(activation: str, action: Any, num_rows: int) -> None:
    policy = make(action=action, network=NetworkConfig(hidden=(16, 8), activation=activation))
    runner = policy.runner()
    assert isinstance(runner, NumpyRunner)
    obs = np.random.default_rng(0).standard_normal((num_rows, 4)).astype(np.float32)
    params, state = runner(obs, None, np.zeros(num_rows, np.bool_))
    expected, _ = policy.evaluate(torch.from_numpy(obs))
    assert state is None
    np.testing.assert_allclose(params, expected.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_step_by_step_state_is_that_of_whole_sequences(kind: str) -> None:
    policy = make(network=NetworkConfig(hidden=(8,), recurrent=kind, recurrent_size=6))
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((7, 3, 4)).astype(np.float32)
    first = rng.random((7, 3)) < 0.3
    runner, state = policy.runner(), policy.initial_state(3)
    started = nests.map(np.copy, state)
    steps = []
    for step in range(7):
        params, state = runner(obs[step], state, first[step])
        steps.append(params)
    whole, _ = policy.evaluate(torch.from_numpy(obs), nests.map(torch.from_numpy, started), torch.from_numpy(first))
    np.testing.assert_allclose(np.stack(steps), whole.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("greedy", [False, True])
def test_to_act_is_a_forward_pass_and_a_choice(greedy: bool) -> None:
    policy = make(network=NetworkConfig(hidden=(8,), recurrent="gru", recurrent_size=6))
    obs, first = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32), np.ones(5, np.bool_)
    mask = np.array([[True, False, True]] * 5)
    action, logp, state = policy.act(obs, policy.initial_state(5), first, np.random.default_rng(3), mask, greedy=greedy)
    params, after = policy.runner()(obs, policy.initial_state(5), first)
    expected = policy.head.choose(params, np.random.default_rng(3), mask, greedy=greedy)
    assert np.array_equal(action, expected[0])
    assert np.array_equal(logp, expected[1])
    assert all(nests.leaves(nests.map(np.array_equal, state, after)))


def test_a_copy_acts_by_its_own_weights() -> None:
    policy = make()
    obs, first, rng = np.ones((1, 4), np.float32), np.zeros(1, np.bool_), np.random.default_rng(0)
    policy.act(obs, None, first, rng, greedy=True)
    other = copy.deepcopy(policy)
    for choice in range(3):
        with torch.no_grad():
            other.model.policy_bias.copy_(100.0 * torch.eye(3)[choice])
        assert other.act(obs, None, first, rng, greedy=True)[0].tolist() == [choice]


def test_the_seed_decides_the_weights_and_torchs_own_state_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = make(seed=1), make(seed=1), make(seed=2)
    assert torch.equal(torch.rand(1), expected)
    assert all(np.array_equal(one.weights()[name], same.weights()[name]) for name in one.weights())
    assert any(not np.array_equal(one.weights()[name], other.weights()[name]) for name in one.weights())


def test_weights_are_copies_and_those_of_another_network_are_refused() -> None:
    policy = make()
    kept = policy.weights()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1.0)
    assert not np.array_equal(kept["model.policy_bias"], policy.weights()["model.policy_bias"])
    policy.load_weights(kept)
    assert np.array_equal(kept["model.policy_bias"], policy.weights()["model.policy_bias"])
    with pytest.raises(DataError, match="of another network"):
        policy.load_weights(make(network=NetworkConfig(hidden=(8, 8, 8))).weights())
    with pytest.raises(DataError, match="they must be"):
        policy.load_weights(make(network=NetworkConfig(hidden=(8, 8))).weights())


def test_normalised_observations_have_mean_0_and_std_1_of_all_that_was_seen() -> None:
    policy = make(normalise_obs=True)
    rng = np.random.default_rng(0)
    batches = [rng.normal(3.0 + i, 0.5 + i, (5 * (i + 1), 2, 4)).astype(np.float32) for i in range(4)]
    for batch in batches:
        policy.normaliser.update(torch.from_numpy(batch))
    seen = np.concatenate([batch.reshape(-1, 4) for batch in batches])
    expected = np.clip((seen - seen.mean(0)) / seen.std(0), -10, 10)
    np.testing.assert_allclose(policy.normaliser(torch.from_numpy(seen)).numpy(), expected, atol=1e-3)
    assert float(policy.normaliser.count) == len(seen)
    quick, slow, first = policy.runner(), TorchRunner(policy), np.zeros(len(seen), np.bool_)
    assert isinstance(quick, NumpyRunner)
    np.testing.assert_allclose(quick(seen, None, first)[0], slow(seen, None, first)[0], atol=1e-5)


def test_values_alone_are_those_of_an_evaluation_of_the_same_normalised_observations() -> None:
    policy = make(normalise_obs=True)
    obs = torch.from_numpy(np.random.default_rng(0).normal(20.0, 5.0, (50, 4)).astype(np.float32))
    policy.normaliser.update(obs)
    with torch.no_grad():
        torch.testing.assert_close(policy.values(obs), policy.evaluate(obs)[1])


def test_observations_far_from_0_are_scaled_by_how_far_they_are_from_each_other() -> None:
    policy = make(normalise_obs=True)
    seen = torch.from_numpy(np.random.default_rng(0).normal(1e4, 1.0, (2_000, 4)).astype(np.float32))
    policy.normaliser.update(seen)
    np.testing.assert_allclose(policy.normaliser(seen).std(0).numpy(), 1.0, atol=0.01)


def test_normalisation_is_part_of_the_weights_and_leaves_bounded_integers_alone() -> None:
    obs = {"image": ArraySpec((4,), np.uint8, 0, 15), "speed": ArraySpec((2,), np.float32)}
    policy, other = make(obs=obs, normalise_obs=True), make(obs=obs, normalise_obs=True, seed=9)
    seen = {"image": torch.full((6, 4), 7, dtype=torch.uint8), "speed": torch.arange(12.0).view(6, 2)}
    policy.normaliser.update(seen)
    scaled = policy.normaliser(seen)
    assert torch.equal(scaled["image"], seen["image"])
    assert abs(float(scaled["speed"].mean())) < 1e-5
    other.load_weights(policy.weights())
    assert torch.equal(other.normaliser(seen)["speed"], scaled["speed"])


def test_integers_that_only_their_dtype_bounds_are_normalised_grids_as_a_whole_and_vectors_by_entry() -> None:
    obs = {"codes": ArraySpec((7, 7, 3), np.uint8, 0, 255), "counts": ArraySpec((2,), np.int64)}
    policy = make(obs=obs, normalise_obs=True)
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 11, (5 * (i + 1), 2, 7, 7, 3), np.uint8) for i in range(3)]  # as MiniGrid has them
    counts = [rng.integers((0, 1000), (4, 9000), (5 * (i + 1), 2, 2)) for i in range(3)]
    for some_codes, some_counts in zip(codes, counts, strict=True):
        policy.normaliser.update({"codes": torch.from_numpy(some_codes), "counts": torch.from_numpy(some_counts)})
    flat = {"codes": np.concatenate([some.reshape(-1, 7, 7, 3) for some in codes]),
            "counts": np.concatenate([some.reshape(-1, 2) for some in counts])}  # fmt: skip
    scaled = policy.normaliser(nests.map(torch.from_numpy, flat))
    expected = (flat["codes"] - flat["codes"].mean()) / flat["codes"].std()
    np.testing.assert_allclose(scaled["codes"].numpy(), expected, atol=1e-3)
    expected = (flat["counts"] - flat["counts"].mean(0)) / flat["counts"].std(0)
    np.testing.assert_allclose(scaled["counts"].numpy(), expected, atol=1e-3)
    first, second = (
        policy.model.encoder.readers[0](leaf)  # what is normalised is not scaled by 255 once more
        for leaf in (scaled["codes"], torch.from_numpy(flat["codes"]))
    )
    np.testing.assert_allclose(first.numpy(), scaled["codes"].numpy().reshape(len(first), -1))
    assert float(second.max()) < 0.04


def test_a_users_model_is_given_integers_as_they_are() -> None:
    obs = ArraySpec((2,), np.int64)
    normaliser = Normaliser(obs, NetworkConfig(model="mine.py:build"))
    seen = torch.arange(12).view(6, 2)
    normaliser.update(seen)
    assert normaliser(seen) is seen


@pytest.mark.parametrize(
    "obs",
    [
        ArraySpec((), np.int64, 0, 15),
        {"nothing": ArraySpec((0,), np.float32), "dial": ArraySpec((2,), np.int64, 0, 1000)},
    ],
)
def test_with_nothing_to_normalise_observations_are_left_as_they_are(obs: Any) -> None:
    policy = make(obs=obs, normalise_obs=True)
    seen = nests.map(torch.from_numpy, nests.allocate(obs, (6, 2)))
    policy.normaliser.update(seen)
    for before, after in zip(nests.leaves(seen), nests.leaves(policy.normaliser(seen)), strict=True):
        assert torch.equal(before, after)


def test_what_is_far_from_all_that_was_seen_is_clipped() -> None:
    policy = make(normalise_obs=True)
    policy.normaliser.update(torch.from_numpy(np.random.default_rng(0).normal(2.0, 3.0, (50, 4)).astype(np.float32)))
    far = torch.tensor([[1e6, -1e6, 2.0, 1e30]])
    scaled = policy.normaliser(far)[0].tolist()
    assert (scaled[0], scaled[1], scaled[3]) == (10.0, -10.0, 10.0)
    assert abs(scaled[2]) < 1.0
