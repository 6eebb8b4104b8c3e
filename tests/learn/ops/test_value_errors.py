from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.learn.ops import value_errors


def test_huber_is_torchs_own() -> None:
    error = torch.linspace(-3.0, 3.0, 61).requires_grad_()
    for delta in (0.4, 1.0, 10.0):
        expected = torch.nn.functional.huber_loss(error, torch.zeros(61), reduction="none", delta=delta)
        torch.testing.assert_close(value_errors.huber(error, delta), expected)
        ours, theirs = (
            torch.autograd.grad(each.sum(), error)[0] for each in (value_errors.huber(error, delta), expected)
        )
        torch.testing.assert_close(ours, theirs)


def test_what_is_projected_keeps_its_mass_and_within_the_atoms_its_mean() -> None:
    probs = torch.softmax(torch.randn(50, 9, generator=torch.Generator().manual_seed(0)), -1)
    atoms = torch.linspace(-2.0, 2.0, 9)
    reward, discount = torch.linspace(-1.0, 1.0, 50), torch.full((50,), 0.5)
    found = value_errors.project(probs, reward, discount, v_min=-2.0, v_max=2.0)
    torch.testing.assert_close(found.sum(-1), torch.ones(50))
    torch.testing.assert_close(found @ atoms, reward + 0.5 * (probs @ atoms))
    assert (found >= 0.0).all()


@pytest.mark.parametrize(("reward", "atom"), [(2.0, 8), (-2.0, 0), (99.0, 8), (-99.0, 0), (0.5, 5), (0.0, 4)])
def test_the_end_of_an_episode_is_one_return_and_beyond_the_atoms_the_outermost(reward: float, atom: int) -> None:
    probs = torch.full((1, 9), 1.0 / 9.0)
    found = value_errors.project(probs, torch.tensor([reward]), torch.zeros(1), v_min=-2.0, v_max=2.0)
    torch.testing.assert_close(found[0, atom], torch.tensor(1.0))


def test_the_error_of_a_distribution_is_0_where_it_is_the_target() -> None:
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    error = value_errors.categorical_error(logits, logits.softmax(-1))
    torch.testing.assert_close(error, torch.zeros(4), atol=1e-6, rtol=0.0)
    certain = torch.eye(6)[:4]  # with probabilities of 0
    torch.testing.assert_close(value_errors.categorical_error(logits, certain), -logits.log_softmax(-1).diagonal()[:4])


def test_descending_the_error_of_quantiles_finds_them() -> None:
    samples = torch.from_numpy(np.random.default_rng(0).exponential(size=(1, 2_000)).astype(np.float32))
    quantiles = torch.zeros(1, 5, requires_grad=True)
    optimiser = torch.optim.SGD([quantiles], lr=0.05)
    for _ in range(1_500):
        optimiser.zero_grad()
        value_errors.quantile_error(quantiles, samples, delta=1e-3).sum().backward()
        optimiser.step()
    expected = np.quantile(samples.numpy(), [0.1, 0.3, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(quantiles.detach().numpy()[0], expected, atol=0.02)


def test_rescaling_is_undone() -> None:
    x = torch.tensor([-1e4, -3.0, -1e-3, 0.0, 1e-3, 0.5, 7.0, 1e5])
    torch.testing.assert_close(value_errors.unscaled(value_errors.rescaled(x)), x, rtol=1e-4, atol=1e-6)
    assert value_errors.rescaled(torch.tensor([3.0, -8.0])).tolist() == pytest.approx([1.003, -2.008])
