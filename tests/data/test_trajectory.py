"""An episode written step by step gives the advantages that the same episode gives in one piece."""

import numpy as np
import pytest
import torch

from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.data.trajectory import RowWriter, TrajectoryWriter
from ludus.errors import DataError
from ludus.learn.ops.gae import gae
from ludus.services.simulator.episodes import Episode, EpisodeLog

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


def play_row(lengths, *, num_steps=4, terminated=True):
    """Episodes one after another by one `RowWriter`; observation t of episode e is [e, t], its reward t + 1."""
    made = RowWriter(num_steps=num_steps, obs=OBS, action=Discrete(3))
    segments = []
    for episode, length in enumerate(lengths):
        for t in range(length):
            segments.append(made.see(np.array([episode, t], np.float32), reward=float(t)))
            made.act(t % 3, -0.5 * t, version=10 + episode)
        last = np.array([episode, length], np.float32)
        segments.append(made.end(last, reward=float(length), terminated=terminated))
        assert (made.num_active, made.total_reward) == (length, length * (length + 1) / 2)
        assert not made.is_torn
        assert not made.has_started
    return [segment for segment in segments if segment is not None]


@pytest.mark.parametrize("lengths", [[4], [3, 4], [1, 1, 1], [2, 5, 1, 9], [3, 3, 3, 3], [8, 7], [1] * 11])
def test_episodes_of_a_row_follow_each_other_without_empty_steps(lengths):
    segments = play_row([*lengths, 20])  # the last one pushes the others out
    steps = [
        (s.obs[t, 0].tolist(), int(s.action[t, 0]), float(s.reward[t, 0]), bool(s.first[t, 0]), int(s.version[t]))
        for s in segments
        for t in range(4)
        if s.active[t, 0]
    ]
    wanted = [
        ([float(e), float(t)], t % 3, t + 1.0, t == 0, 10 + e)
        for e, length in enumerate([*lengths, 20])
        for t in range(length)
    ]
    assert steps == wanted[: len(steps)]
    assert len(steps) >= sum(lengths)
    for segment in segments:
        Segment.from_nest(segment.to_nest())
        inactive = [t for t in range(4) if not segment.active[t, 0]]
        assert all(t > 0 and segment.terminated[t - 1, 0] for t in inactive), "only final observations are not acted on"


def test_a_log_reads_the_episodes_of_a_row():
    segments = play_row([2, 5, 1, 9, 4, 20])
    log = EpisodeLog(1)
    read = [episode for segment in segments for episode in log.read(segment)]
    assert read[:5] == [Episode(n * (n + 1) / 2, n) for n in (2, 5, 1, 9, 4)]


@pytest.mark.parametrize("lengths", [[2, 5, 1, 9], [3, 4, 4]])
@pytest.mark.parametrize("terminated", [True, False])
def test_advantages_in_a_row_are_those_of_each_episode_alone(lengths, terminated):
    """In one long segment: nothing is taken over from one episode to the next."""
    segment, *_ = play_row([*lengths, 60], num_steps=40, terminated=terminated)

    def advantages(of):
        values = torch.as_tensor(of.obs.sum(axis=2) * 0.1 + 0.3)
        given = [
            torch.as_tensor(getattr(of, name)) for name in ("reward", "terminated", "truncated", "active", "first")
        ]
        return gae(given[0], values, *given[1:], gamma=0.9, lam=0.8)[0]

    whole, begin = advantages(segment), 0
    for episode, length in enumerate(lengths):
        made = writer(num_steps=length)
        for t in range(length):
            full = made.see(np.array([episode, t], np.float32), reward=float(t))
            assert full is None
            made.act(t % 3, 0.0, version=1)
        alone = made.end(np.array([episode, length], np.float32), reward=float(length), terminated=terminated)
        np.testing.assert_allclose(whole[begin : begin + length, 0], advantages(alone)[:, 0], rtol=1e-5)
        begin += length + 1


@pytest.mark.parametrize("num_before", [0, 2, 3, 4, 8])
def test_an_observation_that_was_not_acted_on_ends_the_episode_there(num_before):
    """The model failed, and the game left."""
    made = RowWriter(num_steps=4, obs=OBS, action=Discrete(3))
    segments = []
    for t in range(num_before):
        segments.append(made.see(np.full(2, t, np.float32), reward=1.0))
        made.act(0, 0.0, version=1)
    segments.append(made.see(np.full(2, 99, np.float32), reward=1.0))
    segments.append(made.end(terminated=False))
    is_at_border = num_before in (4, 8)
    assert made.is_torn == is_at_border
    assert not made.has_started
    for t in range(12):
        segments.append(made.see(np.full(2, t, np.float32), reward=1.0))
        made.act(1, 0.0, version=2)
    given = [segment for segment in segments if segment is not None]
    actions = [int(s.action[t, 0]) for s in given for t in range(4) if s.active[t, 0]]
    assert actions == ([0] * num_before + [1] * 12)[: len(actions)]
    assert sum(int(s.truncated.sum()) for s in given) == int(num_before > 0 and not is_at_border)
