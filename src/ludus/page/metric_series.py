"""The metrics of a trial as series of bounded length: `metrics.jsonl` is read on from where it was left.

    site.part(MetricFiles).use(folder, lambda metrics: metrics.points("episode/return", by="steps"))

A series keeps every point until there are `MAX_BUCKETS` of them; then neighbours are joined, and of each bucket its
lowest and its highest point, its mean and its last point stay. So a file of any length costs the same memory, and no
peak is lost. A long file is read in parts, for `_READ_S` at each look: `metrics.share_read` says how far that is.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec

from ludus import files
from ludus.telemetry.metrics import RESERVED
from ludus.telemetry.metrics_file import METRICS_FILE

__all__ = ["MAX_BUCKETS", "Axis", "MetricFiles", "MetricSeries", "Metrics", "Point"]

Axis = Literal["steps", "seconds"]
T = TypeVar("T")
Point = tuple[float, float]
MAX_BUCKETS = 512
_MAX_NAMES = 400  # of one trial; a league of many players has some hundreds
_NUM_RECENT = 8
_MAX_KEPT = 12  # trials
_READ_S = 0.3
_CHUNK_BYTES = 1 << 18
_HEAD_BYTES = 64  # of the beginning: a file that was replaced has others
_STRIDE = 11  # low, high and last point as step, second, value; the sum of the values, and how many
_decode = msgspec.json.Decoder().decode


class MetricSeries:
    """One metric over time."""

    __slots__ = ("_buckets", "_open", "_per_bucket", "_recent", "last", "num")

    def __init__(self) -> None:
        self._buckets = array("d")  # those that are full
        self._open: list[float] = []
        self._per_bucket = 1
        self._recent: deque[Point] = deque(maxlen=_NUM_RECENT)  # seconds and values: of a long run buckets are hours
        self.num = 0  # values that were added
        self.last = 0.0

    def add(self, step: float, second: float, value: float) -> None:
        self.num += 1
        self.last = value
        self._recent.append((second, value))
        bucket = self._open
        if not bucket:
            self._open = bucket = [step, second, value, step, second, value, step, second, value, value, 1.0]
        else:
            if value < bucket[2]:
                bucket[0:3] = (step, second, value)
            if value > bucket[5]:
                bucket[3:6] = (step, second, value)
            bucket[6:9] = (step, second, value)
            bucket[9] += value
            bucket[10] += 1.0
        if bucket[10] >= self._per_bucket:
            self._buckets.extend(bucket)
            self._open = []
            if len(self._buckets) >= MAX_BUCKETS * _STRIDE:
                self._halve()

    def points(self, by: Axis) -> list[Point]:
        """By rising x: of each bucket its lowest, its highest and its last point."""
        at = 0 if by == "steps" else 1
        found: list[Point] = []
        for bucket in self._each():
            if bucket[10] == 1.0:
                found.append((bucket[at], bucket[2]))
                continue
            extremes = {(bucket[first + at], bucket[first + 2]) for first in (0, 3, 6)}
            found.extend(sorted(extremes))
        return found

    def means(self, by: Axis) -> list[Point]:
        """Of each bucket its mean, at its last point."""
        at = 6 if by == "steps" else 7
        return [(bucket[at], bucket[9] / bucket[10]) for bucket in self._each()]

    def recent(self) -> float:
        """The mean of the last few values: less hasty than the last one. A series has one at least."""
        return sum(value for _, value in self._recent) / len(self._recent)

    def rate(self) -> float | None:
        """Of a total: by how much it rose in a second lately; `None` if that is not known."""
        (began, first), (ended, last) = self._recent[0], self._recent[-1]
        return max(0.0, last - first) / (ended - began) if ended > began else None

    def _each(self) -> Iterable[list[float]]:
        flat = self._buckets
        for first in range(0, len(flat), _STRIDE):
            yield flat[first : first + _STRIDE].tolist()
        if self._open:
            yield self._open

    def _halve(self) -> None:
        flat, joined = self._buckets, array("d")
        for first in range(0, len(flat), 2 * _STRIDE):
            one, other = flat[first : first + _STRIDE], flat[first + _STRIDE : first + 2 * _STRIDE]
            if other:
                low = one[0:3] if one[2] <= other[2] else other[0:3]
                high = one[3:6] if one[5] >= other[5] else other[3:6]
                one = array("d", [*low, *high, *other[6:9], one[9] + other[9], one[10] + other[10]])
            joined.extend(one)
        self._buckets = joined
        self._per_bucket *= 2


class Metrics:
    """What was read of one `metrics.jsonl`. Not safe to use from several threads: `MetricFiles` is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._inode, self._head = 0, b""  # of the file that was read
        self._at = self._size = 0
        self._series: dict[tuple[Axis, str], MetricSeries] = {}
        self.num_lines = 0
        self.num_damaged = 0  # lines that are none
        self.num_left_out = 0  # values of names that there was no room for
        self.last_time: float | None = None  # since 1970, of the last line
        self.is_behind = False  # there is more to read at the next look

    @property
    def share_read(self) -> float:
        return 1.0 if self._size == 0 else min(1.0, self._at / self._size)

    def names(self, axis: Axis = "steps") -> list[str]:
        return sorted(name for of, name in self._series if of == axis)

    def series(self, name: str, axis: Axis = "steps") -> MetricSeries | None:
        """`axis`: whether its lines were written by a loop's steps, or by seconds where no loop ran."""
        return self._series.get((axis, name))

    def points(self, name: str, by: Axis) -> list[Point]:
        series = self.series(name)
        return [] if series is None else series.points(by)

    def last(self, name: str, axis: Axis = "steps") -> float | None:
        series = self.series(name, axis)
        return None if series is None else series.last

    def read(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Read on, for a while. A file that is gone leaves what was read of it; one that was replaced starts again."""
        try:
            file = files.open_regular(self._path)
        except FileNotFoundError:
            return
        with file:
            status = os.fstat(file.fileno())
            head = file.read(_HEAD_BYTES) or b""
            if status.st_ino != self._inode or not head.startswith(self._head) or status.st_size < self._at:
                self._forget()
            self._inode, self._head, self._size = status.st_ino, head, status.st_size
            until = clock() + _READ_S
            while (is_more := self._read_chunk(file)) and clock() < until:
                pass
            self.is_behind = is_more

    def _read_chunk(self, file: BinaryIO) -> bool:
        """Take the whole lines of the next chunk; false if there is none yet."""
        file.seek(self._at)
        chunk = file.read(_CHUNK_BYTES) or b""
        end = chunk.rfind(b"\n") + 1
        if end:
            for line in chunk[:end].splitlines():
                self._take(line)
        elif len(chunk) == _CHUNK_BYTES:  # no line of ours is so long
            self.num_damaged += 1
            end = len(chunk)
        self._at += end
        return end > 0

    def _take(self, line: bytes) -> None:
        if not line:
            return
        try:
            values = _decode(line)
            step, second = float(values["step"]), float(values.get("wall_s") or 0.0)
            self.last_time = float(values.get("time") or 0.0)
            numbers = [
                (name, float(value))
                for name, value in values.items()
                if name not in RESERVED and isinstance(value, float | int)
            ]
        except (msgspec.DecodeError, RecursionError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self.num_damaged += 1
            return
        self.num_lines += 1
        axis: Axis = "seconds" if values.get("axis") == "seconds" else "steps"
        for name, value in numbers:
            series = self._series.get((axis, name))
            if series is None:
                if len(self._series) >= _MAX_NAMES:
                    self.num_left_out += 1
                    continue
                series = self._series[axis, name] = MetricSeries()
            series.add(step, second, value)


class MetricFiles:
    """A part of the site. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Path, tuple[threading.Lock, Metrics]] = {}

    def use(self, folder: Path, look: Callable[[Metrics], T]) -> T:
        """What `look` makes of the metrics of a trial, as they are now. It must not keep them."""
        with self._lock:
            kept = (
                self._kept.pop(folder) if folder in self._kept else (threading.Lock(), Metrics(folder / METRICS_FILE))
            )
            self._kept[folder] = kept  # the last one used goes last
            while len(self._kept) > _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        lock, metrics = kept
        with lock:
            metrics.read()
            return look(metrics)
