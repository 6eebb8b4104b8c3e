"""Metrics: what they may be called, and windows of their values, in one process or joined from many.

windows = Windows()
windows.add("loss", 0.5, desc=None, labels={"rank": 0})
other.join(windows.rows())                       # over the wire, and into those of another process
other.scalars()                                  # {"loss": 0.5, "loss/rank=0": 0.5}
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ludus import errors, spelling

if TYPE_CHECKING:
    from ludus.data.nest import Nest

__all__ = ["PREFIX", "RESERVED", "Description", "Window", "Windows", "check_description", "check_name"]

PREFIX = "time_window_"
RESERVED = frozenset({"step", "time", "wall_s", "axis", "not_finite"})
"""The fields of a line of metrics.jsonl that are not metrics."""

Description = str | Mapping[str, str] | None
"""What a metric is, in words; or which aggregates of it are wanted, each with words of its own."""

_PLAIN = ("avg", "sum", "cnt", "min", "max", "std")
_AGGREGATES = frozenset(PREFIX + name for name in (*_PLAIN, *(f"p{percent}" for percent in range(1, 100))))
_MAX_SAMPLES = 512  # of a window, for its percentiles
_MAX_WINDOWS = 10_000  # labels of ever new values would fill the memory

Labels = tuple[tuple[str, str], ...]


def check_name(name: Any) -> None:
    """The one rule for the names of metrics: a text that is not a field of every line. Raises `ConfigError`."""
    if not isinstance(name, str):
        raise errors.ConfigError(f"{name!r} cannot name a metric: a name is a text, not a {type(name).__name__}.")
    if name in RESERVED:
        raise errors.ConfigError(
            f"a metric cannot be named {name!r}: lines of metrics.jsonl have a field of that name. Give it another, "
            f"such as 'train/{name}'."
        )


def check_description(desc: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless every key is an aggregate."""
    if not isinstance(desc, Mapping):
        raise errors.ConfigError(f"desc is words, or a dict of aggregates with words for each, not {desc!r}")
    if desc.keys() <= _AGGREGATES:
        return
    unknown = min(str(key) for key in desc.keys() - _AGGREGATES)
    known = [PREFIX + name for name in (*_PLAIN, "p50", "p95", "p99")]
    raise errors.ConfigError(f"desc has {unknown!r}, which is no aggregate. {spelling.nearest(unknown, known)}")


class Window:
    """Count, sum, least and most; and, if percentiles are wanted, a fair sample of at most 512 values.

    `spread` is the sum of the squared distances from the mean, kept up to date by Welford's and Chan's formulas: the
    difference of two large sums would be noise. https://en.wikipedia.org/wiki/Algorithms_for_calculating_variance
    """

    __slots__ = ("count", "least", "most", "samples", "spread", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.spread = 0.0
        self.least = math.inf
        self.most = -math.inf
        self.samples: list[float] = []

    def add(self, value: float, *, is_sampled: bool = False) -> None:
        count = self.count
        if count:
            apart = value - self.total / count
            self.spread += apart * apart * (count / (count + 1))
        self.count = count + 1
        self.total += value
        if value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        if is_sampled:
            if len(self.samples) < _MAX_SAMPLES:
                self.samples.append(value)
            elif (place := random.randrange(self.count)) < _MAX_SAMPLES:
                self.samples[place] = value

    def join(self, other: Window) -> None:
        samples = self.samples + other.samples
        if len(samples) > _MAX_SAMPLES:
            mine = round(_MAX_SAMPLES * self.count / (self.count + other.count))
            mine = max(min(mine, len(self.samples)), _MAX_SAMPLES - len(other.samples))
            samples = random.sample(self.samples, mine) + random.sample(other.samples, _MAX_SAMPLES - mine)
        self.samples = samples
        self.spread += other.spread
        if self.count and other.count:
            apart = other.total / other.count - self.total / self.count
            self.spread += apart * apart * (self.count * other.count / (self.count + other.count))
        self.count += other.count
        self.total += other.total
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)

    def aggregate(self, name: str) -> float:
        """One of `avg`, `sum`, `cnt`, `min`, `max`, `std`, `p1` … `p99`."""
        match name:
            case "sum":
                return self.total
            case "cnt":
                return float(self.count)
            case "min":
                return self.least
            case "max":
                return self.most
            case "std":
                return math.sqrt(max(self.spread / self.count, 0.0))  # in this order: nan stays nan
            case "avg":
                return self.total / self.count
        if not self.samples:
            return math.nan
        import numpy as np  # here: who only writes metrics does not load it

        return float(np.percentile(self.samples, int(name[1:])))


