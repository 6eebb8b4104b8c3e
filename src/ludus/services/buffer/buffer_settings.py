"""What a buffer of nests is like: how it samples, what it removes, when it waits. The defaults are a queue.

BufferSettings(capacity=16)                                                 # first in, first out, each item once
BufferSettings(capacity=100_000, sampler="prioritised", min_size=1000)      # a replay table
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ludus import errors, options
from ludus.options import option
from ludus.services.buffer.limiters import Limiter, MinSize, Queue, SamplesPerInsert
from ludus.services.buffer.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritised, SelectorSettings, Uniform
from ludus.services.buffer.table import Table

__all__ = ["DROP_NEWEST", "DROP_OLDEST", "SELECTORS", "WAIT", "BufferSettings", "settings_of"]

SELECTORS = ("fifo", "lifo", "uniform", "prioritised", "min_heap", "max_heap")
DROP_NEWEST, DROP_OLDEST, WAIT = "drop_newest", "drop_oldest", "block"
_RANDOM = ("uniform", "prioritised")


@dataclass(frozen=True, kw_only=True)
class BufferSettings:
    """`max_times_sampled` and `when_full` that are not set follow from the sampler: see `times` and `full`."""

    capacity: int = option(1024, help="items that it holds", minimum=1)
    sampler: str = option("fifo", help="which items are sampled", choices=SELECTORS)
    remover: str = option("fifo", help="which items go when it is full and drops the oldest", choices=SELECTORS)
    exponent: float = option(0.6, help="power that priorities are raised to", minimum=0.0, maximum=3.0)
    max_times_sampled: int | None = option(
        None, help="an item goes after so many samples; 0: never; none: 1, or 0 if it samples at random", minimum=0
    )
    min_size: int = option(1, help="items that it must have before it is sampled from", minimum=1)
    samples_per_insert: float = option(0.0, help="samples for each inserted item; 0: any number", minimum=0.0)
    tolerance: float = option(0.0, help="samples by which that may be off; 0: those of 256 inserts", minimum=0.0)
    when_full: str | None = option(
        None,
        help="what a push does; none: drop_newest, or drop_oldest if items are never used up",
        choices=(DROP_NEWEST, DROP_OLDEST, WAIT),
    )
    compress: bool = option(False, help="keep items compressed: less memory, more time")

    def __post_init__(self) -> None:
        options.check(self)
        if self.times == 0 and self.full != DROP_OLDEST:
            raise errors.ConfigError(
                f"when_full={self.full!r} with max_times_sampled=0: items are never used up, so a full buffer would "
                f"stay full for ever. Use when_full={DROP_OLDEST!r}, or give max_times_sampled."
            )
        if self.min_size > self.capacity:
            raise errors.ConfigError(
                f"min_size={self.min_size} is more than capacity={self.capacity}: it could never be sampled from"
            )
        self._limiter()

    @property
    def times(self) -> int:
        """How often an item may be sampled; 0: always."""
        if self.max_times_sampled is not None:
            return self.max_times_sampled
        return 0 if self.sampler in _RANDOM else 1

    @property
    def full(self) -> str:
        """What a push does when there is no room."""
        if self.when_full is not None:
            return self.when_full
        return DROP_NEWEST if self.times else DROP_OLDEST

    @property
    def uses_priorities(self) -> bool:
        return any(self._selector(name).uses_priorities for name in (self.sampler, self.remover))

    def make_table(self, *, seed: int = 0) -> Table:
        """With so many slots that the items of a push always find some beside those that go for them."""
        evicts = self.full == DROP_OLDEST
        return Table(
            num_slots=2 * self.capacity if evicts else self.capacity,
            capacity=self.capacity,
            sampler=self._selector(self.sampler),
            remover=self._selector(self.remover),
            limiter=self._limiter(),
            max_times_sampled=self.times,
            seed=seed,
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _selector(self, name: str) -> SelectorSettings:
        if name == "prioritised":
            return Prioritised(exponent=self.exponent)
        kinds: dict[str, SelectorSettings] = {
            "fifo": Fifo(),
            "lifo": Lifo(),
            "uniform": Uniform(),
            "min_heap": MinHeap(),
            "max_heap": MaxHeap(),
        }
        return kinds[name]

    def _limiter(self) -> Limiter:
        if self.samples_per_insert:
            ratio = self.samples_per_insert
            tolerance = self.tolerance or 256 * max(1.0, ratio)
            return SamplesPerInsert(ratio=ratio, min_size=self.min_size, tolerance=tolerance)
        if self.times == 1 and self.min_size == 1 and self.full != DROP_OLDEST:
            return Queue(capacity=self.capacity)
        return MinSize(min_size=self.min_size)


def settings_of(settings: BufferSettings | int) -> BufferSettings:
    """A number is the capacity of a queue."""
    return settings if isinstance(settings, BufferSettings) else BufferSettings(capacity=settings)
