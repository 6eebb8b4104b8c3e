"""Rate limiters: whether a table may be inserted into and sampled from now. They see counts, not items.

limiter = SamplesPerInsert(ratio=8.0, min_size=1000, tolerance=800.0)
limiter.can_sample(256, counts)          # the owner of the table waits and asks again
limiter.explain(counts)                  # ("", "sampling waits: ...")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ludus.errors import ConfigError
from ludus.options import option

__all__ = ["Limiter", "MinSize", "Queue", "SamplesPerInsert", "TableCounts"]


class TableCounts(NamedTuple):
    """What limiters see of a table."""

    size: int  # items that can be sampled now
    num_inserted: int  # ever
    num_sampled: int  # ever; an item that was sampled twice counts twice


class Limiter(Protocol):
    """`can_…(n, counts)`: whether `n` more may follow now. Raises `ConfigError` if that many can never be allowed."""

    def can_insert(self, n: int, counts: TableCounts) -> bool: ...

    def can_sample(self, n: int, counts: TableCounts) -> bool: ...

    def why_not_insert(self, counts: TableCounts) -> str:
        """One sentence if the next single insert must wait, else nothing."""
        ...

    def why_not_sample(self, counts: TableCounts) -> str:
        """One sentence if the next single sample must wait, else nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class MinSize:
    """Samples wait until the table has `min_size` items; inserts never wait."""

    min_size: int = option(1, help="items that the table must have before it is sampled from", minimum=1)

    def __post_init__(self) -> None:
        if self.min_size < 1:
            raise ConfigError(f"min_size={self.min_size}: a table is sampled from with at least 1 item")

    def can_insert(self, n: int, counts: TableCounts) -> bool:
        return True

    def can_sample(self, n: int, counts: TableCounts) -> bool:
        return counts.size >= self.min_size

    def why_not_insert(self, counts: TableCounts) -> str:
        return ""

    def why_not_sample(self, counts: TableCounts) -> str:
        if counts.size >= self.min_size:
            return ""
        return f"sampling waits for inserts: the table has {counts.size} items and needs {self.min_size}"


@dataclass(frozen=True, kw_only=True)
class SamplesPerInsert:
    """Each inserted item is sampled `ratio` times on average.

    `num_inserted * ratio - num_sampled` is held within `min_size * ratio ± tolerance`: above it inserts wait, below it
    samples do. Until the table has `min_size` items, inserts never wait and samples always do.
    """

    ratio: float = option(1.0, help="samples for each inserted item", minimum=0.0)
    min_size: int = option(1, help="items that the table must have before it is sampled from", minimum=1)
    tolerance: float = option(1.0, help="samples by which the balance may be off in either direction", minimum=0.0)

    def __post_init__(self) -> None:
        if not self.ratio > 0 or self.min_size < 1:
            raise ConfigError(f"ratio={self.ratio}, min_size={self.min_size}: ratio is above 0, min_size at least 1")
        if not self.tolerance >= max(1.0, self.ratio):
            raise ConfigError(
                f"tolerance={self.tolerance} is less than {max(1.0, self.ratio):g}, what one insert or one sample "
                f"moves the balance by: both sides would wait for each other. Make it at least as large as a batch"
            )

    @property
    def _middle(self) -> float:
        return self.min_size * self.ratio

    def can_insert(self, n: int, counts: TableCounts) -> bool:
        if counts.size + n <= self.min_size:
            return True
        if n * self.ratio > 2 * self.tolerance:
            raise ConfigError(self._too_many(f"{n} inserts at once", n * self.ratio))
        return (counts.num_inserted + n) * self.ratio - counts.num_sampled <= self._middle + self.tolerance

    def can_sample(self, n: int, counts: TableCounts) -> bool:
        if n > 2 * self.tolerance:
            raise ConfigError(self._too_many(f"{n} samples at once", n))
        if counts.size < self.min_size:
            return False
        return counts.num_inserted * self.ratio - counts.num_sampled - n >= self._middle - self.tolerance

    def why_not_insert(self, counts: TableCounts) -> str:
        if self.can_insert(1, counts):
            return ""
        ahead = counts.num_inserted * self.ratio - counts.num_sampled - self._middle
        return (
            f"inserting waits for samples: {counts.num_inserted} inserts at {self.ratio:g} samples each are {ahead:g} "
            f"ahead of {counts.num_sampled} samples, and one more would be past the tolerance of {self.tolerance:g}"
        )

    def why_not_sample(self, counts: TableCounts) -> str:
        if counts.size < self.min_size:
            return f"sampling waits for inserts: the table has {counts.size} items and needs {self.min_size}"
        if self.can_sample(1, counts):
            return ""
        behind = self._middle + counts.num_sampled - counts.num_inserted * self.ratio
        return (
            f"sampling waits for inserts: {counts.num_sampled} samples are {behind:g} ahead of {counts.num_inserted} "
            f"inserts at {self.ratio:g} samples each, and one more would be past the tolerance of {self.tolerance:g}"
        )

    def _too_many(self, what: str, by: float) -> str:
        return (
            f"{what} move the balance of samples and inserts by {by:g}, which is more than the whole band of "
            f"2 * tolerance = {2 * self.tolerance:g}: this would wait for ever. "
            f"Raise tolerance to {by:g} or use smaller batches"
        )


@dataclass(frozen=True, kw_only=True)
class Queue:
    """Inserts wait while `capacity` items are there, samples while none is. Goes with `max_times_sampled=1`."""

    capacity: int = option(1, help="items that may wait to be sampled", minimum=1)

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ConfigError(f"capacity={self.capacity}: a queue holds at least 1 item")

    def can_insert(self, n: int, counts: TableCounts) -> bool:
        if n > self.capacity:
            raise ConfigError(f"{n} inserts at once never fit a queue of {self.capacity}; insert fewer or enlarge it")
        return counts.size + n <= self.capacity

    def can_sample(self, n: int, counts: TableCounts) -> bool:
        if n > self.capacity:
            raise ConfigError(f"{n} samples at once never fit a queue of {self.capacity}; sample fewer or enlarge it")
        return counts.size >= n

    def why_not_insert(self, counts: TableCounts) -> str:
        if counts.size < self.capacity:
            return ""
        return f"inserting waits for samples: the queue is full with {counts.size} items"

    def why_not_sample(self, counts: TableCounts) -> str:
        return "" if counts.size else "sampling waits for inserts: the queue is empty"
