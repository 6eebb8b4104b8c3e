"""`TeamVectorEnv`: many games of two players who get the same, stage by stage."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, TimeStep, VectorEnvStats
from ludus.data.actions import Discrete
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.envs import rows
from ludus.envs.matrix.team_games import TeamGame
from ludus.errors import EnvError

__all__ = ["TeamVectorEnv"]


class TeamVectorEnv:
    """Both players see the stage, and so does the global state; nothing when the game is over. Nothing is random."""

    def __init__(self, name: str, game: TeamGame, num_envs: int) -> None:
        self.game = game
        self.num_envs = num_envs
        stage = ArraySpec((game.num_stages,), np.float32, 0.0, 1.0)
        self.spec = EnvSpec(
            name=name,
            obs=stage,
            action=Discrete(game.num_choices),
            agents=("player_0", "player_1"),
            global_state=stage,
        )
        self._now = rows.allocate(self.spec, num_envs)
        self._seen = np.concatenate((np.eye(game.num_stages, dtype=np.float32), np.zeros((1, game.num_stages))))
        self._stage: NDArray[np.int64] = np.zeros(num_envs, np.int64)  # -1: over
        self._action: NDArray[Any] | None = None  # sent and not yet received
        self._num_steps = self._num_ended = 0
        self._is_reset = self._is_closed = False

    @property
    def num_rows(self) -> int:
        return 2 * self.num_envs

    def reset(self, seed: int) -> TimeStep:
        del seed
        if self._is_closed:
            raise EnvError(f"these envs of {self.spec.name} are closed")
        self._is_reset, self._action = True, None
        self._stage[:] = 0
        return self._show(np.zeros(self.num_envs, np.float32), np.ones(self.num_envs, np.bool_))

    def send(self, action: NDArray[Any]) -> None:
        if self._action is not None or not self._is_reset:
            problem = "a step is under way" if self._action is not None else "`reset` them first"
            raise EnvError(f"{self.spec.name}: {'these envs are closed' if self._is_closed else problem}")
        if action.shape != (self.num_rows,) or action.dtype.kind not in "iu":
            raise EnvError(
                f"{self.spec.name}: the actions are {action.dtype}{list(action.shape)}, not int64{[self.num_rows]}"
            )
        invalid = ((action < 0) | (action >= self.game.num_choices)) & np.repeat(self._stage >= 0, 2)
        if invalid.any():
            row = int(np.argmax(invalid))
            raise EnvError(
                f"{self.spec.name}: {action[row]} in env {row // 2} is no action of this game. Choose from 0 to "
                f"{self.game.num_choices - 1}"
            )
        self._action = action.copy()

    def recv(self) -> TimeStep:
        if self._action is None:
            raise EnvError(f"{self.spec.name}: there is nothing to `recv`; `send` an action first")
        action, self._action = self._action, None
        first = self._stage < 0
        at = self._stage, np.where(first, 0, action[::2]), np.where(first, 0, action[1::2])
        reward = np.where(first, np.float32(0.0), self.game.payoff[at])
        self._stage = np.where(first, 0, self.game.next_stage[at])
        self._num_steps += int((~first).sum())
        self._num_ended += int((self._stage < 0).sum())
        return self._show(reward, first)

    def step(self, action: NDArray[Any]) -> TimeStep:
        self.send(action)
        return self.recv()

    def _show(self, reward: NDArray[np.float32], first: NDArray[np.bool_]) -> TimeStep:
        now, seen, is_over = self._now, self._seen[self._stage], self._stage < 0
        now.obs[...] = seen.repeat(2, 0)
        now.global_state[...] = seen
        now.reward[:] = reward.repeat(2)
        now.first[:] = first.repeat(2)
        now.terminated[:] = is_over.repeat(2)
        now.active[:] = ~now.terminated
        return now

    def save(self) -> Nest:
        if self._action is not None or not self._is_reset:
            return None
        return {
            "stage": self._stage.copy(),
            "num_steps": self._num_steps,
            "num_ended": self._num_ended,
            "now": rows.to_nest(self._now),
        }

    def restore(self, saved: Nest) -> TimeStep:
        if self._is_closed:
            raise EnvError(f"these envs of {self.spec.name} are closed")
        try:
            now = rows.allocate(self.spec, self.num_envs)
            rows.copy_into(now, saved["now"])
            stage, num_steps, num_ended = np.array(saved["stage"]), saved["num_steps"], saved["num_ended"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvError(f"this was not saved by envs of {self.spec.name}: {error!r}") from error
        self._now, self._stage = now, stage
        self._num_steps, self._num_ended = num_steps, num_ended
        self._action, self._is_reset = None, True
        return now

    def statistics(self) -> VectorEnvStats:
        return VectorEnvStats(num_steps=self._num_steps, num_episodes=self._num_ended)

    def close(self) -> None:
        self._is_reset, self._is_closed, self._action = False, True, None
