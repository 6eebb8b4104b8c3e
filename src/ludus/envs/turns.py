"""Agents that take turns: one PettingZoo `AECEnv` as a `SingleEnv`."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ludus.core import TimeStep
from ludus.envs.agents import Agents
from ludus.errors import EnvError

__all__ = ["TurnEnv"]


class TurnEnv:
    """Only the agent to move is active. All see the env after every move, and get what it brings them."""

    def __init__(self, name: str, env: Any) -> None:
        self._env = env
        env.reset(seed=0)
        self._agents = Agents(name, env, env.infos)
        self.spec = self._agents.spec
        self._left: set[str] = set()

    def reset(self, seed: int, rows: TimeStep) -> None:
        self._env.reset(seed=seed)
        self._left.clear()
        self._agents.forget(rows)
        if self._show(rows):
            raise EnvError(f"{self.spec.name} was over before anybody moved")

    def step(self, action: NDArray[Any], rows: TimeStep) -> bool:
        env = self._env
        row = self._agents.index[env.agent_selection]
        env.step(self._agents.to_env[row](action[row]))
        return self._show(rows)

    def close(self) -> None:
        self._env.close()

    def _show(self, rows: TimeStep) -> bool:
        """Write what the last move led to, and go on to the next agent that can move. True if none can."""
        env, agents = self._env, self._agents
        for agent in env.agents:
            row = agents.index[agent]
            agents.see(agent, env.observe(agent), env.infos.get(agent), rows)
            if agent in self._left:  # what comes to it now belongs to no episode: its own is over
                continue
            rows.reward[row] = env.rewards[agent]
            terminated, truncated = env.terminations[agent], env.truncations[agent]
            if terminated or truncated:
                self._left.add(agent)
                rows.terminated[row] = terminated
                rows.truncated[row] = truncated
        agents.see_state(env, rows)
        rows.active[:] = False
        if self._left.issuperset(env.agents):
            return True
        if env.agent_selection in self._left:
            while env.agent_selection in self._left:  # the library has those who left take their leave one by one
                env.step(None)
            agents.see(env.agent_selection, env.observe(env.agent_selection), env.infos.get(env.agent_selection), rows)
        rows.active[agents.index[env.agent_selection]] = True
        return False
