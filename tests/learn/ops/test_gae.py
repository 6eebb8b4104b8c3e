"""Advantages are those of the plain recursion, with ends and turns anywhere."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_returns import Fields, fields, slow_gae

from ludus.errors import DataError
from ludus.learn import ops
from ludus.learn.ops.gae import gae


def alone(num_steps, num_rows=1):
    """One long episode without turns."""
    return Fields(
        reward=np.ones((num_steps, num_rows), np.float32),
        value=np.zeros((num_steps + 1, num_rows), np.float32),
        terminated=np.zeros((num_steps, num_rows), np.bool_),
        truncated=np.zeros((num_steps, num_rows), np.bool_),
        active=np.ones((num_steps + 1, num_rows), np.bool_),
        first=np.zeros((num_steps + 1, num_rows), np.bool_),
    )


@given(fields(), st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.0, 0.8, 1.0]))
@settings(deadline=None, max_examples=300)
def test_advantages_are_those_of_the_loop(f, gamma, lam):
    advantage, target = gae(**f.tensors(), gamma=gamma, lam=lam)
    slow_advantage, slow_target = slow_gae(f, gamma=gamma, lam=lam)
    assert advantage.dtype == target.dtype == torch.float32
    np.testing.assert_allclose(advantage.numpy(), slow_advantage, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(target.numpy(), slow_target, rtol=1e-4, atol=1e-4)
    assert not advantage.numpy()[~f.active[:-1]].any()


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_waiting_for_others_changes_nothing(num_steps, seed):
    """An episode, and the same with steps of others in between over which the rewards are spread."""
    rng = np.random.default_rng(seed)
    dense = alone(num_steps)
    dense.reward[:] = rng.standard_normal(dense.reward.shape)
    dense.value[:] = rng.standard_normal(dense.value.shape)
    dense.terminated[-1] = rng.random() < 0.5
    waits = rng.integers(0, 3, num_steps)
    starts = np.cumsum([0, *(waits + 1)])
    sparse = alone(starts[-1])
    sparse.reward[:], sparse.active[:-1] = 0.0, False
    sparse.value[:] = 100.0  # nobody should look at the values of steps where one waits
    sparse.active[starts] = True
    sparse.value[starts] = dense.value
    for t, (start, wait) in enumerate(zip(starts, waits, strict=False)):
        shares = rng.dirichlet(np.ones(wait + 1))
        sparse.reward[start : start + wait + 1, 0] = dense.reward[t, 0] * shares
    sparse.terminated[-1] = dense.terminated[-1]
    advantage, target = gae(**dense.tensors(), gamma=0.9, lam=0.8)
    with_waits, target_with_waits = gae(**sparse.tensors(), gamma=0.9, lam=0.8)
    np.testing.assert_allclose(with_waits.numpy()[starts[:-1]], advantage.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(target_with_waits.numpy()[starts[:-1]], target.numpy(), rtol=1e-4, atol=1e-4)


def test_an_episode_that_terminates_is_worth_its_rewards():
    f = alone(3)
    f.terminated[1], f.active[2], f.reward[2], f.first[3] = True, False, 0.0, True
    f.value[2:] = 50.0
    advantage, _ = gae(**f.tensors(), gamma=0.5, lam=1.0)
    assert advantage.flatten().tolist() == [1.5, 1.0, 0.0]


def test_an_episode_cut_off_goes_on_in_the_value_of_its_final_observation():
    f = alone(3)
    f.truncated[1], f.active[2], f.reward[2], f.first[3] = True, False, 0.0, True
    f.value[2], f.value[3] = 8.0, 50.0
    advantage, target = gae(**f.tensors(), gamma=0.5, lam=1.0)
    assert advantage.flatten().tolist() == [3.5, 5.0, 0.0]
    assert target.flatten().tolist() == [3.5, 5.0, 8.0]


def test_a_reward_at_anothers_turn_is_for_what_the_row_did_last():
    f = alone(3)
    f.active[1] = False
    f.reward[:, 0] = 0.0, 4.0, 0.0
    f.terminated[1], f.active[2], f.first[3] = True, False, True
    advantage, _ = gae(**f.tensors(), gamma=0.5, lam=0.9)
    assert advantage.flatten().tolist() == [4.0, 0.0, 0.0]


def test_flags_that_are_left_out_mean_that_every_row_acts_and_nothing_is_cut_off():
    f = alone(5, 2)
    f.terminated[1, 0] = True
    tensors = f.tensors()
    short = {name: tensors[name] for name in ("reward", "value", "terminated")}
    for ours, theirs in zip(gae(**short, gamma=0.9, lam=0.8), gae(**tensors, gamma=0.9, lam=0.8), strict=True):
        assert torch.equal(ours, theirs)


def test_targets_carry_no_gradients():
    tensors = alone(4).tensors()
    tensors["value"].requires_grad_()
    advantage, target = gae(**tensors, gamma=0.9, lam=0.9)
    assert not advantage.requires_grad
    assert not target.requires_grad


@pytest.mark.parametrize("name", ["value", "terminated", "truncated", "active", "first"])
def test_a_wrong_shape_or_dtype_is_refused_by_name(name):
    tensors = alone(4, 2).tensors()
    wrong = {"a shape": tensors[name][:-1], "a dtype": tensors[name].to(torch.int32)}
    for tensor in wrong.values():
        with pytest.raises(DataError, match=name):
            gae(**{**tensors, name: tensor}, gamma=0.9, lam=0.9)


def test_a_segment_has_steps_and_rows():
    tensors = alone(4).tensors()
    with pytest.raises(DataError, match="reward"):
        gae(**{name: tensor[..., 0] for name, tensor in tensors.items()}, gamma=0.9, lam=0.9)


def test_the_floor_names_its_functions():
    assert ops.gae is gae
    assert all(callable(getattr(ops, name)) for name in ops.__all__)
    with pytest.raises(AttributeError):
        _ = ops.nothing_of_that_name
