"""An episode written step by step gives the advantages that the same episode gives in one piece."""

import numpy as np
import pytest
import torch

from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.data.trajectory import TrajectoryWriter
from ludus.errors import DataError
from ludus.learn.ops.gae import gae

OBS = ArraySpec((2,), np.float32)


def writer(num_steps=4, **more):
    return TrajectoryWriter(num_steps=num_steps, obs=OBS, action=Discrete(3), **more)


def play(length, *, num_steps=4, terminated=True, with_last=True):
    """An episode whose observation at step t is [t, t] and whose reward for action t is t + 1."""
    made, segments = writer(num_steps), []
    for t in range(length):
        segments.append(made.see(np.full(2, t, np.float32), reward=float(t)))
        made.act(t % 3, -0.5 * t, version=10 + t)
    last = np.full(2, length, np.float32) if with_last else None
    segments.append(made.end(last, reward=float(length), terminated=terminated))
    return [segment for segment in segments if segment is not None]


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 11])
def test_every_step_is_there_once_and_in_order(length):
    segments = play(length)
    assert all(segment.num_steps == 4 for segment in segments)
    assert sum(segment.num_active for segment in segments) == length
    actions = [int(s.action[t, 0]) for s in segments for t in range(4) if s.active[t, 0]]
    rewards = [float(s.reward[t, 0]) for s in segments for t in range(4) if s.active[t, 0]]
    versions = [int(s.version[t]) for s in segments for t in range(4) if s.active[t, 0]]
    assert actions == [t % 3 for t in range(length)]
    assert rewards == [t + 1.0 for t in range(length)]
    assert versions == [10 + t for t in range(length)]
    assert segments[0].first[0, 0]
    for segment in segments:
        Segment.from_nest(segment.to_nest())


def test_a_segment_begins_where_the_one_before_it_ended():
    first, second = play(6)
    assert first.obs[4, 0].tolist() == second.obs[0, 0].tolist() == [4, 4]
    assert not second.first[0, 0]


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_advantages_are_those_of_the_plain_recursion(length, terminated):
    (segment,) = play(length, terminated=terminated)
    values = segment.obs[:, :, 0] * 0.1 + 0.3
    tensors = {
        name: torch.as_tensor(getattr(segment, name)) for name in ("reward", "terminated", "truncated", "active")
    }
    advantage = gae(
        tensors["reward"], torch.as_tensor(values), tensors["terminated"], tensors["truncated"], tensors["active"],
        torch.as_tensor(segment.first), gamma=0.9, lam=0.8,
    )  # fmt: skip
    advantage = (advantage[0] if isinstance(advantage, tuple) else advantage).numpy()
    expected, following = np.zeros(length), 0.0
    for t in reversed(range(length)):
        after = 0.0 if t == length - 1 and terminated else (t + 1) * 0.1 + 0.3
        following = (t + 1) + 0.9 * after - (t * 0.1 + 0.3) + (0.72 * following if t < length - 1 else 0.0)
        expected[t] = following
    np.testing.assert_allclose(advantage[:length, 0], expected, rtol=1e-5)
    assert not advantage[length:].any()


def test_a_game_that_vanishes_is_cut_off_at_what_was_seen_last():
    (segment,) = play(2, terminated=False, with_last=False)
    assert segment.truncated[1, 0]
    assert segment.obs[2, 0].tolist() == segment.obs[1, 0].tolist()


def test_an_episode_that_ends_before_an_action_is_the_end_of_the_action_before():
    made = writer()
    made.see(np.zeros(2, np.float32))
    made.act(0, 0.0, 1)
    made.see(np.ones(2, np.float32), reward=1.0)
    segment = made.end(terminated=False)
    assert segment.num_active == 1
    assert segment.truncated[0, 0]
    assert writer().end(terminated=True) is None


def test_two_observations_in_a_row_are_refused():
    made = writer()
    made.see(np.zeros(2, np.float32))
    with pytest.raises(DataError, match="follows an action"):
        made.see(np.zeros(2, np.float32))
