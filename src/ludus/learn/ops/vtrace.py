"""V-trace: values and advantages of one policy from what another did: https://arxiv.org/abs/1802.01561"""

from __future__ import annotations

from typing import Any

import numpy as np

from ludus.errors import DataError
from ludus.learn.ops.steps import Steps

__all__ = ["vtrace"]

_MAX_LOG_RATIO = np.float32(80.0)  # its exponential is still a float32; ratios are cut off far below


def vtrace(
    logp: Any,
    behaviour_logp: Any,
    reward: Any,
    value: Any,
    terminated: Any,
    truncated: Any = None,
    active: Any = None,
    first: Any = None,
    *,
    gamma: float,
    lam: float = 1.0,
    rho_max: float = 1.0,
    c_max: float = 1.0,
    weighted: bool = True,
) -> tuple[Any, Any]:
    """`(value_target, pg_advantage)`, both `[T, R]`, of T steps of R rows and the values of their observations.

    `logp` is the learning policy's, `behaviour_logp` that of the policy that acted. `value`, `active` and `first` are
    `[T + 1, R]`, the others `[T, R]`, as for `gae`. Where a row acts, with `delta` as `ops/steps.py` defines it and
    `ratio[t] = exp(logp[t] - behaviour_logp[t])`:

        excess[t] = min(ratio[t], rho_max) * delta[t] + gamma * lam * min(ratio[t], c_max) * excess[t + 1]
        value_target[t] = value[t] + excess[t]
        pg_advantage[t] = min(ratio[t], rho_max) * (delta[t] + gamma * lam * excess[t + 1])

    up to the end of the episode; unless `weighted`, `pg_advantage` is without its first factor, for losses that
    multiply by the ratio themselves. On policy, `excess` and `pg_advantage` are the advantages of `gae`. Elsewhere the
    advantage is 0 and the target is the value. Nothing carries gradients.
    """
    if not logp.shape == behaviour_logp.shape == reward.shape:
        shapes = tuple(logp.shape), tuple(behaviour_logp.shape), tuple(reward.shape)
        raise DataError(f"logp, behaviour_logp and reward have the shapes {shapes}, which should be one")
    steps = Steps.sort(reward, value, terminated, truncated, active, first, gamma=gamma)
    decay = np.float32(gamma * lam)
    # Where nothing was done the log-probabilities mean nothing, and may be far apart.
    log_ratio = np.minimum(logp.numpy(force=True) - behaviour_logp.numpy(force=True), _MAX_LOG_RATIO)
    ratio = np.exp(log_ratio, where=steps.active, out=np.ones_like(steps.value))
    rho = np.minimum(ratio, np.float32(rho_max))
    excess = steps.accumulate(rho * steps.delta, np.minimum(ratio, np.float32(c_max)) * decay)
    advantage = steps.delta.copy()
    advantage[:-1] += decay * steps.goes_on[:-1] * excess[1:]
    if weighted:
        advantage = rho * advantage
    return steps.tensor(steps.value + steps.only_active(excess)), steps.tensor(advantage)
