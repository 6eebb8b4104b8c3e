"""V-trace is the plain recursion, and on policy it is GAE."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_returns import fields, slow_vtrace

from ludus.errors import DataError
from ludus.learn.ops.gae import gae
from ludus.learn.ops.nstep import n_step_returns
from ludus.learn.ops.vtrace import vtrace


@given(fields(), st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.7, 1.0]), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=300)
def test_targets_are_those_of_the_loop(f, gamma, lam, seed):
    rng = np.random.default_rng(seed)
    logp, behaviour = rng.standard_normal((2, *f.reward.shape)).astype(np.float32)
    limits = {"rho_max": rng.choice([0.8, 1.0, 2.0]), "c_max": rng.choice([0.5, 1.0])}
    pair = torch.from_numpy(logp), torch.from_numpy(behaviour)
    target, advantage = vtrace(*pair, **f.tensors(), gamma=gamma, lam=lam, **limits)
    slow_target, slow_advantage = slow_vtrace(logp - behaviour, f, gamma=gamma, lam=lam, **limits)
    assert target.dtype == advantage.dtype == torch.float32
    np.testing.assert_allclose(target.numpy(), slow_target, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(advantage.numpy(), slow_advantage, rtol=1e-4, atol=1e-4)


@given(fields(), st.sampled_from([0.9, 1.0]), st.sampled_from([0.6, 1.0]))
@settings(deadline=None)
def test_on_policy_it_is_gae(f, gamma, lam):
    logp = torch.randn(f.reward.shape)
    target, advantage = vtrace(logp, logp, **f.tensors(), gamma=gamma, lam=lam)
    gae_advantage, gae_target = gae(**f.tensors(), gamma=gamma, lam=lam)
    torch.testing.assert_close(target, gae_target, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(advantage, gae_advantage, rtol=1e-4, atol=1e-4)


@given(fields())
@settings(deadline=None)
def test_on_policy_its_targets_are_the_returns_to_the_end_of_the_segment(f):
    logp = torch.randn(f.reward.shape)
    target, _ = vtrace(logp, logp, **f.tensors(), gamma=0.9)
    returns = n_step_returns(**f.tensors(), gamma=0.9, n=len(f.reward))
    torch.testing.assert_close(target, returns, rtol=1e-4, atol=1e-4)


@given(fields())
@settings(deadline=None)
def test_log_probabilities_of_steps_without_an_action_do_not_matter(f):
    logp, behaviour = torch.randn(f.reward.shape), torch.randn(f.reward.shape)
    idle = ~torch.from_numpy(f.active[:-1])
    wanted = vtrace(logp, behaviour, **f.tensors(), gamma=0.9)
    far = vtrace(logp, behaviour.masked_fill(idle, -1e30), **f.tensors(), gamma=0.9)
    for result, other in zip(wanted, far, strict=True):
        assert torch.equal(result, other)


def test_log_probabilities_of_another_shape_are_refused():
    ones, more = torch.ones(3, 2), torch.ones(4, 2)
    flags = dict.fromkeys(("terminated", "truncated"), torch.zeros(3, 2, dtype=torch.bool))
    flags |= dict.fromkeys(("active", "first"), torch.zeros(4, 2, dtype=torch.bool))
    with pytest.raises(DataError, match="behaviour_logp"):
        vtrace(ones, more, ones, more, **flags, gamma=0.9)
