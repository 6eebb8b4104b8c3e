"""What each step of a segment is, for estimators that look ahead: see the conventions of time in `data/segment.py`.

A row acts, or it has ended (the step after an episode, whose observation is the final one), or it waits: it is
another's turn, and rewards that come during it belong to what the row did last, as if they had come at once: a row's
own acts make an ordinary sequence of steps, without those of others. With `U[t]` for what follows an action, as seen
from the step after it, and backwards from `U[T] = gamma * value[T]`:

    acts, or has ended:      U[t] = gamma * value[t]
    waits:                   U[t] = reward[t] + U[t + 1]
    waits, episode ends:     U[t] = reward[t] + (0 if terminated[t] else U[t + 1])

and, where the row acts, what its action turned out to be worth beyond what was expected:

    delta[t] = reward[t] + (0 if terminated[t] else U[t + 1]) - value[t]

The estimators take and give tensors, and compute in NumPy: segments are small, and its calls cost a third of torch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError

__all__ = ["Steps", "reverse_scan"]


@dataclass(frozen=True)
class Steps:
    """Arrays `[T, R]`, in the memory of the tensors they come from where that is possible. They are only read."""

    value: NDArray[np.float32]  # of the observation the action was taken at
    delta: NDArray[np.float32]  # as above where the row acts, else 0
    active: NDArray[np.bool_]  # the row acts
    goes_on: NDArray[np.bool_]  # the row acts, and its episode does not end with that
    waits: NDArray[np.bool_] | None  # another's turn, in an episode that goes on; None if no row ever waits
    device: Any  # of the rewards; results go there

    @classmethod
    def sort(
        cls,
        reward: Any,
        value: Any,
        terminated: Any,
        truncated: Any = None,
        active: Any = None,
        first: Any = None,
        *,
        gamma: float,
    ) -> Steps:
        """From the fields of a segment: `value`, `active` and `first` are `[T + 1, R]`, the others `[T, R]`.

        Flags that are `None`: nothing is truncated, every row acts at every step, no episode starts within the steps.
        Raises `DataError` for other shapes, and unless values are float32 and flags bool.
        """
        device = reward.device
        reward, value, terminated, truncated, active, first = (
            None if tensor is None else tensor.numpy(force=True)
            for tensor in (reward, value, terminated, truncated, active, first)
        )
        if truncated is None:
            truncated = np.zeros(reward.shape, np.bool_)
        if active is None:
            active = np.ones(value.shape, np.bool_)
        if first is None:
            first = np.zeros(value.shape, np.bool_)
        _check(reward, value=value, terminated=terminated, truncated=truncated, active=active, first=first)
        acts, going = active[:-1], ~(terminated | truncated)
        idle = ~(acts | (first[1:] & going))
        after = value * np.float32(gamma)
        if idle.any():
            waits = idle & going
            # A scan over T + 1 steps, whose decay is 0 where U is known from the value alone.
            decay = np.zeros_like(value)
            decay[:-1] = idle & ~terminated
            np.copyto(after[:-1], reward, where=idle)
            after = reverse_scan(after, decay)
        else:
            waits = None
        delta = after[1:] * ~terminated
        delta += reward
        delta -= value[:-1]
        delta *= acts
        return cls(value=value[:-1], delta=delta, active=acts, goes_on=acts & going, waits=waits, device=device)

    def accumulate(self, delta: NDArray[np.float32], decay: Any) -> NDArray[np.float32]:
        """`A[t] = delta[t] + decay[t] * A[t + 1]` where the row acts, without the second part where its episode ends.

        A row that waits passes on what comes after; one that has ended begins at 0. `delta` is 0 for both.
        """
        decay = self.goes_on * decay
        if self.waits is not None:
            decay += self.waits
        accumulated: NDArray[np.float32] = reverse_scan(delta, decay)
        return accumulated

    def only_active(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """What was accumulated, and 0 where the row does not act."""
        return x if self.waits is None else x * self.active

    def tensor(self, array: NDArray[np.float32]) -> Any:
        """A result, on the device that the rewards came from."""
        import torch  # a caller with tensors has it loaded; settings of algorithms are shown without it

        return torch.from_numpy(array).to(self.device)


def _check(reward: NDArray[Any], **others: NDArray[Any]) -> None:
    shape = reward.shape
    if len(shape) != 2 or not shape[0]:
        raise DataError(f"reward has the shape {shape}: it must be steps and rows, [T, R], with T at least 1")
    longer = (shape[0] + 1, shape[1])
    for name, array in others.items():
        wanted = longer if name in ("value", "active", "first") else shape
        if array.shape != wanted:
            raise DataError(f"{name} has the shape {array.shape}; it must be {wanted}")
        if array.dtype != (np.float32 if name == "value" else np.bool_):
            raise DataError(f"{name} is of {array.dtype}: values should be float32, flags bool")


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
