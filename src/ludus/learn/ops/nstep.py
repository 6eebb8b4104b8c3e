"""Returns of n steps, then the value: Sutton and Barto, chapter 7, http://incompleteideas.net/book/the-book-2nd.html"""

from __future__ import annotations

from typing import Any

import numpy as np

from ludus.errors import DataError
from ludus.learn.ops.steps import Steps, reverse_scan

__all__ = ["n_step_returns"]


def n_step_returns(
    reward: Any,
    value: Any,
    terminated: Any,
    truncated: Any = None,
    active: Any = None,
    first: Any = None,
    *,
    gamma: float,
    n: int,
) -> Any:
    """The discounted rewards of a row's next `n` actions and the value after them, `[T, R]`.

    `value`, `active` and `first` are `[T + 1, R]`, the others `[T, R]`, as for `gae`. Where a row acts, with `delta` as
    `ops/steps.py` defines it:

        returns(n)[t] = value[t] + excess(n)[t]
        excess(n)[t] = delta[t] + gamma * excess(n - 1)[t + 1]        up to the end of the episode or the segment

    A row that waits does not count its steps. Where it does not act the return is the value. Nothing carries gradients.
    """
    if n < 1:
        raise DataError(f"returns of {n} steps: at least 1 is needed")
    steps = Steps.sort(reward, value, terminated, truncated, active, first, gamma=gamma)
    delta = steps.delta
    if n >= len(delta):
        return steps.tensor(steps.value + steps.only_active(steps.accumulate(delta, np.float32(gamma))))
    decay = (steps.goes_on * np.float32(gamma))[:-1]
    excess = delta
    for _ in range(n - 1):
        later = excess if steps.waits is None else reverse_scan(excess, steps.waits.astype(np.float32))
        excess = delta.copy()
        excess[:-1] += decay * later[1:]
    return steps.tensor(steps.value + excess)
