"""A bot that is a function of the user's: what it returns is checked, so that an error names the bot.

bot = OwnBot("my_bots.py:make", action_spec)
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data import lookup
from ludus.data.actions import ActionSpec, Discrete
from ludus.data.nest import Nest
from ludus.errors import ConfigError

__all__ = ["OwnBot"]


class OwnBot:
    """Raises `ConfigError` if the function cannot be called without arguments, or returns no `PlayerPolicy`."""

    def __init__(self, model: str, action: ActionSpec) -> None:
        make = lookup.load_attribute(model, what="bot")
        if not callable(make) or _needs_arguments(make):
            raise ConfigError(f"the bot {model!r} must be a function that is called without arguments")
        self._bot = make()
        if not callable(getattr(self._bot, "act", None)) or not hasattr(self._bot, "state_spec"):
            raise ConfigError(
                f"the bot {model!r} returned a {type(self._bot).__name__}: it must have act(obs, state, first, rng, "
                "mask, greedy=...) and state_spec, as ludus.league.players.PlayerPolicy says"
            )
        self._model = model
        self._action = action
        self.state_spec: Nest = self._bot.state_spec
        self.needs_boards = bool(getattr(self._bot, "needs_boards", False))

    def act(
        self,
        obs: Nest,
        state: Nest,
        first: NDArray[np.bool_],
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        *,
        greedy: bool = False,
        **boards: NDArray[np.int64] | None,
    ) -> tuple[NDArray[Any], NDArray[np.float32], Nest]:
        """Raises `ConfigError` if there is not one action for each row, or an illegal one."""
        found = self._bot.act(obs, state, first, rng, mask, greedy=greedy, **boards)
        if not isinstance(found, tuple) or len(found) != 3:
            raise self._invalid("it must return (actions, log-probabilities, state)")
        action, log_prob, after = np.asarray(found[0]), np.asarray(found[1], np.float32), found[2]
        if action.ndim < 1 or len(action) != len(first):
            raise self._invalid(f"its actions have the shape {action.shape}: one is needed for each of {len(first)}")
        if isinstance(self._action, Discrete):
            self._check_discrete(action, mask, self._action.num_choices)
        return action, np.broadcast_to(log_prob, (len(first),)), after

    def _check_discrete(self, action: NDArray[Any], mask: NDArray[np.bool_] | None, num_choices: int) -> None:
        if action.ndim != 1 or action.dtype.kind not in "iu":
            raise self._invalid(f"its actions are {action.dtype} {action.shape}: they must be integers, one for each")
        is_legal = (action >= 0) & (action < num_choices)
        if mask is not None:
            is_legal &= mask[np.arange(len(action)), np.where(is_legal, action, 0)]
        if not is_legal.all():
            row = int(is_legal.argmin())
            legal = list(range(num_choices)) if mask is None else np.flatnonzero(mask[row]).tolist()
            raise self._invalid(f"it chose {action[row]}; legal are {legal}")

    def _invalid(self, what: str) -> ConfigError:
        return ConfigError(f"the bot {self._model!r} cannot play: {what}. Fix it, or leave it out")


def _needs_arguments(make: Any) -> bool:
    try:
        inspect.signature(make).bind()
    except ValueError:  # one in C, which has no signature
        return False
    except TypeError:
        return True
    return False
