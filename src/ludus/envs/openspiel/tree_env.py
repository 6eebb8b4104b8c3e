"""`TreeVectorEnv`: a small game from its tables, all envs at once by indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, TimeStep, VectorEnvStats
from ludus.data.nest import Nest
from ludus.data.rng import restore_rng, save_rng
from ludus.envs import rows
from ludus.envs.openspiel.tree import OVER, GameTree
from ludus.errors import EnvError

__all__ = ["TreeVectorEnv"]


class TreeVectorEnv:
    """Only the player to move is active. The mask of all rows of a game is what that player may do; after the end it
    allows everything. An illegal action raises `EnvError` and changes nothing.
    """

    def __init__(self, spec: EnvSpec, tree: GameTree, num_envs: int) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self.tree = tree
        self._envs = np.arange(num_envs)
        self._start = np.full(num_envs, tree.start)
        self._now = rows.allocate(spec, num_envs)
        self._node = np.zeros(num_envs, np.int64)
        self._rng = np.random.default_rng(0)
        self._action: NDArray[np.int64] | None = None  # one for each game, sent and not yet received
        self._num_steps = self._num_ended = 0
        self._is_reset = self._is_closed = False

    @property
    def num_rows(self) -> int:
        return self.num_envs * self.tree.num_players

    def reset(self, seed: int) -> TimeStep:
        if self._is_closed:
            raise EnvError(f"these envs of {self.spec.name} are closed")
        self._rng = np.random.default_rng([int(seed) & ((1 << 64) - 1), 0x7EE])
        self._is_reset, self._action = True, None
        node = self.tree.draw(self._start, self._rng.random(self.num_envs))
        return self._show(node, np.ones(self.num_envs, np.bool_))

    def send(self, action: NDArray[Any]) -> None:
        if self._action is not None or not self._is_reset:
            problem = "a step is under way" if self._action is not None else "`reset` them first"
            raise EnvError(f"{self.spec.name}: {'these envs are closed' if self._is_closed else problem}")
        if action.shape != (self.num_rows,) or action.dtype.kind not in "iu":
            raise EnvError(
                f"{self.spec.name}: the actions are {action.dtype}{list(action.shape)}, not integers [{self.num_rows}]"
            )
        tree, node = self.tree, self._node
        player = tree.player[node]
        chosen = action.reshape(self.num_envs, -1)[self._envs, player].astype(np.int64)  # of those over, any row's
        within = (chosen >= 0) & (chosen < tree.num_actions)
        allowed = (tree.legal[node, np.where(within, chosen, 0)] & within) | (player == OVER)
        if not allowed.all():
            env = int(np.argmin(allowed))
            raise EnvError(
                f"{self.spec.name}: player_{player[env]} of env {env} cannot do {chosen[env]}; legal are "
                f"{np.flatnonzero(tree.legal[node[env]]).tolist()}. Choose among those that the mask allows"
            )
        self._action = np.where(player == OVER, 0, chosen)

    def recv(self) -> TimeStep:
        if self._action is None:
            raise EnvError(f"{self.spec.name}: there is nothing to `recv`; `send` an action first")
        action, self._action = self._action, None
        tree = self.tree
        started = tree.player[self._node] == OVER
        lottery = np.where(started, tree.start, tree.lottery[self._node, action])
        node = tree.draw(lottery, self._rng.random(self.num_envs))
        self._num_steps += self.num_envs - int(np.count_nonzero(started))
        self._num_ended += int(np.count_nonzero(tree.player[node] == OVER))
        return self._show(node, started)

    def step(self, action: NDArray[Any]) -> TimeStep:
        self.send(action)
        return self.recv()

    def save(self) -> Nest:
        if self._action is not None or not self._is_reset:
            return None
        return {
            "node": self._node.copy(),
            "rng": save_rng(self._rng),
            "num_steps": self._num_steps,
            "num_ended": self._num_ended,
            "now": rows.to_nest(self._now),
        }

    def restore(self, saved: Nest) -> TimeStep:
        if self._is_closed:
            raise EnvError(f"these envs of {self.spec.name} are closed")
        try:
            node = np.array(saved["node"], np.int64)
            if node.shape != self._node.shape or not ((node >= 0) & (node < len(self.tree.player))).all():
                raise EnvError(f"{len(node)} games were saved; those of {self.spec.name} are other ones")
            now = rows.allocate(self.spec, self.num_envs)
            rows.copy_into(now, saved["now"])
            rng = np.random.default_rng(0)
            restore_rng(rng, saved["rng"])
            counts = saved["num_steps"], saved["num_ended"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvError(f"this was not saved by envs of {self.spec.name}: {error!r}") from error
        self._node, self._now, self._rng = node, now, rng
        self._num_steps, self._num_ended = counts
        self._action, self._is_reset = None, True
        return self._now

    def statistics(self) -> VectorEnvStats:
        return VectorEnvStats(num_steps=self._num_steps, num_episodes=self._num_ended)

    def close(self) -> None:
        self._is_reset, self._is_closed, self._action = False, True, None

    def _show(self, node: NDArray[np.int64], started: NDArray[np.bool_]) -> TimeStep:
        """Write down what is so now, in games of which some have just started."""
        tree, num_players = self.tree, self.tree.num_players
        before, self._node = self._node, node
        gained = np.where(started[:, None], 0.0, tree.returns[node] - tree.returns[before])
        player = tree.player[node]
        now = self._now
        now.obs = tree.obs[node].reshape(self.num_rows, *tree.obs.shape[2:])
        now.reward = gained.astype(np.float32).reshape(-1)
        now.first = np.repeat(started, num_players)
        now.terminated = np.repeat(player == OVER, num_players)
        now.active = (player[:, None] == np.arange(num_players)).reshape(-1)
        now.mask = np.repeat(tree.legal[node], num_players, axis=0)
        return now
