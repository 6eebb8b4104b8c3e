"""Many calls, one run: arguments of several callers stacked, the handler called once, the result handed out in rows."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ludus import errors
from ludus.data import nest, rows

__all__ = ["BatchStats", "Batching", "Gathering", "GatheringStats", "run_stacked"]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batching:
    """How a command gathers its callers.

    `batch=n` waits for n calls and runs them at once; when the first has waited `straggler_s`, it runs what is there.
    `max_batch=n` is work-conserving: whenever the server is free, it takes what is pending, at most n.
    """

    batch: int = 1
    max_batch: int = 1
    straggler_s: float = 1.0
    max_pending: int = 4096

    def __post_init__(self) -> None:
        if self.batch < 1 or self.max_batch < 1:
            raise ValueError(f"batch and max_batch count calls and begin at 1, not {self.batch} and {self.max_batch}")
        if self.batch > 1 and self.max_batch > 1:
            raise ValueError("give either batch (wait for exactly n) or max_batch (take what is there), not both")
        if max(self.batch, self.max_batch) > self.max_pending:
            raise ValueError(f"max_pending={self.max_pending} is below the batch size: it would never fill")

    @property
    def is_on(self) -> bool:
        return self.batch > 1 or self.max_batch > 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchStats:
    """What everything that batches calls counts; the inference kernel adds its own to it."""

    num_pending: int
    num_batches: int
    num_calls: int
    max_pending: int

    @property
    def mean_size(self) -> float:
        return self.num_calls / self.num_batches if self.num_batches else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class GatheringStats(BatchStats):
    num_straggling: int  # batches that ran short because their straggler limit passed


class Gathering(Generic[T]):
    """The calls of one command that wait for company."""

    def __init__(self, policy: Batching) -> None:
        self.policy = policy
        self._pending: deque[tuple[float, T]] = deque()
        self._num_batches = 0
        self._num_calls = 0
        self._num_straggling = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, call: T, now: float) -> None:
        """Raises `Overloaded` when full."""
        if len(self._pending) >= self.policy.max_pending:
            raise errors.Overloaded(f"{len(self._pending)} calls are waiting, as many as allowed; not run")
        self._pending.append((now, call))

    def due_in(self, now: float) -> float | None:
        """Seconds until a batch must run, 0 when one can run now, `None` when nothing waits."""
        if not self._pending:
            return None
        if self.policy.max_batch > 1 or len(self._pending) >= self.policy.batch:
            return 0.0
        return max(0.0, self._pending[0][0] + self.policy.straggler_s - now)

    def take(self, now: float) -> list[T]:
        """The next batch, if its time has come."""
        due = self.due_in(now)
        if due is None or due > 0:
            return []
        size = max(self.policy.batch, self.policy.max_batch)
        taken = [self._pending.popleft()[1] for _ in range(min(size, len(self._pending)))]
        self._num_batches += 1
        self._num_calls += len(taken)
        self._num_straggling += self.policy.batch > len(taken)
        return taken

    def statistics(self) -> GatheringStats:
        return GatheringStats(
            num_pending=len(self._pending),
            num_batches=self._num_batches,
            num_calls=self._num_calls,
            num_straggling=self._num_straggling,
            max_pending=self.policy.max_pending,
        )


def run_stacked(handler: Callable[..., Any], bodies: Sequence[Any]) -> list[Any]:
    """Call `handler` once on the stacked `[args, kwargs]` of all `bodies`; one outcome for each, in order.

    An outcome is a result or an exception: a body that does not fit the first one fails alone. What the handler
    returns must have one row for each call (`None` stands for `None` to everyone).
    """
    outcomes: list[Any] = [None] * len(bodies)
    fitting = list(range(len(bodies)))
    try:
        args, kwargs = nest.stack(bodies)
    except (errors.DataError, ValueError, TypeError):
        fitting = [0]
        for i in range(1, len(bodies)):
            try:
                nest.stack([bodies[0], bodies[i]])
                fitting.append(i)
            except (errors.DataError, ValueError, TypeError) as error:
                outcomes[i] = errors.DataError(
                    f"the arguments do not fit those of the other calls in the batch: {error}"
                )
        args, kwargs = nest.stack([bodies[i] for i in fitting])
    result = handler(*args, **kwargs)
    if result is not None:
        for i, row in zip(fitting, rows.unstack(result, len(fitting), "a batched command"), strict=True):
            outcomes[i] = row
    return outcomes
