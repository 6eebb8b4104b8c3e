"""`AgentIds`: a vector env whose agents also see which one they are, for policies that all of them share.

A one-hot of the agent is appended to observations that are one float vector; of others it becomes a part:
`{"agent": one-hot, "obs": what is seen}`. `registry.make(..., agent_ids=True)` wraps envs of several agents in it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, TimeStep, VectorEnv, VectorEnvStats
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec

__all__ = ["AgentIds"]


class AgentIds:
    """All but `obs` is as `inside` has it."""

    def __init__(self, inside: VectorEnv) -> None:
        self.inside = inside
        self.num_envs = inside.num_envs
        spec, num_agents = inside.spec, len(inside.spec.agents)
        one_hot = np.tile(np.eye(num_agents, dtype=np.float32), (self.num_envs, 1))
        self._seen: Nest = {"agent": one_hot, "obs": None}
        self._vector: NDArray[np.float32] | None = None  # what is seen, then the one-hot
        obs: Nest = {"agent": ArraySpec((num_agents,), np.float32, 0.0, 1.0), "obs": spec.obs}
        if isinstance(spec.obs, ArraySpec) and len(spec.obs.shape) == 1 and spec.obs.dtype == np.float32:
            self._size = spec.obs.shape[0]
            obs = _longer(spec.obs, num_agents)
            self._vector = np.concatenate((np.zeros((inside.num_rows, self._size), np.float32), one_hot), axis=1)
        self.spec: EnvSpec = dataclasses.replace(spec, obs=obs)

    @property
    def num_rows(self) -> int:
        return self.inside.num_rows

    def reset(self, seed: int) -> TimeStep:
        return self._with_ids(self.inside.reset(seed))

    def send(self, action: NDArray[Any]) -> None:
        self.inside.send(action)

    def recv(self) -> TimeStep:
        return self._with_ids(self.inside.recv())

    def step(self, action: NDArray[Any]) -> TimeStep:
        return self._with_ids(self.inside.step(action))

    def save(self) -> Nest:
        return self.inside.save()

    def restore(self, saved: Nest) -> TimeStep:
        return self._with_ids(self.inside.restore(saved))

    def statistics(self) -> VectorEnvStats:
        return self.inside.statistics()

    def close(self) -> None:
        self.inside.close()

    def _with_ids(self, now: TimeStep) -> TimeStep:
        if self._vector is None:
            return dataclasses.replace(now, obs={**self._seen, "obs": now.obs})
        self._vector[:, : self._size] = now.obs
        return dataclasses.replace(now, obs=self._vector)


def _longer(spec: ArraySpec, num_agents: int) -> ArraySpec:
    """With room for the one-hot, and its bounds where there are any."""
    if spec.minimum is None or spec.maximum is None:
        return ArraySpec((spec.shape[0] + num_agents,), spec.dtype)
    low, high = (np.broadcast_to(np.asarray(bound), spec.shape) for bound in (spec.minimum, spec.maximum))
    return ArraySpec(
        (spec.shape[0] + num_agents,),
        spec.dtype,
        np.concatenate((low, np.zeros(num_agents))),
        np.concatenate((high, np.ones(num_agents))),
    )
