"""What a policy's outputs mean: the contract of an action distribution, from choosing to learning."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError

__all__ = ["FORBIDDEN", "Head", "check_params"]

FORBIDDEN = -1e30
"""The logit of a choice that a mask forbids: its probability is exactly 0, and 0 times its log-probability is 0."""


class Head(Protocol):
    """One family of distributions over actions, given by `params` `[..., num_params]` in float32.

    Actions are chosen with NumPy, from `params` of shape `[N, num_params]`, and learnt from with torch, where any
    leading axes do. A model gives `num_outputs` numbers for each row; `num_free` more are the same for all rows and
    belong to the policy, which appends them, and so are `num_explore` more that say how much is explored and are set
    by the algorithm: `num_params == num_outputs + num_free + num_explore`. A `mask` `[..., choices]` is true for what
    is allowed, and has at least one such choice in each row.
    """

    num_outputs: int
    num_free: int
    num_explore: int = 0
    num_params: int

    def choose(
        self,
        params: NDArray[np.float32],
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        *,
        greedy: bool,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """An action for each row, and the log-probability with which it was chosen: 0 for a greedy one.

        The only place that decides between `sample` and `mode`.
        """
        if greedy:
            return self.mode(params, mask), np.zeros(len(params), np.float32)
        return self.sample(params, rng, mask)

    def sample(
        self, params: NDArray[np.float32], rng: np.random.Generator, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """An action for each row, in the dtype of its spec, and its log-probability. The same `rng`, the same actions.

        The log-probability is that of the action as it is returned: `logp` gives the same, up to rounding.
        """
        ...

    def mode(self, params: NDArray[np.float32], mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """The action to take when nothing is explored."""
        ...

    def logp(self, params: Any, action: Any, mask: Any = None) -> Any:
        """Log-probability (of densities for continuous actions) `[...]`."""
        ...

    def entropy(self, params: Any, mask: Any = None) -> Any:
        """In nats, `[...]`; differential, so possibly negative, for continuous actions."""
        ...

    def logp_and_entropy(self, params: Any, action: Any, mask: Any = None) -> tuple[Any, Any]:
        """Both, for less than the two apart."""
        ...

    def kl(self, params_old: Any, params_new: Any, mask: Any = None) -> Any:
        """How far the new is from the old, KL(old ‖ new), `[...]`, in nats."""
        ...

    def spread_exploration(self, params: NDArray[np.float32], exponent: Any) -> NDArray[np.float32]:
        """`params` whose rows explore differently: what they explore by to the power `exponent` `[N]` of the row.

        Where a head has no such number, they are returned as they are.
        """
        return params


def check_params(params: Any, num_params: int) -> None:
    """Raise `DataError` unless the last axis is that of one row's parameters."""
    if params.shape[-1] != num_params:
        raise DataError(
            f"the parameters of actions have the shape {tuple(params.shape)}: the last should be {num_params}"
        )
