"""Heads whose exploration an algorithm sets: SAC's Gaussian and choices, TD3's noisy action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions as reference

from ludus.data.actions import Continuous, Discrete
from ludus.errors import ConfigError, DataError
from ludus.learn.ops.distributions import ExploredCategorical, NoisyTanh, TanhGaussian, named_head

torch.set_num_threads(1)

BOX = Continuous((-2.0, 0.0), (2.0, 5.0))
LOW, HIGH = np.float32(BOX.low), np.float32(BOX.high)


def gaussian_params(num_rows: int, *explore: float) -> Any:
    rng = np.random.default_rng(1)
    return np.concatenate(
        [rng.standard_normal((num_rows, 4)), np.broadcast_to(explore, (num_rows, len(explore)))], axis=1
    ).astype(np.float32)


def test_samples_have_the_log_probability_and_the_gradient_of_torchs_own_distribution() -> None:
    head = TanhGaussian(BOX)
    outputs = torch.randn(50, 4, requires_grad=True)
    with torch.no_grad():
        outputs[0, 2:] = 3.0  # beyond the largest log std: it gets no gradient
    noise = torch.empty(50, 2).normal_(generator=torch.Generator().manual_seed(5))
    unit, logp = head.rsample(outputs, torch.Generator().manual_seed(5))
    mean, log_std = outputs.double().chunk(2, -1)
    normal = reference.Normal(mean, log_std.clamp(-20.0, 2.0).exp())
    squashed = reference.TransformedDistribution(normal, [reference.TanhTransform(cache_size=1)])
    expected = torch.tanh(normal.mean + normal.stddev * noise.double())
    torch.testing.assert_close(unit.double(), expected, atol=1e-5, rtol=1e-5)
    inside = expected.abs().amax(-1) < 0.9999  # elsewhere theirs is less exact than ours
    assert inside.sum() > 20
    of_theirs = squashed.log_prob(expected).sum(-1)
    torch.testing.assert_close(logp.double()[inside], of_theirs[inside], atol=1e-4, rtol=1e-4)
    weighed, weighed_logp = torch.randn(50, 2), torch.randn(50)
    (ours,) = torch.autograd.grad((unit * weighed).sum() + (logp * weighed_logp).sum(), outputs)
    u = normal.mean + normal.stddev * noise.double()
    theirs = normal.log_prob(u) - 2.0 * (np.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))
    total = (torch.tanh(u) * weighed).sum() + (theirs.sum(-1) * weighed_logp).sum()
    (expected,) = torch.autograd.grad(total, outputs)
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=1e-3)
    assert not ours[0, 2:].any()


def test_a_sample_far_out_is_finite() -> None:
    head = TanhGaussian(BOX)
    outputs = torch.tensor([[40.0, -40.0, 2.0, -20.0]], requires_grad=True)
    unit, logp = head.rsample(outputs, None)
    (logp.sum() + unit.sum()).backward()
    assert torch.isfinite(logp).all()
    assert outputs.grad is not None
    assert torch.isfinite(outputs.grad).all()


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_log_probability_of_an_action_is_that_of_the_mixture(share: float) -> None:
    head = TanhGaussian(BOX)
    params = gaussian_params(2_000, share, 0.0)
    action, logp = head.sample(params, np.random.default_rng(0))
    assert ((action >= LOW) & (action <= HIGH)).all()
    assert action.dtype == np.float32
    again = head.logp(torch.from_numpy(params), torch.from_numpy(action))
    np.testing.assert_allclose(again.numpy(), logp, atol=2e-3)
    if share == 1.0:
        np.testing.assert_allclose(logp, -np.log(20.0), atol=1e-5)
    grid = np.stack(np.meshgrid(*(np.linspace(low, high, 401)[:-1] for low, high in zip(LOW, HIGH, strict=True))), -1)
    grid = grid.reshape(-1, 2).astype(np.float32) + np.float32([0.005, 0.00625])
    one = torch.from_numpy(np.broadcast_to(params[:1], (len(grid), 6)).copy())
    density = head.logp(one, torch.from_numpy(grid)).exp().numpy()
    assert density.mean() * 20.0 == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("name", ["tanh_gaussian", "noisy_tanh"])
def test_the_greedy_action_is_the_squashed_mean(name: str) -> None:
    head: Any = named_head(name, BOX)
    params = np.zeros((3, head.num_params), np.float32)
    params[:, :2] = [[0.0, 0.0], [9.0, -9.0], [0.5, 0.2]]
    params[:, head.num_outputs] = 1.0  # exploring changes nothing
    action, logp = head.choose(params, np.random.default_rng(0), greedy=True)
    expected = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.tanh(params[:, :2])
    np.testing.assert_allclose(action, expected, atol=1e-5)
    assert not logp.any()


def test_noise_is_gaussian_and_clipped_at_the_bounds() -> None:
    head = NoisyTanh(BOX)
    params = np.broadcast_to(np.float32([0.0, 4.0, 0.0, 0.0, 0.3]), (20_000, 5))
    action, _ = head.sample(params, np.random.default_rng(0))
    unit = (action - (LOW + HIGH) / 2) / ((HIGH - LOW) / 2)
    assert unit[:, 0].mean() == pytest.approx(0.0, abs=0.01)
    assert unit[:, 0].std() == pytest.approx(0.3, abs=0.01)
    assert unit.max() == 1.0
    assert (unit[:, 1] == 1.0).mean() == pytest.approx(0.5, abs=0.02)
    still, _ = head.sample(params * np.float32([1, 1, 1, 1, 0]), np.random.default_rng(0))
    assert np.array_equal(still, head.mode(params))
    tensors = torch.from_numpy(params[:3].copy())
    assert not torch.stack([*head.logp_and_entropy(tensors, None), head.kl(tensors, tensors)]).any()


@pytest.mark.parametrize("name", ["tanh_gaussian", "noisy_tanh"])
def test_random_actions_are_uniform_and_held_by_their_key(name: str) -> None:
    head: Any = named_head(name, BOX)

    def draw(key: float, seed: int) -> Any:
        params = np.zeros((5_000, head.num_params), np.float32)
        params[:, head.num_outputs] = 1.0
        params[:, head.num_outputs + 1] = key
        return head.sample(params, np.random.default_rng(seed))[0]

    new = draw(0.0, 1)
    np.testing.assert_allclose(new.mean(0), (LOW + HIGH) / 2, atol=0.1)
    np.testing.assert_allclose(new.std(0), (HIGH - LOW) / np.sqrt(12.0), rtol=0.03)
    assert np.abs(np.corrcoef(new.T)[0, 1]) < 0.05
    assert not np.array_equal(new, draw(0.0, 2))
    assert np.array_equal(draw(7.0, 1), draw(7.0, 2))
    assert not np.array_equal(draw(7.0, 1), draw(8.0, 1))


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_choices_come_as_often_as_their_log_probability_says(share: float, has_mask: bool) -> None:
    head = ExploredCategorical(Discrete(4))
    params = np.broadcast_to(np.float32([0.5, -1.0, 2.0, 0.0, share, 0.0]), (40_000, 6))
    mask = np.broadcast_to([True, True, False, True], (40_000, 4)) if has_mask else None
    action, logp = head.sample(params, np.random.default_rng(0), mask)
    expected = np.exp(params[0, :4]) * (mask[0] if mask is not None else 1.0)
    allowed = 3 if has_mask else 4
    expected = share / allowed * (expected > 0) + (1.0 - share) * expected / expected.sum()
    np.testing.assert_allclose(np.bincount(action, minlength=4) / 40_000, expected, atol=0.01)
    np.testing.assert_allclose(np.exp(logp), expected[action], atol=1e-5)
    tensors = [None if each is None else torch.from_numpy(each.copy()) for each in (params, action, mask)]
    np.testing.assert_allclose(head.logp(*tensors).numpy(), logp, atol=1e-5)
    assert set(head.mode(params, mask).tolist()) == ({0} if has_mask else {2})


def test_entropy_and_kl_of_choices_are_those_of_the_logits() -> None:
    head = ExploredCategorical(Discrete(3))
    params = torch.randn(5, 5)
    params[:, 3:] = 0.5
    other = params + torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
    ours, theirs = (reference.Categorical(logits=each[:, :3]) for each in (params, other))
    action = torch.zeros(5, dtype=torch.int64)
    torch.testing.assert_close(head.entropy(params), ours.entropy())
    torch.testing.assert_close(head.logp_and_entropy(params, action)[1], ours.entropy())
    torch.testing.assert_close(head.kl(params, other), reference.kl_divergence(ours, theirs))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'noisy_tanh'"):
        named_head("noisy_tan", BOX)
    with pytest.raises(ConfigError, match="continuous ones are needed"):
        named_head("noisy_tanh", Discrete(2))
    with pytest.raises(ConfigError, match="no bounds"):
        named_head("tanh_gaussian", Continuous((-np.inf,), (np.inf,)))
    with pytest.raises(DataError, match="last should be 4"):
        TanhGaussian(BOX).rsample(torch.zeros(3, 5), None)
    with pytest.raises(DataError, match="last should be 6"):
        TanhGaussian(BOX).mode(np.zeros((3, 4), np.float32))
