"""Parameters in one tensor: the module does not notice, and nobody is left out."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from synthetic_segments import make_policy
from torch import nn

from ludus.data.actions import Discrete
from ludus.data.spec import ArraySpec
from ludus.learn.algorithms.optimiser import FlatParameters
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec


def test_the_module_works_as_before_and_its_gradients_are_the_same() -> None:
    plain = make_policy(recurrent="lstm")
    flat_one = copy.deepcopy(plain)
    flat = FlatParameters(flat_one)
    obs, state = torch.randn(3, 2, 4), {name: torch.zeros(2, 6) for name in plain.initial_state(1)}
    first = torch.zeros(3, 2, dtype=torch.bool)
    for policy in (plain, flat_one):
        params, value = policy.evaluate(obs, state, first)
        (params.sum() + value.square().sum()).backward()
    assert flat.data.numel() == sum(parameter.numel() for parameter in plain.parameters())
    for mine, theirs in zip(flat_one.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert torch.equal(mine.grad, theirs.grad)
    assert torch.equal(flat.grad, torch.cat([p.grad.flatten() for p in plain.parameters()]))


def test_weights_that_lie_channels_last_stay_so() -> None:
    module = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    plain, strides = copy.deepcopy(module), module.weight.stride()
    flat = FlatParameters(module)
    assert module.weight.stride() == strides
    assert module.weight.grad.stride() == strides
    assert module.weight.is_contiguous(memory_format=torch.channels_last)
    images = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    for one in (module, plain):
        one(images).square().sum().backward()
    torch.testing.assert_close(module.weight.grad, plain.weight.grad)
    flat.data.mul_(2.0)
    assert torch.equal(module.weight, 2.0 * plain.weight)


def test_moving_the_tensor_moves_the_network_that_chooses_actions() -> None:
    policy = make_policy()
    runner = policy.runner()
    flat = FlatParameters(policy)
    obs, first = np.ones((2, 4), np.float32), np.zeros(2, np.bool_)
    before, _ = runner(obs, None, first)
    flat.data.add_(0.1)
    after, _ = runner(obs, None, first)
    assert not np.allclose(before, after)
    expected, _ = policy.evaluate(torch.from_numpy(obs))
    np.testing.assert_allclose(after, expected.detach().numpy(), atol=1e-5)


def test_weights_of_images_survive_saving_and_loading_in_their_layout() -> None:
    spec = PolicySpec(
        obs=ArraySpec((36, 36, 3), np.uint8), action=Discrete(2), network=NetworkConfig(encoder="nature", hidden=(8,))
    )
    policy, other = Policy(spec, seed=1), Policy(spec, seed=2)
    FlatParameters(policy)
    FlatParameters(other)
    other.load_weights(policy.weights())
    obs = torch.randint(0, 255, (2, 36, 36, 3), dtype=torch.uint8)
    for mine, theirs in zip(policy.evaluate(obs), other.evaluate(obs), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(("max_norm", "expected"), [(0.5, 0.5), (0.0, 5.0), (50.0, 5.0)])
def test_gradients_are_shortened_to_the_norm_that_is_allowed(max_norm: float, expected: float) -> None:
    flat = FlatParameters(nn.Linear(1, 1))
    flat.grad.copy_(torch.tensor([3.0, 4.0]))
    assert float(flat.clip_(max_norm)) == pytest.approx(5.0)
    assert float(flat.grad.norm()) == pytest.approx(expected, rel=1e-5)


def test_the_towers_of_policy_and_value_are_clipped_apart() -> None:
    policy = make_policy()
    stacked, value_only = policy.model.towers()
    flat = FlatParameters(policy, stacked=stacked, value_only=value_only)
    flat.grad.fill_(1e-3)
    for parameter in stacked:
        parameter.grad[1] = 1e6
    for parameter in value_only:
        parameter.grad.fill_(1e6)
    norm = flat.clip_(0.5)
    assert norm > 1e6
    of_policy = [parameter.grad[0] for parameter in stacked] + [
        policy.model.policy_weight.grad,
        policy.model.policy_bias.grad,
    ]
    assert all(torch.equal(gradient, torch.full_like(gradient, 1e-3)) for gradient in of_policy)
    of_value = torch.cat(
        [parameter.grad[1].flatten() for parameter in stacked] + [p.grad.flatten() for p in value_only]
    )
    assert float(of_value.norm()) == pytest.approx(0.5, rel=1e-4)


def test_a_long_gradient_of_the_policy_leaves_the_value_its_own() -> None:
    spec = PolicySpec(obs={"a": ArraySpec((3,), np.float32)}, action=Discrete(2), network=NetworkConfig(hidden=(8,)))
    policy = Policy(spec)
    stacked, value_only = policy.model.towers()
    assert not stacked
    flat = FlatParameters(policy, stacked=stacked, value_only=value_only)
    flat.grad.fill_(1e3)
    for parameter in value_only:
        parameter.grad.fill_(1e-3)
    flat.clip_(0.5)
    assert all(torch.equal(p.grad, torch.full_like(p.grad, 1e-3)) for p in value_only)
    assert float(flat.grad.norm()) == pytest.approx(0.5, rel=1e-2)


def test_a_runner_that_was_used_before_its_parameters_moved_follows_them() -> None:
    policy = make_policy()
    runner = policy.runner()
    obs, first = np.ones((2, 4), np.float32), np.zeros(2, np.bool_)
    before, _ = runner(obs, None, first)
    flat = FlatParameters(policy)
    assert np.array_equal(runner(obs, None, first)[0], before)
    flat.data.add_(0.1)
    expected, _ = policy.evaluate(torch.from_numpy(obs))
    np.testing.assert_allclose(runner(obs, None, first)[0], expected.detach().numpy(), atol=1e-5)
