import numpy as np
import torch

from ludus.learn.algorithms.optimiser import Adam


def test_it_takes_the_same_steps_as_torch():
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(50, generator=generator)
    theirs = torch.nn.Parameter(start.clone())
    reference = torch.optim.Adam([theirs], lr=3e-3, eps=1e-5)
    ours, grad = start.clone(), torch.zeros(50)
    adam = Adam(ours, grad, learning_rate=3e-3, eps=1e-5)
    for _ in range(200):
        grad.copy_(torch.randn(50, generator=generator) + start.sign())
        theirs.grad = grad.clone()
        reference.step()
        adam.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
    assert (ours - start).abs().min() > 0.1


def test_it_goes_on_exactly_where_it_was_saved():
    data, grad = torch.ones(5), torch.arange(5.0)
    adam = Adam(data, grad, learning_rate=1e-2, eps=1e-8)
    for _ in range(3):
        adam.step()
    saved, at = adam.save(), data.clone()
    adam.step()
    other = Adam(at, grad, learning_rate=1e-2, eps=1e-8)
    other.restore(saved)
    other.step()
    assert np.array_equal(at.numpy(), data.numpy())


def test_a_large_epsilon_shortens_the_steps():
    data, grad = torch.zeros(1), torch.ones(1)
    Adam(data, grad, learning_rate=1.0, eps=1.0).step()
    assert data.item() == -0.5
