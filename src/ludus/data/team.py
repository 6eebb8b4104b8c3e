"""Teams: the agents of an env as one row, for algorithms that learn from them together.

    joined = join_agents(segment, num_agents=3)                   # R = W * 3 rows become W
    joined.obs["obs"], joined.obs["active"]                       # [T + 1, W, 3, ...], [T + 1, W, 3]
    joined.action, joined.reward, joined.mask                     # [T, W, 3], [T, W], [T + 1, W, 3 * choices]
    TrajectorySpec(**joined_spec(obs=..., action=..., num_agents=3))

A joined segment is an ordinary one, so whatever keeps and draws trajectories does so with it. Its episodes are those of
the env: an episode ends when its last agent has, and is cut off if any agent is cut off then. A team's reward is one
number: the mean over its agents of what each gets, or the sum.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.errors import DataError

__all__ = ["REWARDS", "TeamEnds", "join_agents", "joined_spec", "share_reward", "team_ends"]

REWARDS = ("mean", "sum")
"""How a team's reward is made of those of its agents."""


class TeamEnds(NamedTuple):
    """The flags of a segment for whole envs, in the order of `Segment.ends`."""

    terminated: Any  # bool [T, W]
    truncated: Any  # bool [T, W]
    active: Any  # bool [T + 1, W] any agent acts
    first: Any  # bool [T + 1, W]


def team_ends(segment: Segment, num_agents: int) -> TeamEnds:
    """When the envs' episodes end, from the flags of their agents: arrays or tensors."""
    acts = _by_env(segment.active, num_agents).any(-1)
    terminated, truncated = (_by_env(flag, num_agents) for flag in (segment.terminated, segment.truncated))
    is_over = (terminated | truncated).any(-1) & ~acts[1:]
    cut_off = is_over & truncated.any(-1)
    return TeamEnds(is_over & ~cut_off, cut_off, acts, _by_env(segment.first, num_agents).any(-1))


def join_agents(segment: Segment, num_agents: int, *, reward: str = "mean") -> Segment:
    """The segment with a row for each env. Arrays are shared where nothing is computed.

    `obs` is `{"obs", "active", "global_state"}`, the last if the env has one. `active` says whose part counts in what
    is seen: those that act, and at the final observation of an episode that was cut off those that were cut off.
    """
    ends = team_ends(segment, num_agents)
    each = _by_env(segment.active, num_agents)
    counts = each.copy()
    counts[1:] |= _by_env(segment.truncated, num_agents) & ends.truncated[..., None]
    obs = {"obs": nests.map(lambda leaf: _by_env(leaf, num_agents), segment.obs), "active": counts}
    if segment.global_state is not None:
        obs["global_state"] = segment.global_state
    mask = segment.mask
    return Segment(
        obs=obs,
        first=ends.first,
        active=ends.active,
        action=_by_env(segment.action, num_agents),
        logp=(_by_env(segment.logp, num_agents) * each[:-1]).sum(-1),
        reward=_team_reward(segment.reward, num_agents, reward),
        terminated=ends.terminated,
        truncated=ends.truncated,
        version=segment.version,
        mask=None if mask is None else mask.reshape(len(mask), -1, num_agents * mask.shape[-1]),
        state=nests.map(lambda leaf: None if leaf is None else _by_env(leaf, num_agents, axis=0), segment.state),
        extra=nests.map(lambda leaf: None if leaf is None else _by_env(leaf, num_agents), segment.extra),
    )


def joined_spec(
    *,
    obs: Nest,
    action: ArraySpec,
    num_agents: int,
    mask_size: int = 0,
    global_state: Nest = None,
    state: Nest = None,
) -> dict[str, Any]:
    """The fields of a `TrajectorySpec` of joined segments, from those of single rows, and of an env's global state."""

    def of_all(leaf: Any) -> Any:
        return None if leaf is None else ArraySpec((num_agents, *leaf.shape), leaf.dtype)

    joined = {"obs": nests.map(of_all, obs), "active": ArraySpec((num_agents,), np.bool_)}
    if global_state is not None:
        joined["global_state"] = global_state
    return {
        "obs": joined,
        "action": of_all(action),
        "mask_size": num_agents * mask_size,
        "state": nests.map(of_all, state),
    }


def share_reward(segment: Segment, num_agents: int, *, reward: str = "mean") -> Segment:
    """The segment with the team's reward in the rows of all its agents."""
    shared = _team_reward(segment.reward, num_agents, reward)
    return dataclasses.replace(segment, reward=shared.repeat(num_agents, 1))


def _team_reward(reward: NDArray[np.float32], num_agents: int, how: str) -> NDArray[np.float32]:
    each = _by_env(reward, num_agents)
    total: NDArray[np.float32] = each.mean(-1) if how == "mean" else each.sum(-1)
    return total


def _by_env(x: Any, num_agents: int, *, axis: int = 1) -> Any:
    """`[..., W, A, ...]` of `[..., W * A, ...]`."""
    num_rows = x.shape[axis]
    if num_rows % num_agents:
        raise DataError(f"{num_rows} rows are not those of whole envs with {num_agents} agents each")
    return x.reshape(*x.shape[:axis], num_rows // num_agents, num_agents, *x.shape[axis + 1 :])
