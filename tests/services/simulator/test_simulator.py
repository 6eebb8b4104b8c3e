"""The simulator: every number in its row and step, whatever the groups; envs that raise; saved and gone on with."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from ludus import data, envs
from ludus.core import TimeStep, VectorEnv
from ludus.data import nest as nests
from ludus.data.segment import Segment
from ludus.errors import EnvError
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.services.simulator.chooser import Acted, InlineChooser
from ludus.services.simulator.episodes import EpisodeLog, mark_void
from ludus.services.simulator.simulator import Simulator

from . import marked_envs as games
from .marked_envs import MarkedVectorEnv

torch.set_num_threads(1)
BRITTLE = f"{games.__file__}:brittle"


class LateChooser:
    """As an inference service elsewhere: what is asked for is answered when it is wanted, not before."""

    is_remote = True
    extra_spec = None

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.log: list[str] = []

    def begin(self, now: TimeStep, state: Any, rows: slice) -> Any:
        self.log.append("begin")
        kept = nests.map(lambda leaf: None if leaf is None else leaf.copy(), state)
        return nests.map(np.copy, now.obs), kept, now.first, now.mask

    def finish(self, ticket: Any, rng: np.random.Generator) -> Any:
        self.log.append("finish")
        obs, state, first, mask = ticket
        return Acted(*self._policy.act(obs, state, first, rng, mask))


def policy_for(vector_env: VectorEnv, **settings: Any) -> Policy:
    network = NetworkConfig(hidden=(8,), **settings)
    return Policy(PolicySpec(obs=vector_env.spec.obs, action=vector_env.spec.action, network=network), seed=2)


def simulate(groups: list[Any], *, late: bool = False, num_steps: int = 8, **settings: Any) -> Simulator:
    policy = policy_for(groups[0], **settings)
    chooser = LateChooser(policy) if late else InlineChooser(policy)
    return Simulator(groups, chooser, num_steps=num_steps, seed=5, state_spec=policy.state_spec, num_slots=2)


@pytest.mark.parametrize("late", [False, True], ids=["inline", "remote"])
@pytest.mark.parametrize("sizes", [(3,), (2, 1), (1, 1, 1)])
def test_every_number_is_in_its_row_and_step(sizes: tuple[int, ...], late: bool) -> None:
    groups = [MarkedVectorEnv(size, mark=mark) for mark, size in enumerate(sizes)]
    simulator = simulate(groups, late=late)
    marks = np.repeat(np.arange(len(sizes)), [2 * size for size in sizes])
    places = np.concatenate([np.arange(2 * size) for size in sizes])
    for started_at in (0, 8, 16):
        segment = simulator.collect(version=started_at).segment
        steps = np.arange(started_at, started_at + 9)
        assert np.array_equal(segment.obs[..., 0], np.broadcast_to(marks, (9, 6)))
        assert np.array_equal(segment.obs[..., 1], np.broadcast_to(places, (9, 6)))
        assert np.array_equal(segment.obs[..., 2], np.broadcast_to(steps[:, None], (9, 6)))
        # five steps, the final observation, and again
        assert np.array_equal(segment.active[:, 0], steps % 6 != 5)
        assert np.array_equal(segment.first[:, 0], steps % 6 == 0)
        assert np.array_equal(segment.terminated[:, 0], steps[1:] % 6 == 5)
        # the mask leaves one choice, which is done, and rewarded in the same row and step
        choice = (places[None] + steps[:, None]) % 4
        assert np.array_equal(segment.mask.argmax(axis=2), choice)
        assert np.array_equal(segment.action, choice[:-1])
        assert np.array_equal(segment.reward, np.where(segment.active[:-1], choice[:-1], 0.0))
        assert np.allclose(segment.logp, 0.0, atol=1e-6)
        assert np.array_equal(segment.version, np.full(8, started_at))
        assert np.array_equal(segment.global_state[0, :, 1], np.concatenate([np.arange(size) for size in sizes]))


def test_what_is_cut_off_is_not_taken_for_an_end_by_the_rules() -> None:
    class CutOff(MarkedVectorEnv):
        def recv(self) -> TimeStep:
            now = super().recv()
            return dataclasses.replace(now, terminated=now.truncated, truncated=now.terminated)

    segment = simulate([CutOff(2, mark=0)]).collect(version=0).segment
    assert np.array_equal(segment.truncated[:, 0], np.arange(1, 9) % 6 == 5)
    assert not segment.terminated.any()


def test_with_inference_elsewhere_one_group_is_stepped_while_another_is_chosen_for() -> None:
    groups = [MarkedVectorEnv(1, mark=0), MarkedVectorEnv(1, mark=1)]
    policy = policy_for(groups[0])
    chooser = LateChooser(policy)
    Simulator(groups, chooser, num_steps=3, seed=1).collect(0)
    assert chooser.log == ["begin", *["begin", "finish"] * 5, "finish"]


@pytest.mark.parametrize("late", [False, True], ids=["inline", "remote"])
def test_recurrent_state_is_that_before_the_first_observation(late: bool) -> None:
    groups = [envs.make("CartPole-v1", size) for size in (2, 1)]
    simulator = simulate(groups, late=late, recurrent="gru", recurrent_size=4)
    policy = policy_for(groups[0], recurrent="gru", recurrent_size=4)
    state = policy.initial_state(3)
    runner = policy.runner()
    for _ in range(3):
        segment = simulator.collect(0).segment
        for mine, theirs in zip(nests.leaves(segment.state), nests.leaves(state), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)
        for step in range(8):
            params, state = runner(segment.obs[step], state, segment.first[step])
            logp = policy.head.logp(torch.from_numpy(params), torch.from_numpy(segment.action[step]))
            np.testing.assert_allclose(segment.logp[step], logp.numpy(), atol=1e-4)
    simulator.close()


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1"])
@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_saved_and_restored_it_goes_on_bit_by_bit(env: str, recurrent: str) -> None:
    def made() -> Simulator:
        return simulate([envs.make(env, 2), envs.make(env, 2)], recurrent=recurrent, num_steps=30)

    one, other = made(), made()
    for version in range(3):
        one.collect(version)
    other.restore(data.decode(data.encode(one.save())))
    for version in range(3, 6):
        mine, theirs = one.collect(version), other.collect(version)
        assert mine.episodes == theirs.episodes
        assert same(mine.segment, theirs.segment)
    assert one.statistics().num_steps == other.statistics().num_steps
    one.close()
    other.close()


def same(first: Segment, second: Segment) -> bool:
    pairs = zip(nests.leaves(first.to_nest()), nests.leaves(second.to_nest()), strict=True)
    return all(np.array_equal(a, b) if a is not None else b is None for a, b in pairs)


def test_a_checkpoint_of_other_groups_is_refused() -> None:
    one, two = simulate([envs.make("CartPole-v1", 2)]), simulate([envs.make("CartPole-v1", 1) for _ in range(2)])
    one.collect(0)
    with pytest.raises(EnvError, match="1 groups of envs, this run 2"):
        two.restore(one.save())


def test_two_groups_play_different_episodes() -> None:
    simulator = simulate([envs.make("CartPole-v1", 2), envs.make("CartPole-v1", 2)])
    first_obs = simulator.collect(0).segment.obs[0]
    assert len(np.unique(first_obs, axis=0)) == 4
    simulator.close()


def test_envs_that_cannot_tell_where_they_are_are_not_saved() -> None:
    simulator = simulate([MarkedVectorEnv(1, mark=0)])
    simulator.collect(0)
    assert simulator.save() is None


def test_the_rows_of_an_env_that_raised_are_void_and_counted() -> None:
    vector_env = envs.make(BRITTLE, 8)
    simulator = simulate([vector_env], num_steps=12)
    num_void = num_active = 0
    returns = []
    for _ in range(10):
        failures = vector_env.statistics().num_failures
        rollout = simulator.collect(0)
        void = ~rollout.segment.active.any(axis=0)
        assert void.any() == (vector_env.statistics().num_failures > failures)
        num_void += int(void.sum())
        num_active += rollout.segment.num_active
        returns += rollout.episodes
    stats = simulator.statistics()
    assert 0 < num_void == stats.num_dropped_rows
    assert stats.num_steps == num_active
    count, last = simulator.failures()
    assert count >= num_void
    assert "the game broke" in last
    assert returns
    assert {(episode.total, episode.length) for episode in returns} == {(10.0, 10)}, "parts of episodes are not counted"
    simulator.close()


def test_envs_of_ones_own_that_give_no_finite_numbers_are_named() -> None:
    vector_env = MarkedVectorEnv(1, mark=float("nan"))
    with pytest.raises(EnvError, match="marked returned invalid values: the observation holds nan"):
        simulate([vector_env]).collect(0)


# --- episodes


def test_returns_of_games_in_turns_do_not_depend_on_how_long_segments_are() -> None:
    """In one of a single step, the row whose turn it is not is never active; its env is valid all the same."""

    def episodes(num_steps: int) -> list[Any]:
        simulator = simulate([envs.make("pettingzoo:tictactoe_v3", 2)], num_steps=num_steps)
        found = [episode for _ in range(48 // num_steps) for episode in simulator.collect(0).episodes]
        simulator.close()
        return found

    whole = episodes(48)
    assert len(whole) >= 8
    assert sum(episode.total for episode in whole) == 0.0
    assert all(episode.length >= 2 for episode in whole)
    assert episodes(1) == episodes(3) == whole


def test_the_log_of_episodes_is_that_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    log, rows, steps = EpisodeLog(6), 6, 7
    totals, lengths, partial = [0.0] * rows, [0] * rows, [False] * rows
    for _ in range(30):
        segment = Segment.allocate(
            steps, rows, obs=data.ArraySpec((1,), np.float32), action=MarkedVectorEnv.spec.action
        )
        segment.active[...] = rng.random((steps + 1, rows)) < 0.8
        segment.reward[...] = rng.integers(-3, 4, (steps, rows))
        segment.terminated[...] = rng.random((steps, rows)) < 0.15
        segment.truncated[...] = rng.random((steps, rows)) < 0.15
        segment.first[1] = False
        if (void := int(rng.integers(0, 12))) < rows:
            mark_void(segment, np.arange(rows) == void)
        expected = []
        for step in range(steps):
            for row in range(rows):
                totals[row] += float(segment.reward[step, row])
                lengths[row] += int(segment.active[step, row])
                if segment.terminated[step, row] or segment.truncated[step, row]:
                    if row != void and not partial[row]:
                        expected.append((totals[row], lengths[row]))
                    partial[row] = False
                    totals[row], lengths[row] = 0.0, 0
        if void < rows:
            totals[void], lengths[void], partial[void] = 0.0, 0, True
        assert [(episode.total, episode.length) for episode in log.read(segment)] == expected
        other = EpisodeLog(rows)
        other.restore(data.decode(data.encode(log.save())))
        log = other
