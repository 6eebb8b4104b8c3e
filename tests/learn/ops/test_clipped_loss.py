import numpy as np
import pytest
import torch

from ludus.learn.algorithms.algorithm import View
from ludus.learn.algorithms.ppo import PPO, PPOConfig
from ludus.learn.ops import clipped_loss
from ludus.learn.ops.distributions.categorical import Categorical


@pytest.mark.parametrize("num_choices", [2, 5])
@pytest.mark.parametrize("spread", [0.1, 3.0])  # at 3 most ratios are clipped
def test_loss_figures_and_gradients_are_those_of_the_graph(num_choices, spread):
    generator = torch.Generator().manual_seed(num_choices)
    params = (spread * torch.randn(64, num_choices, generator=generator)).requires_grad_()
    value = torch.randn(64, generator=generator).requires_grad_()
    head = Categorical(num_choices)
    action = torch.randint(0, num_choices, (64,), generator=generator)
    view = View(
        head=head,
        params=params,
        value=value,
        action=action,
        logp=torch.full((64,), -float(np.log(num_choices))),
        targets={
            "advantage": torch.randn(64, generator=generator),
            "value_target": torch.randn(64, generator=generator),
        },
    )
    ppo = PPO(PPOConfig(entropy_coef=0.02, value_coef=0.7))
    results = []
    for weight in (None, torch.full((64,), 1.0 / 64)):  # with weights the graph is used
        view.weight = weight
        params.grad = value.grad = None
        loss, figures = ppo.loss(view)
        (2.0 * loss).backward()
        results.append((loss.detach(), params.grad, value.grad, {name: float(f) for name, f in figures.items()}))
    by_hand, by_graph = results
    for ours, theirs in zip(by_hand[:3], by_graph[:3], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert by_hand[3] == pytest.approx(by_graph[3], rel=1e-4, abs=1e-5)


def test_other_distributions_and_large_batches_are_left_to_torch():
    assert clipped_loss.is_for(Categorical(2), torch.zeros(512, 2))
    assert not clipped_loss.is_for(Categorical(2), torch.zeros(40_000, 2))
    assert not clipped_loss.is_for(object(), torch.zeros(512, 2))
