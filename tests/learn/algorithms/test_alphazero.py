"""AlphaZero's update against a plain one: one step of a segment after the other, and torch's own Adam."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from synthetic_segments import make_learner, make_policy, make_segment, parameters_of

from ludus.data.segment import Segment
from ludus.learn.algorithms.alphazero import AlphaZero, AlphaZeroConfig
from ludus.learn.algorithms.learner import Sample
from ludus.learn.policies.policy import Policy


def _segment(policy: Policy, seed: int) -> Segment:
    segment = make_segment(policy, num_steps=7, num_rows=5, seed=seed, has_mask=True, turns=0.3)
    drawn = np.random.default_rng(seed).random((7, 5, 3)).astype(np.float32) * segment.mask[:-1]
    segment.extra = drawn / drawn.sum(-1, keepdims=True)
    return segment


def _plain_step(policy: Policy, segment: Segment, config: AlphaZeroConfig) -> dict[str, float]:
    params, value = policy.evaluate(torch.from_numpy(segment.obs).flatten(0, 1))
    params, value = params.view(*segment.first.shape, -1), value.view(segment.first.shape)
    policy_loss, value_loss = [], []
    for t, row in np.argwhere(segment.active[:-1]):
        logits = [params[t, row, move] for move in range(3) if segment.mask[t, row, move]]
        wanted = [float(segment.extra[t, row, move]) for move in range(3) if segment.mask[t, row, move]]
        normaliser = torch.logsumexp(torch.stack(logits), 0)
        policy_loss.append(sum(w * (normaliser - logit) for w, logit in zip(wanted, logits, strict=True)))
        outcome = _return(segment, value.detach().numpy(), t, row, config.gamma)
        value_loss.append(0.5 * (value[t, row] - outcome) ** 2)
    means = {"policy_loss": torch.stack(policy_loss).mean(), "value_loss": torch.stack(value_loss).mean()}
    loss = means["policy_loss"] + config.value_coef * means["value_loss"]
    optimiser = torch.optim.Adam(policy.parameters(), lr=config.learning_rate, eps=config.adam_eps)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return {"loss": float(loss.detach()), **{name: float(mean.detach()) for name, mean in means.items()}}


def _return(segment: Segment, value: Any, t: int, row: int, gamma: float) -> float:
    """What came of the move at `t`."""
    total = float(segment.reward[t, row])
    if segment.terminated[t, row]:
        return total
    return total + _rest(segment, value, t + 1, row, gamma)


def _rest(segment: Segment, value: Any, t: int, row: int, gamma: float) -> float:
    if t == segment.num_steps:
        return gamma * float(value[t, row])
    if segment.active[t, row]:
        return gamma * _return(segment, value, t, row, gamma)
    is_end = segment.terminated[t, row] or segment.truncated[t, row]
    if segment.first[t + 1, row] and not is_end:  # this is the final observation
        return gamma * float(value[t, row])
    return _return(segment, value, t, row, gamma)  # it is another's turn


@pytest.mark.parametrize("settings", [{"gamma": 1.0}, {"gamma": 0.9, "value_coef": 0.3}], ids=str)
def test_an_update_is_that_of_a_plain_one(settings: dict[str, float]) -> None:
    whole = {"num_epochs": 1, "minibatch_size": 0, "learning_rate": 2e-2, "adam_eps": 1e-3, "max_grad_norm": 0.0}
    policy, plain = make_policy(), make_policy()
    learner = make_learner("alphazero", policy, **whole, **settings)
    segment = _segment(policy, seed=3)
    assert segment.terminated.any()
    metrics = learner.update(Sample(segment)).metrics
    expected = _plain_step(plain, segment, learner.algorithm.config)
    assert {key: metrics[key] for key in expected} == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(parameters_of(policy), parameters_of(plain), atol=5e-5)


def test_nothing_is_left_to_learn_of_a_search_that_finds_what_the_network_says() -> None:
    policy = make_policy()
    segment = _segment(policy, seed=1)
    logits = policy.runner()(segment.obs[:-1].reshape(35, -1))[0].reshape(7, 5, 3)
    logits = np.where(segment.mask[:-1], logits, -np.inf)
    segment.extra = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    metrics = make_learner("alphazero", policy, num_epochs=1, minibatch_size=0).update(Sample(segment)).metrics
    assert metrics["search_kl"] == pytest.approx(0.0, abs=1e-6)


def test_lambda_is_that_of_its_settings() -> None:
    losses = [
        make_learner("alphazero", make_policy(), num_epochs=1, minibatch_size=0, lam=lam)
        .update(Sample(_segment(make_policy(), seed=3)))
        .metrics["value_loss"]
        for lam in (0.0, 1.0)
    ]
    assert abs(losses[0] - losses[1]) > 0.01


def test_its_search_is_that_of_its_settings() -> None:
    gumbel = AlphaZero(AlphaZeroConfig(simulations=7, considered=3, exploration=2.0)).search()
    assert (gumbel.simulations, gumbel.considered, gumbel.exploration, gumbel.gumbel) == (7, 3, 2.0, True)
    plain = AlphaZero(AlphaZeroConfig(gumbel=False, noise=0.4, noise_alpha=0.3, temperature=0.5)).search()
    assert (plain.noise, plain.noise_alpha, plain.temperature, plain.gumbel) == (0.4, 0.3, 0.5, False)
