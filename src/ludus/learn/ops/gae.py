"""Generalised advantage estimation: https://arxiv.org/abs/1506.02438"""

from __future__ import annotations

from typing import Any

import numpy as np

from ludus.learn.ops.steps import Steps

__all__ = ["gae"]


def gae(
    reward: Any,
    value: Any,
    terminated: Any,
    truncated: Any = None,
    active: Any = None,
    first: Any = None,
    *,
    gamma: float,
    lam: float,
) -> tuple[Any, Any]:
    """`(advantage, value_target)`, both `[T, R]`, of T steps of R rows and the values of their observations.

    `value`, `active` and `first` are `[T + 1, R]`, the others `[T, R]`; the flags are those of a segment
    (`Segment.ends`). Without `truncated` no episode is cut off; without `active` every row acts at every step. Where a
    row acts, with `delta` as `ops/steps.py` defines it:

        advantage[t] = delta[t] + gamma * lam * advantage[t + 1]      up to the end of the episode

    Elsewhere the advantage is 0 and the target is the value. Nothing carries gradients.
    """
    steps = Steps.sort(reward, value, terminated, truncated, active, first, gamma=gamma)
    advantage = steps.only_active(steps.accumulate(steps.delta, np.float32(gamma * lam)))
    return steps.tensor(advantage), steps.tensor(advantage + steps.value)
