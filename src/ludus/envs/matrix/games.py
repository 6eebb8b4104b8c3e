"""Zero-sum games of one move, some of them without a strongest player: what each may do and what it brings.

| game | action | score of player 0; player 1 gets the negative |
|---|---|---|
| `rps` | rock, paper or scissors | 1 for a win |
| `biased_rps` | the same | 1 for a win, 2 if rock beats scissors; the equilibrium is (1/4, 1/2, 1/4) |
| `disc` | a point of the plane, moved to the edge of the unit disc if it is outside | x0 * y1 - y0 * x1 |
| `own` | by `payoff` | `payoff[row][column]` |

In the disc game every point loses to those a quarter turn clockwise of it; a mixture whose mean is 0 is an equilibrium.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ludus.data.actions import ActionSpec, Continuous, Discrete
from ludus.errors import EnvError

__all__ = ["BIASED_RPS", "RPS", "Disc", "OneMoveGame", "PayoffMatrix", "read_payoff"]

RPS = ((0, -1, 1), (1, 0, -1), (-1, 1, 0))
BIASED_RPS = ((0, -1, 2), (1, 0, -1), (-2, 1, 0))

Floats = NDArray[np.float64]


class OneMoveGame(Protocol):
    """Two players act at once. `mask` is `[2, choices]`, `None` if both may do everything."""

    @property
    def action(self) -> ActionSpec: ...

    @property
    def mask(self) -> NDArray[np.bool_] | None: ...

    @property
    def is_symmetric(self) -> bool:
        """Whether the players are interchangeable."""
        ...

    def scores(self, one: NDArray[Any], two: NDArray[Any]) -> Floats:
        """Of player 0 in each of N games, by the actions of both. Player 1 gets the negative."""
        ...

    def is_legal(self, one: NDArray[Any], two: NDArray[Any]) -> NDArray[np.bool_]: ...


class PayoffMatrix:
    """`payoff[row, column]` is the score of player 0, who chooses the row."""

    def __init__(self, payoff: ArrayLike) -> None:
        try:
            matrix = np.array(payoff, np.float64)
        except (TypeError, ValueError) as error:
            raise EnvError(f"a payoff has rows of numbers, all of the same length: {error}") from None
        if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
            raise EnvError(f"a payoff has rows of finite numbers; this is of shape {matrix.shape}")
        self.payoff = matrix
        num_rows, num_columns = matrix.shape
        num_choices = max(num_rows, num_columns)
        self.action = Discrete(num_choices)
        self._num_choices = np.array([num_rows, num_columns])
        self.mask = None if num_rows == num_columns else np.arange(num_choices) < self._num_choices[:, None]
        self.is_symmetric = num_rows == num_columns and bool((matrix == -matrix.T).all())

    def scores(self, one: NDArray[Any], two: NDArray[Any]) -> Floats:
        found: Floats = self.payoff[one, two]
        return found

    def is_legal(self, one: NDArray[Any], two: NDArray[Any]) -> NDArray[np.bool_]:
        num_rows, num_columns = self._num_choices
        within: NDArray[np.bool_] = (one >= 0) & (one < num_rows) & (two >= 0) & (two < num_columns)
        return within


class Disc:
    """Points of the unit disc; the score is their cross product."""

    action = Continuous((-1.0, -1.0), (1.0, 1.0))
    mask = None
    is_symmetric = True

    def scores(self, one: NDArray[Any], two: NDArray[Any]) -> Floats:
        a, b = self.points(one), self.points(two)
        found: Floats = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
        return found

    @staticmethod
    def points(action: NDArray[Any]) -> Floats:
        """`[N, 2]` where actions are on the disc."""
        found: Floats = np.asarray(action, np.float64)
        found = found / np.maximum(1.0, np.linalg.norm(found, axis=1, keepdims=True))
        return found

    def is_legal(self, one: NDArray[Any], two: NDArray[Any]) -> NDArray[np.bool_]:
        legal: NDArray[np.bool_] = np.isfinite(one).all(1) & np.isfinite(two).all(1)
        return legal


def read_payoff(given: str | Sequence[Sequence[float]]) -> PayoffMatrix:
    """A matrix as it is given: rows of numbers, or a JSON file of them."""
    if not isinstance(given, str):
        return PayoffMatrix(given)
    try:
        return PayoffMatrix(json.loads(Path(given).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise EnvError(f"payoff={given!r} cannot be read: {error}. Give a JSON file of rows of numbers") from None
