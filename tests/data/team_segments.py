"""Segments of teams as a simulator writes them: agents that leave early, episodes that end and that are cut off."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ludus.data import nest as nests
from ludus.data.actions import Discrete
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec

NUM_CHOICES = 3
OBS = ArraySpec((4,), np.float32)


class Played(NamedTuple):
    """What is known of the envs besides what their rows say."""

    segment: Segment
    terminated: np.ndarray  # [T, W] the episode of the env
    truncated: np.ndarray
    cut_off: np.ndarray  # [T + 1, W, A] agents that were cut off with their episode, at its final observation


def play(
    *,
    num_steps: int = 12,
    num_envs: int = 3,
    num_agents: int = 2,
    seed: int = 0,
    obs: Nest = OBS,
    global_state: Nest = None,
    state: Nest = None,
    leave: float = 0.1,
    end: float = 0.2,
    has_mask: bool = True,
) -> Played:
    """`leave`: how often an agent leaves before the others; `end`: how often all that are there end at once."""
    rng = np.random.default_rng([seed, 77])
    segment = Segment.allocate(
        num_steps,
        num_envs * num_agents,
        obs=obs,
        action=Discrete(NUM_CHOICES),
        global_state=global_state,
        num_envs=num_envs,
        state=state,
        has_mask=has_mask,
    )
    for leaf in nests.leaves([segment.obs, segment.global_state, segment.state, segment.reward, segment.logp]):
        if leaf is not None:
            leaf[...] = rng.standard_normal(leaf.shape)
    segment.action[...] = rng.integers(NUM_CHOICES, size=segment.action.shape)
    if has_mask:
        segment.mask[...] = rng.random(segment.mask.shape) < 0.6
        np.put_along_axis(segment.mask[:-1], segment.action[..., None], True, -1)
        segment.mask[-1, :, 0] = True
    shape = (num_steps, num_envs)
    played = Played(
        segment,
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.bool_),
        np.zeros((num_steps + 1, num_envs, num_agents), np.bool_),
    )
    for env in range(num_envs):
        _play_env(played, env, num_agents, rng, leave, end)
    return played


def _play_env(played: Played, env: int, num_agents: int, rng: np.random.Generator, leave: float, end: float) -> None:
    segment = played.segment
    rows = slice(env * num_agents, (env + 1) * num_agents)
    is_there = np.ones(num_agents, np.bool_)
    segment.first[0, rows] = rng.random() < 0.5
    for step in range(segment.num_steps):
        segment.active[step, rows] = is_there
        if not is_there.any():  # the final observation: what is done here begins the next episode
            segment.reward[step, rows] = 0.0
            segment.first[step + 1, rows] = is_there[:] = True
            continue
        leaves = is_there & (rng.random(num_agents) < leave)
        if rng.random() < end:
            leaves = is_there.copy()
        is_cut_off = leaves & (rng.random(num_agents) < 0.5)
        segment.terminated[step, rows], segment.truncated[step, rows] = leaves & ~is_cut_off, is_cut_off
        segment.reward[step, rows] *= is_there
        is_there &= ~leaves
        if not is_there.any():
            played.truncated[step, env] = is_cut_off.any()
            played.terminated[step, env] = not is_cut_off.any()
            played.cut_off[step + 1, env] = is_cut_off
    segment.active[-1, rows] = is_there
