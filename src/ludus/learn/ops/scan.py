"""Linear recurrences that run backwards in time, without a loop over steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ludus.errors import DataError

__all__ = ["reverse_scan"]


def reverse_scan(x: Any, decay: Any) -> Any:
    """`y[t] = x[t] + decay[t] * y[t + 1]`, with nothing after the end. Both are `[T, ...]` of one shape; so is `y`.

    They are two arrays or two tensors. Each round doubles how far ahead every step has seen: log2(T) rounds of three
    vector operations (Hillis and Steele, 1986, https://doi.org/10.1145/7902.7903). Nothing is divided, so a decay may
    be 0.
    """
    if x.shape != decay.shape or not x.shape:
        raise DataError(f"a scan over x {tuple(x.shape)} with decay {tuple(decay.shape)}: the shapes should be one")
    num_steps = x.shape[0]
    y, reach, decay = x.copy() if isinstance(x, np.ndarray) else x.clone(), 1, decay[:-1]
    while reach < num_steps:
        # y[t] has what happens in t .. t + reach - 1; decay[t] is the product over them, for all t + reach < T.
        y[:-reach] += decay * y[reach:]
        if 2 * reach < num_steps:
            decay = decay[:-reach] * decay[reach:]
        reach *= 2
    return y
