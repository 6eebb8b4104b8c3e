"""What services count, as metrics of their trial.

A worker counts from its own start. `Counts` says what its numbers are; `Counted` adds up the workers of one thing,
restarts included, and makes metrics of the sums:

    gateway = Counted("gateway", since=time.monotonic())
    gateway.take("actor-8000/0", incarnation=pid, counts=counts)    # every few seconds, of each worker
    gateway.news()        # {"gateway/steps/tick/ok": 1200.0, "gateway/steps_per_second": 120.0, …}; {} if idle

A process that runs a service inside (a model, for the sessions of a gateway worker) has it counted by `count_here`.
"""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BUCKETS_S", "Counted", "Counts", "count_here", "counted_here", "quantile"]

BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the buckets in which durations are counted; one more bucket is for all that took longer."""

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What one worker has counted since it began. Names are without the prefix of what they belong to."""

    totals: Mapping[str, float] = field(default_factory=dict)  # they only grow; written as sums over all workers
    levels: Mapping[str, float] = field(default_factory=dict)  # as they are now; also summed
    parts: Mapping[str, float] = field(default_factory=dict)  # totals that only what follows is made of
    rates: Mapping[str, str] = field(default_factory=dict)  # metric → total: how much per second
    means: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # metric → totals: the one per the other
    shares: Mapping[str, str] = field(
        default_factory=dict
    )  # metric → total of seconds: the share of each worker's time
    durations: Mapping[str, Sequence[int]] = field(default_factory=dict)  # counts by bucket → p50, p95, p99
    quiet: frozenset[str] = frozenset()  # written with the rest; their change alone is no reason to write


class Counted:
    """The metrics of one thing, `prefix`, that one or more workers count. Used by one thread."""

    def __init__(self, prefix: str, *, since: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`since`: when, by the clock, it had counted nothing yet."""
        self._prefix = prefix
        self._clock = clock
        self._ended: collections.Counter[str] = collections.Counter()  # totals of workers that were replaced
        self._last: dict[str, tuple[object, dict[str, float]]] = {}  # by worker: its incarnation, and its totals
        self._present: dict[str, Counts] = {}  # of those that answered since the last `news`
        self._before: dict[str, float] = {}
        self._looked_at = since
        self._news: dict[str, float] = {}

    def take(self, worker: str, counts: Counts, *, incarnation: object = None) -> None:
        """What a worker says now. Another `incarnation` of it has started to count at 0 again."""
        totals = {**counts.totals, **counts.parts, **_flat(counts.durations)}
        before, last = self._last.get(worker, (incarnation, {}))
        if before != incarnation or any(totals.get(name, 0.0) < value for name, value in last.items()):
            self._ended.update(last)
        self._last[worker] = incarnation, totals
        self._present[worker] = counts

    def news(self) -> dict[str, float]:
        """All metrics, rates and quantiles being of the time since the last call; none if nothing has changed."""
        if not self._present:  # nobody answered: the next who does accounts for this time, too
            return {}
        now = self._clock()
        elapsed_s, self._looked_at = max(now - self._looked_at, 1e-3), now
        present, self._present = list(self._present.values()), {}
        sums: collections.Counter[str] = collections.Counter(self._ended)
        for _, totals in self._last.values():
            sums.update(totals)
        grown = {name: value - self._before.get(name, 0.0) for name, value in sums.items()}
        self._before = dict(sums)
        found: dict[str, float] = {}
        levels: collections.Counter[str] = collections.Counter()
        for counts in present:
            found |= {name: float(sums[name]) for name in counts.totals}
            levels.update(counts.levels)
        found |= {name: float(value) for name, value in levels.items()}
        for counts in present:
            found |= _derived(counts, grown, elapsed_s, sum(counts.shares == each.shares for each in present))
        quiet = {name for counts in present for name in counts.quiet}
        news = {name: value for name, value in found.items() if name not in quiet}
        if news == self._news:
            return {}
        self._news = news
        return {f"{self._prefix}/{name}": value for name, value in found.items()}


def _derived(like: Counts, grown: Mapping[str, float], elapsed_s: float, num_workers: int) -> dict[str, float]:
    found = {name: grown.get(total, 0.0) / elapsed_s for name, total in like.rates.items()}
    found |= {
        name: grown.get(above, 0.0) / grown[below] for name, (above, below) in like.means.items() if grown.get(below)
    }
    found |= {name: grown.get(total, 0.0) / elapsed_s / num_workers for name, total in like.shares.items()}
    for name, buckets in like.durations.items():
        counts = [round(grown.get(_bucket(name, index), 0.0)) for index in range(len(buckets))]
        if sum(counts):
            found |= {f"{name}/{label}": quantile(counts, share) for label, share in _QUANTILES.items()}
    return {name: round(value, 6) for name, value in found.items()}


def quantile(counts: Sequence[int], share: float) -> float:
    """Of durations that were counted in `BUCKETS_S`: in proportion within a bucket; of the last, its lower bound."""
    wanted, below = share * sum(counts), 0
    for index, count in enumerate(counts[: len(BUCKETS_S)]):
        if count and below + count >= wanted:
            low = BUCKETS_S[index - 1] if index else 0.0
            return low + (BUCKETS_S[index] - low) * (wanted - below) / count
        below += count
    return BUCKETS_S[-1]


def _flat(durations: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {_bucket(name, index): count for name, counts in durations.items() for index, count in enumerate(counts)}


def _bucket(name: str, index: int) -> str:
    return f"{name}/{index}"


# --- services inside another's process

_here: dict[str, Callable[[], Mapping[str, Any]]] = {}


def count_here(name: str, stats: Callable[[], Mapping[str, Any]] | None) -> None:
    """Have this process's worker show the `stats` of `name`, as plain data, with its own; `None`: no more."""
    if stats is None:
        _here.pop(name, None)
    else:
        _here[name] = stats


def counted_here() -> dict[str, Mapping[str, Any]]:
    """The stats of all that is counted in this process, by name."""
    return {name: stats() for name, stats in list(_here.items())}


os.register_at_fork(after_in_child=_here.clear)  # what runs is the parent's
