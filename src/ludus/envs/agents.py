"""The agents of one env in one form: what each sees and can do, padded to the largest.

Flat `Box` observations of different lengths are filled up with zeros; `Discrete` actions of different numbers get as
many choices as the most, and a mask. Agents that differ in any other way have no common form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ludus.core import EnvSpec, TimeStep
from ludus.data import nest as nests
from ludus.data.actions import ActionSpec, Discrete
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.envs import rows as arrays
from ludus.envs import spaces
from ludus.envs.validation import check_sizes
from ludus.errors import EnvError

__all__ = ["Agents"]


class Agents:
    """Built from a PettingZoo environment that has been reset: `spec`, and how each agent's row is read and written."""

    def __init__(self, name: str, env: Any, infos: dict[str, Any]) -> None:
        self.names: tuple[str, ...] = tuple(env.possible_agents)
        self.index = {agent: row for row, agent in enumerate(self.names)}
        seen = [env.observation_space(agent) for agent in self.names]
        done = [env.action_space(agent) for agent in self.names]
        self._splits = all(hasattr(space, "keys") and set(space) == {"observation", "action_mask"} for space in seen)
        obs = [spaces.obs_spec(space["observation"] if self._splits else space) for space in seen]
        actions = [spaces.action_spec(space) for space in done]
        self.to_env = [spaces.one_to_env(space) for space in done]
        common_obs, self._lengths = _common_obs(name, self.names, obs)
        action, is_padded = _common_action(name, self.names, actions)
        self._choices = [each.mask_size for each in actions]
        self._num_to_check = 2 * len(self.names)  # at the first beginning and in the first step
        in_info = any("action_mask" in infos.get(agent, ()) for agent in self.names)
        self.spec = EnvSpec(
            name=name,
            obs=common_obs,
            action=action,
            agents=self.names,
            global_state=_state_spec(env),
            has_mask=self._splits or in_info or is_padded,
        )

    def see(self, agent: str, obs: Any, info: Any, rows: TimeStep) -> None:
        """Write what one agent sees and may do."""
        row = self.index[agent]
        if rows.mask is not None:
            mask = obs["action_mask"] if self._splits else (info or {}).get("action_mask")
            self._write_mask(row, mask, rows.mask)
        if self._splits:
            obs = obs["observation"]
        if self._num_to_check:
            self._num_to_check -= 1
            check_sizes(rows.obs if self._lengths is None else rows.obs[:, : self._lengths[row]], obs)
        if self._lengths is None:
            arrays.write(rows.obs, row, obs)
        else:
            rows.obs[row, : self._lengths[row]] = obs

    def see_state(self, env: Any, rows: TimeStep) -> None:
        """Write what the whole env is like, where it tells."""
        if rows.global_state is not None:
            rows.global_state[0] = env.state()

    def forget(self, rows: TimeStep) -> None:
        """Before an episode begins: nobody is there, nothing is seen."""
        rows.active[:] = False
        for leaf in nests.leaves(rows.obs):
            leaf.fill(0)
        if rows.mask is not None:
            for row in range(len(self.names)):
                self._write_mask(row, None, rows.mask)

    def _write_mask(self, row: int, mask: Any, out: Any) -> None:
        num = self._choices[row]
        out[row, :num] = True if mask is None or not np.any(mask) else mask
        out[row, num:] = False


def _common_obs(name: str, agents: Sequence[str], specs: Sequence[Nest]) -> tuple[Nest, list[int] | None]:
    """The form of all, and, if it is padded, the true length of each."""
    if all(spec == specs[0] for spec in specs):
        return specs[0], None
    unbounded = [nests.map(lambda leaf: dataclasses.replace(leaf, minimum=None, maximum=None), each) for each in specs]
    if all(spec == unbounded[0] for spec in unbounded):
        return unbounded[0], None
    if all(isinstance(spec, ArraySpec) and len(spec.shape) == 1 for spec in specs):
        dtypes = {spec.dtype for spec in specs}
        if len(dtypes) == 1:
            lengths = [spec.shape[0] for spec in specs]
            return ArraySpec((max(lengths),), dtypes.pop()), lengths
    raise EnvError(_differ(name, agents, "see", specs))


def _common_action(name: str, agents: Sequence[str], specs: Sequence[ActionSpec]) -> tuple[ActionSpec, bool]:
    """The form of all, and whether it is padded."""
    if all(spec == specs[0] for spec in specs):
        return specs[0], False
    nums = [spec.num_choices for spec in specs if isinstance(spec, Discrete)]
    if len(nums) == len(specs):
        return Discrete(max(nums)), True
    raise EnvError(_differ(name, agents, "can do", specs))


def _differ(name: str, agents: Sequence[str], what: str, specs: Sequence[Any]) -> str:
    other = next(row for row, spec in enumerate(specs) if spec != specs[0])
    return (
        f"the agents of {name} differ in what they {what}, in a way that cannot be padded: {agents[0]} has {specs[0]}, "
        f"{agents[other]} has {specs[other]}. Wrap the environment so that they are alike"
    )


def _state_spec(env: Any) -> ArraySpec | None:
    """Many environments have a `state` that raises, or none."""
    try:
        state = np.asarray(env.state())
    except Exception:
        return None
    if state.dtype.kind not in "biuf":
        return None
    return ArraySpec(state.shape, np.float32 if state.dtype == np.float64 else state.dtype)