class Windows:
    """A window for each metric and its labels. Used under its owner's lock."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, Labels], Window] = {}
        self._descriptions: dict[str, dict[str, str] | str | None] = {}
        self._sampled: set[str] = set()

    def __len__(self) -> int:
        return len(self._windows)

    def add(self, name: str, value: float, *, desc: Description, labels: Mapping[str, Any]) -> None:
        key = tuple(sorted((label, str(of)) for label, of in labels.items())) if labels else ()
        if desc is not None or name not in self._descriptions:
            self._describe(name, desc)
        self._window(name, key).add(value, is_sampled=name in self._sampled)

    def rows(self) -> list[Nest]:
        """All of it as a nest. Its texts can be sent and written, whatever they were."""
        import numpy as np

        return [
            [
                _clean(name),
                [[_clean(label), _clean(of)] for label, of in labels],
                _as_text(self._descriptions[name]),
                [window.count, window.total, window.spread, window.least, window.most],
                np.array(window.samples, np.float64),
            ]
            for (name, labels), window in self._windows.items()
        ]

    def join(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add another's `rows`."""
        for name, labels, desc, (count, total, spread, least, most), samples in rows:
            if desc is not None or name not in self._descriptions:
                self._describe(name, desc)
            other = Window()
            other.count, other.total, other.spread, other.least, other.most = count, total, spread, least, most
            other.samples = samples.tolist()
            self._window(name, tuple((label, of) for label, of in labels)).join(other)

    def scalars(self) -> dict[str, float]:
        """The aggregates that are wanted, by tag: of each metric over all its labels, and for each of its labels."""
        whole: dict[str, Window] = {}
        for (name, _labels), window in self._windows.items():
            whole.setdefault(name, Window()).join(window)
        found: dict[str, float] = {}
        for name, window in whole.items():
            found |= self._aggregates(name, window, ())
        for (name, labels), window in self._windows.items():
            if labels:
                found |= self._aggregates(name, window, labels)
        return found

    def descriptions(self) -> dict[str, str]:
        """The words for each tag that has any, without its labels."""
        found: dict[str, str] = {}
        for name, desc in self._descriptions.items():
            if isinstance(desc, str):
                found[name] = desc
            elif desc is not None:
                found |= {f"{name}/{aggregate.removeprefix(PREFIX)}": words for aggregate, words in desc.items()}
        return found

    def _window(self, name: str, labels: Labels) -> Window:
        window = self._windows.get((name, labels))
        if window is None:
            if len(self._windows) >= _MAX_WINDOWS:
                labels = ()  # counted with the whole
                window = self._windows.get((name, labels))
            if window is None:
                window = self._windows[name, labels] = Window()
        return window

    def _describe(self, name: str, desc: Description) -> None:
        self._descriptions[name] = dict(desc) if isinstance(desc, Mapping) else desc
        if isinstance(desc, Mapping) and any(key.startswith(PREFIX + "p") for key in desc):
            self._sampled.add(name)

    def _aggregates(self, name: str, window: Window, labels: Labels) -> dict[str, float]:
        desc = self._descriptions[name]
        ending = "/" + ",".join(f"{label}={of}" for label, of in labels) if labels else ""
        if not isinstance(desc, dict):
            return {f"{name}{ending}": window.aggregate("avg")}
        wanted = [aggregate.removeprefix(PREFIX) for aggregate in desc]
        return {f"{name}/{aggregate}{ending}": window.aggregate(aggregate) for aggregate in wanted}


def _as_text(desc: dict[str, str] | str | None) -> Nest:
    """Whatever was given as words, as words."""
    if isinstance(desc, dict):
        return {aggregate: _clean(str(words)) for aggregate, words in desc.items()}
    return None if desc is None else _clean(desc)


def _clean(text: str) -> str:
    """With a question mark for what no file can hold, such as half a character."""
    return text.encode("utf-8", "replace").decode()
