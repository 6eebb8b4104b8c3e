"""`OneMoveVectorEnv`: many games of one move. All players act in the first step; the second begins the next episode."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, TimeStep, VectorEnvStats
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.envs import rows
from ludus.envs.matrix.games import OneMoveGame
from ludus.errors import EnvError

__all__ = ["OneMoveVectorEnv"]


class OneMoveVectorEnv:
    """Nothing is to be seen but the side one is on, where the sides differ. Nothing is random here."""

    def __init__(self, name: str, game: OneMoveGame, num_envs: int) -> None:
        self.game = game
        self.num_envs = num_envs
        self.spec = EnvSpec(
            name=name,
            obs=ArraySpec((2,), np.float32, 0.0, 1.0),
            action=game.action,
            agents=("player_0", "player_1"),
            has_mask=game.mask is not None,
        )
        self._now = rows.allocate(self.spec, num_envs)
        seen = np.array([[1.0, 0.0], [1.0, 0.0] if game.is_symmetric else [0.0, 1.0]], np.float32)
        self._now.obs = np.tile(seen, (num_envs, 1))
        if game.mask is not None:
            self._now.mask = np.tile(game.mask, (num_envs, 1))
        self._is_over = False
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
        return self._begin()

    def send(self, action: NDArray[Any]) -> None:
        if self._action is not None or not self._is_reset:
            problem = "a step is under way" if self._action is not None else "`reset` them first"
            raise EnvError(f"{self.spec.name}: {'these envs are closed' if self._is_closed else problem}")
        expected = self.spec.action.array
        kinds = "iu" if expected.dtype.kind == "i" else "f"
        if action.shape != (self.num_rows, *expected.shape) or action.dtype.kind not in kinds:
            raise EnvError(
                f"{self.spec.name}: the actions are {action.dtype}{list(action.shape)}, not "
                f"{expected.dtype}{[self.num_rows, *expected.shape]}"
            )
        if not self._is_over:
            legal = self.game.is_legal(action[::2], action[1::2])
            if not legal.all():
                env = int(np.argmin(legal))
                raise EnvError(
                    f"{self.spec.name}: {action[2 * env]} and {action[2 * env + 1]} in env {env} are no actions of "
                    "this game. Choose among those of its spec, and of the mask if it has one"
                )
        self._action = action.copy()

    def recv(self) -> TimeStep:
        if self._action is None:
            raise EnvError(f"{self.spec.name}: there is nothing to `recv`; `send` an action first")
        action, self._action = self._action, None
        if self._is_over:
            return self._begin()
        now = self._now
        now.reward[::2] = self.game.scores(action[::2], action[1::2])
        now.reward[1::2] = -now.reward[::2]
        now.first[:], now.active[:], now.terminated[:] = False, False, True
        self._is_over = True
        self._num_steps += self.num_envs
        self._num_ended += self.num_envs
        return now

    def step(self, action: NDArray[Any]) -> TimeStep:
        self.send(action)
        return self.recv()

    def _begin(self) -> TimeStep:
        now = self._now
        now.reward[:] = 0.0
        now.first[:], now.active[:], now.terminated[:] = True, True, False
        self._is_over = False
        return now

    def save(self) -> Nest:
        if self._action is not None or not self._is_reset:
            return None
        return {
            "is_over": self._is_over,
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
            is_over, num_steps, num_ended = saved["is_over"], saved["num_steps"], saved["num_ended"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvError(f"this was not saved by envs of {self.spec.name}: {error!r}") from error
        self._now, self._is_over = now, bool(is_over)
        self._num_steps, self._num_ended = num_steps, num_ended
        self._action, self._is_reset = None, True
        return now

    def statistics(self) -> VectorEnvStats:
        return VectorEnvStats(num_steps=self._num_steps, num_episodes=self._num_ended)

    def close(self) -> None:
        self._is_reset, self._is_closed, self._action = False, True, None
