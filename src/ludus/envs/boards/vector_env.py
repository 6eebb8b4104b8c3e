"""`BoardVectorEnv`: many games by the same rules, as a group of envs in which players take turns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, Rules, TimeStep, VectorEnvStats
from ludus.data.actions import Discrete
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.envs import rows
from ludus.envs.boards.openings import Openings
from ludus.envs.failures import RAISED, expect_own
from ludus.errors import EnvError

__all__ = ["BoardVectorEnv"]


class BoardVectorEnv:
    """Only the player to move is active. The mask of all rows of a board is what that player may do; after the end it
    allows everything. `global_state` has the states of the boards, by which a search looks ahead in them.

    `random_moves`: each episode begins after 0 to so many random moves, see `openings.py`. An illegal move raises
    `EnvError` and changes nothing.
    """

    def __init__(self, name: str, rules: Rules, num_envs: int, *, random_moves: int = 0) -> None:
        _check(name, rules)
        if type(random_moves) is not int or not 0 <= random_moves < rules.max_moves:
            raise EnvError(f"{name}: random_moves={random_moves!r} must be an int from 0 to {rules.max_moves - 1}")
        self.num_envs = num_envs
        self.rules = rules
        self.spec = EnvSpec(
            name=name,
            obs=rules.obs,
            action=Discrete(rules.num_actions),
            agents=tuple(f"player_{player}" for player in range(rules.num_players)),
            global_state=rules.state,
            has_mask=True,
        )
        self._openings = Openings(rules, random_moves)
        self._envs = np.arange(num_envs)
        self._player = np.tile(np.arange(rules.num_players), num_envs)  # of each row
        self._now = rows.allocate(self.spec, num_envs)
        self._state = rules.start(num_envs)
        self._legal = np.ones((num_envs, rules.num_actions), np.bool_)
        self._mover = np.zeros(num_envs, np.int64)
        self._over = np.ones(num_envs, np.bool_)
        self._action: NDArray[np.int64] | None = None  # one for each board, sent and not yet received
        self._num_steps = self._num_ended = 0
        self._is_reset = self._is_closed = False

    @property
    def num_rows(self) -> int:
        return len(self._player)

    def reset(self, seed: int) -> TimeStep:
        if self._is_closed:
            raise EnvError(f"these envs of {self.spec.name} are closed")
        self._is_reset, self._action = True, None
        self._openings.restart(int(seed))
        self._over = np.zeros(self.num_envs, np.bool_)
        reward = np.zeros((self.num_envs, self.rules.num_players), np.float32)
        return self._show(self._openings.take(self.num_envs), reward, ~self._over)

    def send(self, action: NDArray[Any]) -> None:
        if self._action is not None or not self._is_reset:
            problem = "a step is under way" if self._action is not None else "`reset` them first"
            raise EnvError(f"{self.spec.name}: {'these envs are closed' if self._is_closed else problem}")
        if action.shape != (self.num_rows,) or action.dtype.kind not in "iu":
            raise EnvError(
                f"{self.spec.name}: the actions are {action.dtype}{list(action.shape)}, not integers [{self.num_rows}]"
            )
        chosen = action.reshape(self.num_envs, -1)[self._envs, self._mover].astype(np.int64)
        within = (chosen >= 0) & (chosen < self.rules.num_actions)
        allowed = self._legal[self._envs, np.where(within, chosen, 0)] & within
        allowed |= self._over
        if not allowed.all():
            raise EnvError(self._illegal_move(chosen, int(np.argmin(allowed))))
        self._action = chosen

    def recv(self) -> TimeStep:
        if self._action is None:
            raise EnvError(f"{self.spec.name}: there is nothing to `recv`; `send` an action first")
        action, self._action = self._action, None
        try:
            return self._step(action)
        except RAISED as error:
            expect_own(error)
            raise EnvError(
                f"the rules of {self.spec.name} raised {type(error).__name__}: {error}. The games cannot go on; fix "
                "the rules: the tests of `ludus.testing.rules` may show what is wrong with them"
            ) from error

    def step(self, action: NDArray[Any]) -> TimeStep:
        self.send(action)
        return self.recv()

    def save(self) -> Nest:
        if self._action is not None or not self._is_reset:
            return None
        return {
            "state": self._state.copy(),
            "over": self._over.copy(),
            "seed": self._openings.seed,
            "num_opened": self._openings.num_taken,
            "num_steps": self._num_steps,
            "num_ended": self._num_ended,
            "now": rows.to_nest(self._now),
        }

    def restore(self, saved: Nest) -> TimeStep:
        if self._is_closed:
            raise EnvError(f"these envs of {self.spec.name} are closed")
        try:
            state, over = saved["state"].copy(), saved["over"].copy()
            if state.shape != self._state.shape or state.dtype != self._state.dtype:
                raise EnvError(f"states {state.shape} of boards were saved; those of {self.spec.name} are other ones")
            now = rows.allocate(self.spec, self.num_envs)
            rows.copy_into(now, saved["now"])
            seed, num_opened = saved["seed"], saved["num_opened"]
            counts = saved["num_steps"], saved["num_ended"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvError(f"this was not saved by envs of {self.spec.name}: {error!r}") from error
        self._state, self._over, self._now = state, over, now
        self._num_steps, self._num_ended = counts
        self._openings.restart(seed, num_opened)
        self._legal, self._mover = self._choices()
        self._action, self._is_reset = None, True
        return self._now

    def statistics(self) -> VectorEnvStats:
        return VectorEnvStats(num_steps=self._num_steps, num_episodes=self._num_ended)

    def close(self) -> None:
        self._is_reset, self._is_closed, self._action = False, True, None

    # --- moves

    def _step(self, action: NDArray[np.int64]) -> TimeStep:
        """Move on the boards that are in play, and begin again on the others."""
        ended = np.flatnonzero(self._over)
        if not len(ended):
            state, reward, over = self.rules.step(self._state, action)
        else:
            live = np.flatnonzero(~self._over)
            state = np.empty_like(self._state)
            reward = np.zeros((self.num_envs, self.rules.num_players), np.float32)
            over = np.zeros(self.num_envs, np.bool_)
            if len(live):
                state[live], reward[live], over[live] = self.rules.step(self._state[live], action[live])
            state[ended] = self._openings.take(len(ended))
        started, self._over = self._over, over
        shown = self._show(state, reward, started)
        self._num_steps += self.num_envs - len(ended)
        self._num_ended += int(np.count_nonzero(over))
        return shown

    def _show(self, state: NDArray[np.int64], reward: NDArray[np.float32], started: NDArray[np.bool_]) -> TimeStep:
        """Write down what is so now, of which boards the game has just started and, by `_over`, is over."""
        num_players = self.rules.num_players
        self._state = state
        self._legal, self._mover = self._choices()
        now = self._now
        seen = self.rules.observe(np.repeat(state, num_players, axis=0), self._player)
        now.obs = np.ascontiguousarray(seen, np.float32)
        now.reward = reward.reshape(-1)
        now.first = np.repeat(started, num_players)
        now.terminated = np.repeat(self._over, num_players)
        active = np.zeros((self.num_envs, num_players), np.bool_)
        active[self._envs, self._mover] = ~self._over
        now.active = active.reshape(-1)
        now.mask = np.repeat(self._legal, num_players, axis=0)
        now.global_state = state
        return now

    def _choices(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """What may be done on each board, everything where the game is over, and whose turn it is."""
        legal = self.rules.legal(self._state)
        legal |= self._over[:, None]
        return legal, self.rules.to_move(self._state)

    def _illegal_move(self, chosen: NDArray[np.int64], env: int) -> str:
        legal = np.flatnonzero(self._legal[env]).tolist()
        return (
            f"{self.spec.name}: player_{self._mover[env]} of env {env} cannot make the move {chosen[env]}; legal are "
            f"{legal}. Choose among those that the mask allows"
        )


def _check(name: str, rules: Rules) -> None:
    """Raise `EnvError` unless the rules say what is needed to play by them."""
    for field in ("obs", "state"):
        if not isinstance(getattr(rules, field), ArraySpec):
            raise EnvError(f"{name}: `{field}` of its rules is {getattr(rules, field)!r}; it must be an ArraySpec")
    for field in ("num_players", "num_actions", "max_moves"):
        if not isinstance(getattr(rules, field), int) or getattr(rules, field) < 1:
            raise EnvError(f"{name}: `{field}` of its rules is {getattr(rules, field)!r}; it must be an int from 1 on")
    start, shape = rules.start(1), (1, *rules.state.shape)
    if start.shape != shape or start.dtype != np.int64 or rules.state.dtype != np.int64:
        raise EnvError(f"{name}: its rules start with {start.dtype}{start.shape} for one board, not with int64{shape}")
    legal = rules.legal(start)
    if legal.shape != (1, rules.num_actions) or legal.dtype != np.bool_:
        raise EnvError(
            f"{name}: its rules gave {legal.dtype}{legal.shape} as legal moves of one board, not "
            f"bool{(1, rules.num_actions)}"
        )
