"""The scale of rewards for learning from replay: the root mean square of the discounted returns seen so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.data.segment import Segment

__all__ = ["RewardScale"]

_HORIZON = 100_000.0  # steps: older returns fade


class RewardScale:
    """`observe` segments as they are collected, by `stream`; rewards are to be divided by `value`.

    A return is summed from the past, `G = gamma * G + reward`, which has the same scale as one of the future.
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._returns: dict[str, NDArray[Any]] = {}  # of each row so far
        self._mean_square = 0.0
        self._count = 0.0

    @property
    def value(self) -> float:
        return float(np.sqrt(self._mean_square)) if self._mean_square > 1e-12 else 1.0

    def observe(self, segment: Segment, stream: str) -> None:
        returns = self._returns.get(stream)
        if returns is None or len(returns) != segment.num_rows:
            returns = np.zeros(segment.num_rows, np.float64)
        total = 0.0
        for step in range(segment.num_steps):
            returns = returns * (self._gamma * ~segment.first[step]) + segment.reward[step]
            total += float((returns[segment.active[step]] ** 2).sum())
        self._returns[stream] = returns
        num = segment.num_active
        if num:
            both = self._count + num
            self._mean_square += (total / num - self._mean_square) * num / both
            self._count = min(both, _HORIZON)

    def save(self) -> Nest:
        return {"returns": dict(self._returns), "mean_square": self._mean_square, "count": self._count}

    def restore(self, saved: Nest) -> None:
        self._returns = {stream: np.array(returns) for stream, returns in saved["returns"].items()}
        self._mean_square, self._count = float(saved["mean_square"]), float(saved["count"])
