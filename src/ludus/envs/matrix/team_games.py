"""Games of two players who get the same: what a move leads to, stage by stage.

| game | stages | what both get |
|---|---|---|
| `two_step` | 2 | player 0's first move chooses between 7 whatever is played, and `[[0, 1], [1, 8]]` |
| `climbing` | 1 | `[[11, -30, 0], [-30, 7, 6], [0, 0, 5]]` |
| `penalty` | 1 | `[[penalty, 0, 10], [0, 2, 0], [10, 0, penalty]]` |

The first is from QMIX's paper, https://arxiv.org/abs/1803.11485, the others are from Claus and Boutilier, "The dynamics
of reinforcement learning in cooperative multiagent systems", AAAI 1998.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.errors import EnvError

__all__ = ["TeamGame", "climbing", "penalty", "two_step"]

_OVER = -1


@dataclass(frozen=True, kw_only=True)
class TeamGame:
    """At each stage both players choose at once, among the same number of choices. The first stage is 0."""

    payoff: NDArray[np.float32]  # [stages, choices, choices], by the moves of player 0 and player 1
    next_stage: NDArray[np.int64]  # of the same shape; -1: the game is over

    @property
    def num_stages(self) -> int:
        return len(self.payoff)

    @property
    def num_choices(self) -> int:
        return int(self.payoff.shape[1])


def two_step() -> TeamGame:
    """The best is 8: what a sum of the players' own values cannot express, so that it takes the sure 7."""
    payoff = [[[0, 0], [0, 0]], [[7, 7], [7, 7]], [[0, 1], [1, 8]]]
    over = [[_OVER, _OVER]] * 2
    return _game(payoff, [[[1, 1], [2, 2]], over, over])


def climbing() -> TeamGame:
    """The best is 11, next to -30: who explores alone learns to avoid it."""
    return _game([[[11, -30, 0], [-30, 7, 6], [0, 0, 5]]])


def penalty(value: float = -100.0) -> TeamGame:
    """The best is 10, in two ways: players who choose different ones pay the penalty."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise EnvError(f"penalty={value!r} must be a finite number, such as -100")
    return _game([[[value, 0, 10], [0, 2, 0], [10, 0, value]]])


def _game(payoff: Any, next_stage: Any = None) -> TeamGame:
    scores = np.array(payoff, np.float32)
    following = np.full(scores.shape, _OVER) if next_stage is None else np.array(next_stage)
    return TeamGame(payoff=scores, next_stage=following.astype(np.int64))
