"""Heads of Q-values: how they choose, with which probability, and what they take for Q-values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.errors import ConfigError, DataError
from ludus.learn.ops.distributions import (
    CategoricalReturns,
    EpsilonGreedy,
    QuantileReturns,
    head_for,
    named_head,
)

HEADS: dict[str, Any] = {
    "epsilon_greedy": {},
    "categorical_returns": {"num_atoms": 5, "v_min": -1.0, "v_max": 3.0},
    "quantile_returns": {"num_quantiles": 3},
}
every_head = pytest.mark.parametrize("name", sorted(HEADS))


def make(name: str, num_choices: int = 4) -> EpsilonGreedy:
    head = named_head(name, Discrete(num_choices), **HEADS[name])
    assert isinstance(head, EpsilonGreedy)
    return head


def some_params(head: EpsilonGreedy, num_rows: int, epsilon: Any, seed: int = 0) -> np.ndarray:
    params = np.random.default_rng(seed).standard_normal((num_rows, head.num_params)).astype(np.float32)
    params[:, -1] = epsilon
    return params


def some_mask(num_rows: int, num_choices: int = 4) -> np.ndarray:
    rng = np.random.default_rng(1)
    mask = rng.random((num_rows, num_choices)) < 0.5
    mask[np.arange(num_rows), rng.integers(num_choices, size=num_rows)] = True
    return mask


def test_heads_have_names() -> None:
    assert [type(make(name)) for name in HEADS] == [EpsilonGreedy, CategoricalReturns, QuantileReturns]
    assert [(make(name).num_outputs, make(name).num_params) for name in HEADS] == [(4, 5), (20, 21), (12, 13)]
    with pytest.raises(ConfigError, match="Did you mean 'epsilon_greedy'"):
        named_head("epsilon-greedy", Discrete(2))


def test_only_single_choices_have_q_values() -> None:
    with pytest.raises(ConfigError, match=r"Use sac or td3\."):
        EpsilonGreedy(Continuous((-1.0,), (1.0,)))
    with pytest.raises(ConfigError, match=r"Use ppo\."):
        EpsilonGreedy(MultiDiscrete((2, 2)))


def test_q_values_are_the_means_of_what_is_known_of_returns() -> None:
    q = np.float32([[1.0, -2.0, 0.5, 0.0]])
    assert np.array_equal(make("epsilon_greedy").q_values(q), q)
    quantiles = np.float32([[1, 2, 6, 0, 0, 0, -1, -2, -3, 4, 4, 4]])
    for kind in (np.asarray, torch.from_numpy):
        assert make("quantile_returns").q_values(kind(quantiles)).tolist() == [[3.0, 0.0, -2.0, 4.0]]
    logits = np.full((1, 20), -100.0, np.float32)
    logits[0, [0, 5 + 2, 10 + 4]] = 100.0  # all on the atoms -1, 1 and 3; the last choice is even over all
    for kind in (np.asarray, torch.from_numpy):
        found = np.asarray(make("categorical_returns").q_values(kind(logits)))
        np.testing.assert_allclose(found, [[-1.0, 1.0, 3.0, 1.0]], atol=1e-6)


@every_head
def test_the_mode_is_the_best_that_is_allowed_and_the_same_in_torch(name: str) -> None:
    head = make(name)
    params = some_params(head, 50, 0.9)
    for mask in (None, some_mask(50)):
        q = np.asarray(head.q_values(params[:, :-1]))
        allowed = np.ones((50, 4), np.bool_) if mask is None else mask
        expected = [max(np.flatnonzero(allowed[row]), key=lambda choice: q[row, choice]) for row in range(50)]
        assert head.mode(params, mask).tolist() == expected
        outputs = torch.from_numpy(params[:, :-1])
        assert head.best(outputs, None if mask is None else torch.from_numpy(mask)).tolist() == expected
        action, logp = head.choose(params, np.random.default_rng(0), mask, greedy=True)
        assert action.tolist() == expected
        assert not logp.any()


@every_head
@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_choices_are_drawn_as_often_as_their_log_probability_says(name: str, has_mask: bool, epsilon: float) -> None:
    head, num = make(name), 20_000
    params = np.repeat(some_params(head, 1, epsilon), num, axis=0)
    mask = np.repeat(np.array([[True, False, True, True]]), num, axis=0) if has_mask else None
    action, logp = head.sample(params, np.random.default_rng(3), mask)
    again, _ = head.sample(params, np.random.default_rng(3), mask)
    assert np.array_equal(action, again)
    assert (action.dtype, logp.dtype) == (np.int64, np.float32)
    tensors = [None if each is None else torch.from_numpy(each) for each in (params, action, mask)]
    np.testing.assert_allclose(head.logp(*tensors).numpy(), logp, atol=1e-6)
    shares = np.bincount(action, minlength=4) / num
    num_allowed, best = (3 if has_mask else 4), int(head.mode(params[:1], None if mask is None else mask[:1])[0])
    expected = np.full(4, epsilon / num_allowed)
    if has_mask:
        expected[1] = 0.0
    expected[best] += 1.0 - epsilon
    assert np.abs(shares - expected).max() < 4.0 * np.sqrt(0.25 / num)
    assert (shares[expected == 0.0] == 0.0).all()
    np.testing.assert_allclose(np.exp(logp), expected[action], atol=1e-6)


@pytest.mark.parametrize("has_mask", [False, True])
def test_entropy_and_kl_are_those_of_the_probabilities(has_mask: bool) -> None:
    head = make("epsilon_greedy")
    mask = torch.from_numpy(some_mask(30)) if has_mask else None
    old, new = (torch.from_numpy(some_params(head, 30, eps, seed)) for seed, eps in ((0, 0.3), (1, 0.6)))

    def probs(params: torch.Tensor) -> torch.Tensor:
        choices = torch.arange(4).expand(30, 4)
        many = [head.logp(params, choices[:, number], mask).exp() for number in range(4)]
        return torch.stack(many, -1)

    p, q = probs(old), probs(new)
    assert torch.allclose(p.sum(-1), torch.ones(30))
    entropy = torch.tensor([-sum(float(x) * np.log(float(x)) for x in row if x > 0) for row in p])
    torch.testing.assert_close(head.entropy(old, mask), entropy.float())
    kl = torch.tensor(
        [
            sum(float(x) * np.log(float(x) / float(y)) for x, y in zip(*rows, strict=True) if x > 0)
            for rows in zip(p, q, strict=True)
        ]
    )
    torch.testing.assert_close(head.kl(old, new, mask), kl.float())
    assert not head.kl(old, old, mask).abs().max() > 1e-6
    logp, again = head.logp_and_entropy(old, torch.zeros(30, dtype=torch.int64), mask)
    torch.testing.assert_close(again, head.entropy(old, mask))
    torch.testing.assert_close(logp.exp(), p[:, 0])


def test_a_deterministic_policy_has_no_entropy_and_is_infinitely_far_from_what_it_never_does() -> None:
    head = make("epsilon_greedy")
    params = torch.from_numpy(some_params(head, 3, 0.0))
    assert head.entropy(params).tolist() == [0.0] * 3
    other = -params
    assert head.kl(params, params).tolist() == [0.0] * 3
    assert torch.isinf(head.kl(params, other)).all()


@every_head
def test_rows_explore_by_their_own_powers_of_epsilon(name: str) -> None:
    head = make(name)
    params = some_params(head, 3, [0.4, 0.4, 1.0])
    spread = head.spread_exploration(params, np.float32([1.0, 8.0, 5.0]))
    np.testing.assert_allclose(spread[:, -1], [0.4, 0.4**8, 1.0], rtol=1e-6)
    assert np.array_equal(spread[:, :-1], params[:, :-1])
    assert params[1, -1] == np.float32(0.4), "the parameters that were given are not changed"


def test_heads_without_such_a_number_explore_as_before() -> None:
    params = np.ones((2, 3), np.float32)
    assert head_for(Discrete(3)).spread_exploration(params, np.float32([1.0, 8.0])) is params


@every_head
def test_parameters_of_another_head_are_refused(name: str) -> None:
    head = make(name)
    with pytest.raises(DataError, match=str(head.num_params)):
        head.mode(np.zeros((2, head.num_params + 1), np.float32))
    with pytest.raises(DataError, match=str(head.num_params)):
        head.entropy(torch.zeros(2, head.num_params - 1))
