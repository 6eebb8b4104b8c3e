"""Losses: the one with its gradient by hand against the graph's, and what weights and coefficients mean."""

import numpy as np
import pytest
import torch

from ludus.learn import ops
from ludus.learn.ops import numpy_clipped_loss
from ludus.learn.ops.distributions.categorical import Categorical


@pytest.mark.parametrize("num_choices", [2, 5])
@pytest.mark.parametrize("spread", [0.1, 3.0])  # at 3 most ratios are clipped
@pytest.mark.parametrize("has_bounds", [False, True])
def test_the_clipped_loss_by_hand_its_metrics_and_gradients_are_those_of_the_graph(num_choices, spread, has_bounds):
    generator = torch.Generator().manual_seed(num_choices)
    params = (spread * torch.randn(64, num_choices, generator=generator)).requires_grad_()
    value = torch.randn(64, generator=generator).requires_grad_()
    head = Categorical(num_choices)
    action = torch.randint(0, num_choices, (64,), generator=generator)
    steps = {
        "action": action,
        "logp": torch.full((64,), -float(np.log(num_choices))),
        "advantage": torch.randn(64, generator=generator),
        "value_target": torch.randn(64, generator=generator),
    }
    lowest = 0.7 + 0.6 * torch.rand(64, generator=generator)
    clip = (lowest, 1.4 - 0.5 * torch.rand(64, generator=generator)) if has_bounds else 0.2
    settings = {"clip": clip, "entropy_coef": 0.02, "value_coef": 0.7}
    results = []
    for weight in (None, torch.full((64,), 1.0 / 64)):  # with weights the graph is used
        params.grad = value.grad = None
        loss, metrics = ops.clipped_loss(head, params, value, **steps, **settings, weight=weight)
        (2.0 * loss).backward()
        numbers = {name: float(torch.as_tensor(metric).detach()) for name, metric in metrics.items()}
        results.append((loss.detach(), params.grad, value.grad, numbers))
    by_hand, by_graph = results
    for ours, theirs in zip(by_hand[:3], by_graph[:3], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert by_hand[3] == pytest.approx(by_graph[3], rel=1e-4, abs=1e-5)


def test_each_step_is_pushed_up_to_its_own_bounds_and_no_further():
    """Six steps with the ratio 1: three pushed up, three down; the bound that counts is ahead, passed, and far off."""
    params = torch.zeros(6, 2, requires_grad=True)
    steps = {
        "action": torch.zeros(6, dtype=torch.long), "logp": torch.full((6,), -float(np.log(2.0))),
        "advantage": torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0]), "value_target": torch.zeros(6),
    }  # fmt: skip
    lowest, highest = torch.tensor([9.0, 9.0, 0.1, 0.9, 1.1, 0.1]), torch.tensor([1.1, 0.9, 9.0, 0.1, 0.1, 9.0])
    for weight in (None, torch.ones(6)):
        params.grad = None
        loss, _ = ops.clipped_loss(
            Categorical(2), params, torch.zeros(6), **steps, clip=(lowest, highest), value_coef=0.0, entropy_coef=0.0,
            weight=weight,
        )  # fmt: skip
        loss.backward()
        assert params.grad[:, 0].sign().tolist() == [-1, 0, -1, 1, 0, 1], "against the advantage: it is descended"


def test_other_distributions_and_large_batches_are_left_to_torch():
    assert numpy_clipped_loss.is_for(Categorical(2), torch.zeros(512, 2))
    assert not numpy_clipped_loss.is_for(Categorical(2), torch.zeros(40_000, 2))
    assert not numpy_clipped_loss.is_for(object(), torch.zeros(512, 2))


def test_a_policy_gradient_loss_is_made_of_its_three_parts_over_the_steps_that_count():
    logp = torch.tensor([-0.5, -1.0, -9.0], requires_grad=True)
    entropy, value = torch.tensor([0.3, 0.5, 9.0]), torch.tensor([1.0, 2.0, 9.0])
    loss, metrics = ops.policy_gradient_loss(
        logp, entropy, value, advantage=torch.tensor([2.0, -4.0, 9.0]), value_target=torch.tensor([0.0, 4.0, -9.0]),
        value_coef=0.5, entropy_coef=0.1, weight=torch.tensor([0.5, 0.5, 0.0]),
    )  # fmt: skip
    loss.backward()
    assert {name: float(metric.detach()) for name, metric in metrics.items()} == pytest.approx(
        {"policy_loss": -1.5, "value_loss": 1.25, "entropy": 0.4}
    )
    assert float(loss.detach()) == pytest.approx(-1.5 + 0.5 * 1.25 - 0.1 * 0.4)
    assert logp.grad.tolist() == [-1.0, 2.0, 0.0]
