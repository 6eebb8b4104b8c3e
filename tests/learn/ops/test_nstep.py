"""Returns of n steps are sums of rewards, counted forwards from every step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_returns import fields, slow_n_step

from ludus.errors import DataError
from ludus.learn.ops.nstep import n_step_returns


@given(fields(), st.sampled_from([0.0, 0.9, 1.0]), st.integers(1, 8))
@settings(deadline=None, max_examples=300)
def test_returns_are_those_counted_forwards(f, gamma, n):
    returns = n_step_returns(**f.tensors(), gamma=gamma, n=n)
    np.testing.assert_allclose(returns.numpy(), slow_n_step(f, gamma=gamma, n=n), rtol=1e-4, atol=1e-4)


@given(fields())
@settings(deadline=None)
def test_no_step_is_no_return(f):
    with pytest.raises(DataError, match="0 steps"):
        n_step_returns(**f.tensors(), gamma=0.9, n=0)
