"""A scan is the loop it stands for."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.errors import DataError
from ludus.learn.ops.steps import reverse_scan

torch.set_num_threads(1)


def slow_scan(x, decay):
    y = np.zeros((len(x) + 1, *x.shape[1:]))
    for t in reversed(range(len(x))):
        y[t] = x[t] + decay[t] * y[t + 1]
    return y[:-1]


@given(st.integers(1, 70), st.sampled_from([(), (3,), (2, 3)]), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_a_scan_is_the_loop_backwards(num_steps, shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_steps, *shape)).astype(np.float32)
    decay = (rng.random((num_steps, *shape)) * (rng.random((num_steps, *shape)) < 0.9)).astype(np.float32)
    wanted = slow_scan(x, decay)
    np.testing.assert_allclose(reverse_scan(x, decay), wanted, rtol=1e-5, atol=1e-5)
    scanned = reverse_scan(torch.from_numpy(x), torch.from_numpy(decay))
    np.testing.assert_allclose(scanned.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_scan_leaves_what_it_is_given_as_it_was():
    x, decay = torch.ones(8, 2), torch.full((8, 2), 0.5)
    reverse_scan(x, decay)
    assert torch.equal(x, torch.ones(8, 2))
    assert torch.equal(decay, torch.full((8, 2), 0.5))


def test_gradients_pass_through_a_scan_of_tensors():
    x, decay = torch.zeros(4, 1, requires_grad=True), torch.full((4, 1), 0.5)
    reverse_scan(x, decay)[0].sum().backward()
    assert x.grad.flatten().tolist() == [1.0, 0.5, 0.25, 0.125]


def test_shapes_that_differ_are_refused():
    with pytest.raises(DataError, match=r"\(4, 2\).*\(4, 1\)"):
        reverse_scan(torch.zeros(4, 2), torch.zeros(4, 1))
    with pytest.raises(DataError):
        reverse_scan(torch.zeros(()), torch.zeros(()))
