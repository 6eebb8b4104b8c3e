"""How long one waits for games to end, so that one that never does is an error, and not a command that hangs.

limits = limits_for("board:connect_four", {}, steps=0, minutes=60.0)
watch = limits.watch("board:connect_four: no game has ended")
watch.look(num_games, num_steps=16)                # raises `EnvError` when that is so for too long
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ludus import envs
from ludus.clock import SYSTEM, Clock
from ludus.errors import EnvError

__all__ = ["GAME_MINUTES", "GAME_STEPS", "GameLimits", "Watch", "limits_for"]

GAME_STEPS = 100_000
"""Of a game whose rules do not say how many moves it has at most: more than the longest of Atari's episodes."""

GAME_MINUTES = 60.0
"""Between two games that end."""

_STEPS_BETWEEN = 16  # a game ends, and the next one begins: steps in which nobody moves


@dataclass(frozen=True, kw_only=True)
class GameLimits:
    """Of one game, in steps, and of the time between two games that end, where many are played at once."""

    steps: int
    seconds: float

    def watch(self, problem: str, *, clock: Clock = SYSTEM) -> Watch:
        return Watch(self, problem, clock)


class Watch:
    """`look` is called again and again while games are played. `problem`: what is the matter if nothing is done."""

    def __init__(self, limits: GameLimits, problem: str, clock: Clock) -> None:
        self._limits = limits
        self._problem = problem
        self._clock = clock
        self._num_done = 0
        self._num_steps = 0  # of each env, since `num_done` has grown
        self._since = clock.now()

    def look(self, num_done: int, *, num_steps: int) -> None:
        """So much is done so far; `num_steps` were made in each env since the last look.

        Raises `EnvError` if nothing more was done in as many steps as a game may have, or in as much time.
        """
        if num_done > self._num_done:
            self._num_done, self._num_steps, self._since = num_done, 0, self._clock.now()
            return
        self._num_steps += num_steps
        waited = self._clock.now() - self._since
        if self._num_steps <= self._limits.steps and waited <= self._limits.seconds:
            return
        raise EnvError(
            f"{self._problem} in {self._num_steps:,} steps of each env and {waited / 60.0:.1f} minutes, and it was "
            f"given up: {self._limits.steps:,} steps and {self._limits.seconds / 60.0:g} minutes are allowed. Have the "
            "environment end its games (by a limit of steps, such as max_cycles), or allow more, by --max-game-steps "
            "and --max-game-minutes"
        )


def limits_for(game: str, game_args: Mapping[str, Any], *, steps: int = 0, minutes: float = GAME_MINUTES) -> GameLimits:
    """`steps=0`: twice what the longest game has by its rules, or, without rules, `GAME_STEPS`."""
    if not steps:
        rules = envs.rules(game, **game_args)
        steps = GAME_STEPS if rules is None else 2 * rules.max_moves + _STEPS_BETWEEN
    return GameLimits(steps=steps, seconds=60.0 * minutes)
