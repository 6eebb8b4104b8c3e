"""Agents that act together: one PettingZoo `ParallelEnv` as a `SingleEnv`."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ludus.core import TimeStep
from ludus.envs.agents import Agents

__all__ = ["ParallelAgentsEnv"]


class ParallelAgentsEnv:
    """An agent that leaves before the others has `terminated` or `truncated` then, and is inactive until the next
    episode; its row keeps the last it saw."""

    def __init__(self, name: str, env: Any) -> None:
        self._env = env
        _, infos = env.reset(seed=0)
        self._agents = Agents(name, env, infos)
        self.spec = self._agents.spec
        self._left: set[str] = set()

    def reset(self, seed: int, rows: TimeStep) -> None:
        obs, infos = self._env.reset(seed=seed)
        self._left.clear()
        self._agents.forget(rows)
        for agent in self._env.agents:
            self._agents.see(agent, obs[agent], infos.get(agent), rows)
            rows.active[self._agents.index[agent]] = True
        self._agents.see_state(self._env, rows)

    def step(self, action: NDArray[Any], rows: TimeStep) -> bool:
        env, agents, left = self._env, self._agents, self._left
        index, to_env = agents.index, agents.to_env
        acts = {agent: to_env[index[agent]](action[index[agent]]) for agent in env.agents}
        obs, rewards, terminated, truncated, infos = env.step(acts)
        for agent, reward in rewards.items():
            row = index[agent]
            if agent in left:  # what comes to it now belongs to no episode: its own is over
                continue
            rows.reward[row] = reward
            if agent in obs:
                agents.see(agent, obs[agent], infos.get(agent), rows)
            rows.terminated[row] = terminated[agent]
            rows.truncated[row] = truncated[agent]
            if terminated[agent] or truncated[agent]:
                left.add(agent)
            rows.active[row] = agent not in left
        agents.see_state(env, rows)
        return not env.agents or left.issuperset(env.agents)

    def close(self) -> None:
        self._env.close()
