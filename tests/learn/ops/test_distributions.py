"""Distributions agree with torch's own, and their two halves with each other."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributions as reference

from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.errors import ConfigError, DataError
from ludus.learn.ops.distributions import (
    Categorical,
    DiagGaussian,
    Head,
    MultiCategorical,
    SquashedGaussian,
    head_for,
)

torch.set_num_threads(1)

BOX = Continuous((-2.0, 0.0, -1.0), (2.0, 5.0, 1.0))
ACTIONS = {
    "discrete": (Discrete(5), False),
    "multi": (MultiDiscrete((2, 5, 3)), False),
    "gaussian": (BOX, False),
    "squashed": (BOX, True),
}
every_kind = pytest.mark.parametrize("kind", sorted(ACTIONS))


def make(kind: str) -> Head:
    action, squash = ACTIONS[kind]
    return head_for(action, squash=squash)


def some_params(head: Head, num_rows: int, rng: np.random.Generator, scale: float = 1.0) -> np.ndarray:
    params = scale * rng.standard_normal((num_rows, head.num_params))
    params[:, head.num_outputs :] *= 0.5  # of the log stds
    return params.astype(np.float32)


def some_mask(head: Head, num_rows: int, rng: np.random.Generator) -> np.ndarray | None:
    if head.num_free:
        return None
    mask = rng.random((num_rows, head.num_params)) < 0.5
    sizes = [5] if isinstance(head, Categorical) else [2, 5, 3]
    starts = np.cumsum([0, *sizes[:-1]])
    for start, size in zip(starts, sizes, strict=True):
        mask[np.arange(num_rows), start + rng.integers(0, size, num_rows)] = True
    return mask


def tensor(array):
    return None if array is None else torch.from_numpy(array)


def test_each_kind_of_action_has_its_head():
    kinds = [type(make(kind)) for kind in ACTIONS]
    assert kinds == [Categorical, MultiCategorical, DiagGaussian, SquashedGaussian]
    assert [(make(k).num_outputs, make(k).num_free, make(k).num_params) for k in ACTIONS] == [
        (5, 0, 5),
        (10, 0, 10),
        (3, 3, 6),
        (3, 3, 6),
    ]


def test_only_what_is_bounded_can_be_squashed():
    with pytest.raises(ConfigError, match="squash"):
        head_for(Continuous((-1.0,), (float("inf"),)), squash=True)
    assert isinstance(head_for(Discrete(3), squash=True), Categorical)


@every_kind
def test_actions_fit_their_spec_and_the_same_rng_gives_the_same(kind):
    head, (action_spec, _) = make(kind), ACTIONS[kind]
    params = some_params(head, 50, np.random.default_rng(1))
    action, logp = head.sample(params, np.random.default_rng(2))
    again, logp_again = head.sample(params, np.random.default_rng(2))
    np.testing.assert_array_equal(action, again)
    np.testing.assert_array_equal(logp, logp_again)
    mode = head.mode(params)
    assert action.dtype == mode.dtype == action_spec.array.dtype
    assert action.shape == mode.shape == (50, *action_spec.array.shape)
    assert logp.dtype == np.float32
    assert logp.shape == (50,)
    if kind != "gaussian":
        for row in (*action, *mode):
            action_spec.array.check(row)


@every_kind
def test_a_greedy_choice_is_the_mode_and_draws_nothing_any_other_is_a_sample(kind):
    head = make(kind)
    params = some_params(head, 5, np.random.default_rng(1))
    rng, same, untouched = (np.random.default_rng(2) for _ in range(3))
    action, logp = head.choose(params, rng, greedy=True)
    assert np.array_equal(action, head.mode(params))
    assert np.array_equal(logp, np.zeros(5, np.float32)), "it was certain"
    assert rng.bit_generator.state == untouched.bit_generator.state
    for chosen, sampled in zip(head.choose(params, rng, greedy=False), head.sample(params, same), strict=True):
        assert np.array_equal(chosen, sampled)


@every_kind
@given(seed=st.integers(0, 2**32 - 1), masked=st.booleans())
@settings(deadline=None, max_examples=50)
def test_numpy_and_torch_give_one_log_probability(kind, seed, masked):
    head, rng = make(kind), np.random.default_rng(seed)
    params = some_params(head, 8, rng)
    mask = some_mask(head, 8, rng) if masked else None
    action, logp = head.sample(params, rng, mask)
    learnt = head.logp(tensor(params), tensor(action), tensor(mask))
    np.testing.assert_allclose(learnt.numpy(), logp, rtol=1e-5, atol=1e-5)
    both, entropy = head.logp_and_entropy(tensor(params), tensor(action), tensor(mask))
    torch.testing.assert_close(both, learnt)
    torch.testing.assert_close(entropy, head.entropy(tensor(params), tensor(mask)))


@every_kind
def test_any_leading_axes_will_do(kind):
    head, rng = make(kind), np.random.default_rng(0)
    params, other = some_params(head, 12, rng), some_params(head, 12, rng)
    mask = some_mask(head, 12, rng)
    action, _ = head.sample(params, rng, mask)

    def folded(array):
        return None if array is None else tensor(array).unflatten(0, (3, 4))

    for flat, folds in (
        (head.logp(tensor(params), tensor(action), tensor(mask)), head.logp(*map(folded, (params, action, mask)))),
        (head.entropy(tensor(params), tensor(mask)), head.entropy(*map(folded, (params, mask)))),
        (head.kl(tensor(params), tensor(other), tensor(mask)), head.kl(*map(folded, (params, other, mask)))),
    ):
        assert folds.shape == (3, 4)
        torch.testing.assert_close(folds.flatten(), flat)


# --- against torch.distributions


def reference_for(kind: str, params: torch.Tensor):
    if kind == "discrete":
        return reference.Categorical(logits=params)
    normal = reference.Normal(params[:, :3], params[:, 3:].exp())
    if kind == "squashed":
        low, high = torch.tensor(BOX.low), torch.tensor(BOX.high)
        to_bounds = reference.transforms.AffineTransform((high + low) / 2, (high - low) / 2)
        normal = reference.TransformedDistribution(normal, [reference.transforms.TanhTransform(), to_bounds])
    if kind == "gaussian":  # in units of the bounds
        low, high = torch.tensor(BOX.low), torch.tensor(BOX.high)
        half = (high - low) / 2
        normal = reference.Normal((high + low) / 2 + half * params[:, :3], half * params[:, 3:].exp())
    return reference.Independent(normal, 1)


@pytest.mark.parametrize("kind", ["discrete", "gaussian", "squashed"])
def test_log_probabilities_are_those_of_torch(kind):
    head, rng = make(kind), np.random.default_rng(3)
    params = some_params(head, 200, rng, scale=0.5)
    action, _ = head.sample(params, rng)
    wanted = reference_for(kind, tensor(params)).log_prob(tensor(action))
    torch.testing.assert_close(head.logp(tensor(params), tensor(action)), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["discrete", "gaussian"])
def test_entropies_and_divergences_are_those_of_torch(kind):
    head, rng = make(kind), np.random.default_rng(4)
    old, new = tensor(some_params(head, 50, rng)), tensor(some_params(head, 50, rng))
    torch.testing.assert_close(head.entropy(old), reference_for(kind, old).entropy())
    wanted = reference.kl_divergence(reference_for(kind, old), reference_for(kind, new))
    torch.testing.assert_close(head.kl(old, new), wanted)
    torch.testing.assert_close(head.kl(old, old), torch.zeros(50))


def test_several_choices_are_the_sum_of_each():
    head, rng = make("multi"), np.random.default_rng(5)
    old, new = tensor(some_params(head, 20, rng)), tensor(some_params(head, 20, rng))
    action = tensor(head.sample(old.numpy(), rng)[0])
    parts = [reference.Categorical(logits=logits) for logits in old.split((2, 5, 3), -1)]
    others = [reference.Categorical(logits=logits) for logits in new.split((2, 5, 3), -1)]
    logp = sum(part.log_prob(action[:, i]) for i, part in enumerate(parts))
    torch.testing.assert_close(head.logp(old, action), logp)
    torch.testing.assert_close(head.entropy(old), sum(part.entropy() for part in parts))
    kl = sum(reference.kl_divergence(part, other) for part, other in zip(parts, others, strict=True))
    torch.testing.assert_close(head.kl(old, new), kl)


@pytest.mark.parametrize("log_std", [-2.0, 0.0, 0.7])
def test_the_entropy_of_squashed_actions_is_the_mean_of_minus_their_log_probability(log_std):
    head, rng = make("squashed"), np.random.default_rng(6)
    params = np.tile(np.float32([0.3, -1.0, 0.0, log_std, log_std, log_std]), (200_000, 1))
    _, logp = head.sample(params, rng)
    assert float(head.entropy(tensor(params[:1]))) == pytest.approx(-logp.mean(), abs=0.02)


# --- choosing


@given(st.integers(2, 7), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=20, derandomize=True)
def test_choices_come_as_often_as_they_should(num_choices, seed):
    rng, num_draws = np.random.default_rng(seed), 20_000
    logits = rng.standard_normal(num_choices).astype(np.float32)
    action, _ = Categorical(num_choices).sample(np.tile(logits, (num_draws, 1)), rng)
    wanted = num_draws * np.exp(logits) / np.exp(logits).sum()
    chi_square = ((np.bincount(action, minlength=num_choices) - wanted) ** 2 / wanted).sum()
    assert chi_square < 30.0  # six degrees of freedom exceed it once in 25,000


class Edge:
    """Stands in for a generator: the greatest and the least number that it ever draws."""

    def __init__(self, value: float) -> None:
        self.value = np.float32(value)

    def random(self, shape, dtype):
        return np.full(shape, self.value, dtype)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0 - 2.0**-24]), st.integers(1, 40))
@settings(deadline=None)
def test_what_is_forbidden_is_never_chosen_not_even_at_the_edges(seed, drawn, num_choices):
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((64, num_choices)) * 5).astype(np.float32)
    mask = rng.random(logits.shape) < 0.3
    mask[np.arange(64), rng.integers(0, num_choices, 64)] = True
    head = Categorical(num_choices)
    for action in (
        head.sample(logits, Edge(drawn), mask)[0],
        head.sample(logits, rng, mask)[0],
        head.mode(logits, mask),
    ):
        assert mask[np.arange(64), action].all()


def test_the_likeliest_allowed_choice_is_the_mode():
    logits = np.float32([[1.0, 3.0, 2.0]])
    assert Categorical(3).mode(logits).tolist() == [1]
    assert Categorical(3).mode(logits, np.array([[True, False, True]])).tolist() == [2]


# --- finite everywhere


@pytest.mark.parametrize("kind", ["discrete", "multi"])
def test_with_one_choice_left_there_is_nothing_to_learn(kind):
    head = make(kind)
    mask = torch.zeros(1, head.num_params, dtype=torch.bool)
    action = torch.tensor([3]) if kind == "discrete" else torch.tensor([[1, 0, 2]])
    for at in [3] if kind == "discrete" else [1, 2, 9]:
        mask[0, at] = True
    params = torch.randn(1, head.num_params, requires_grad=True)
    logp, entropy = head.logp_and_entropy(params, action, mask)
    assert logp.item() == entropy.item() == 0.0
    assert head.kl(params, params + torch.randn_like(params), mask).item() == 0.0
    (logp + entropy).sum().backward()
    assert not params.grad.any()


@every_kind
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1000.0])
def test_gradients_are_finite_everywhere(kind, scale):
    head, rng = make(kind), np.random.default_rng(7)
    start = scale * rng.standard_normal((64, head.num_params))
    params = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    other = torch.tensor(scale * rng.standard_normal((64, head.num_params)), dtype=torch.float32)
    mask = some_mask(head, 64, rng)
    action, sampled_logp = head.sample(params.detach().numpy(), rng, mask)
    assert np.isfinite(action).all()
    assert np.isfinite(sampled_logp).all()
    logp, entropy = head.logp_and_entropy(params, tensor(action), tensor(mask))
    for loss in (logp, entropy, head.kl(params, other, tensor(mask)), head.kl(other, params, tensor(mask))):
        assert loss.isfinite().all()
        params.grad = None
        loss.sum().backward(retain_graph=True)
        assert params.grad.isfinite().all()


def test_actions_at_their_bounds_have_a_finite_probability():
    head = make("squashed")
    params = torch.zeros(2, 6, requires_grad=True)
    logp = head.logp(params, torch.tensor([BOX.low, BOX.high]))
    logp.sum().backward()
    assert logp.isfinite().all()
    assert params.grad.isfinite().all()


@every_kind
def test_parameters_of_the_wrong_size_are_refused(kind):
    head = make(kind)
    wrong = np.zeros((2, head.num_params + 1), np.float32)
    with pytest.raises(DataError, match="last should be"):
        head.sample(wrong, np.random.default_rng(0))
    with pytest.raises(DataError, match="last should be"):
        head.entropy(tensor(wrong))


def test_continuous_actions_begin_spread_over_their_bounds():
    head, rng = head_for(Continuous((0.0, -5.0), (1000.0, np.inf))), np.random.default_rng(0)
    action, _ = head.sample(np.zeros((4000, 4), np.float32), rng)
    assert action[:, 0].mean() == pytest.approx(500.0, rel=0.05)
    assert action[:, 0].std() == pytest.approx(500.0, rel=0.05)
    assert action[:, 1].std() == pytest.approx(1.0, rel=0.05), "no second bound: in its own units"
    np.testing.assert_array_equal(head.mode(np.zeros((1, 4), np.float32)), [[500.0, 0.0]])


def test_a_bound_near_the_largest_float_is_none():
    head = head_for(Continuous((-3.4e38,), (3.4e38,)))
    action, _ = head.sample(np.zeros((100, 2), np.float32), np.random.default_rng(0))
    assert np.abs(action).max() < 10.0


def test_gaussian_actions_are_drawn_with_the_std_of_the_parameters():
    head = head_for(Continuous((-np.inf,) * 2, (np.inf,) * 2))
    mean, std = np.array([3.0, -2.0], np.float32), np.array([0.1, 5.0], np.float32)
    params = np.tile(np.concatenate([mean, np.log(std)]), (20_000, 1)).astype(np.float32)
    action, _ = head.sample(params, np.random.default_rng(0))
    np.testing.assert_allclose(action.mean(0), mean, atol=0.15)
    np.testing.assert_allclose(action.std(0), std, rtol=0.03)
