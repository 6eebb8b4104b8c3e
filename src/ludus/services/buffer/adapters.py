"""What stands between a buffer and a trainer: batches, tensors, a thread that fetches ahead. They nest.

    for batch in PrefetchBuffer(TorchTensorBuffer(BatchBuffer(buffer, batch_size=64))):
        learn(batch["obs"], batch["reward"])

Anything that can be iterated over will do as a buffer.
"""

from __future__ import annotations

import collections
import contextlib
import math
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from ludus import errors
from ludus.data import nest as nests
from ludus.data.batch import Batch
from ludus.data.nest import Nest

__all__ = ["SLICE_S", "BatchBuffer", "Buffer", "PrefetchBuffer", "TorchTensorBuffer"]

SLICE_S = 0.5
"""A wait is made of these, so that the end of the trial is noticed in between."""


class Buffer:
    """What all of these are: an iterator that waits for the next, and `take` for those who wait no longer than so."""

    def take(self, n: int, timeout_s: float) -> list[Nest]:
        """Up to `n`, as soon as there is one; none when none came within `timeout_s`."""
        raise NotImplementedError

    @property
    def is_stopping(self) -> bool:
        """Whether the trial was asked to stop."""
        return False

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will come."""
        return self.is_stopping

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Nest:
        while not self.is_ended:
            taken = self.take(1, SLICE_S)
            if taken:
                return taken[0]
        raise StopIteration


class _Iterated(Buffer):
    """Anything else that can be iterated over, as a buffer."""

    def __init__(self, source: Iterable[Nest]) -> None:
        self._source = iter(source)
        self._is_ended = False

    def take(self, n: int, timeout_s: float) -> list[Nest]:
        try:
            return [next(self._source)]
        except StopIteration:
            self._is_ended = True
            return []

    @property
    def is_ended(self) -> bool:
        return self._is_ended


class BatchBuffer(Buffer):
    """Batches of `batch_size` items, stacked along a new first axis.

    Of several buffers, each batch has items of all, as many of each as its weight says: over time exactly so. It
    waits for the one that lags. Items that do not look like most of a batch are dropped, with a `DataError`; the next
    batch has the others.
    """

    def __init__(
        self,
        buffer: Iterable[Nest] | Sequence[Iterable[Nest]],
        batch_size: int,
        *,
        weights: Sequence[float] | None = None,
    ) -> None:
        if batch_size < 1:
            raise errors.ConfigError(f"batch_size={batch_size}: a batch has at least 1 item")
        sources = list(buffer) if isinstance(buffer, list | tuple) else [buffer]
        weights = [1.0] * len(sources) if weights is None else list(weights)
        is_right = all(math.isfinite(weight) and weight >= 0 for weight in weights) and sum(weights) > 0
        if not sources or len(weights) != len(sources) or not is_right:
            raise errors.ConfigError(f"weights={weights} for {len(sources)} buffers: give each one of 0 or more")
        self._sources = [_as_buffer(source) for source in sources]
        self._shares = [weight / sum(weights) for weight in weights]
        self._batch_size = batch_size
        self._num_rows = 0
        self._num_of = [0] * len(sources)
        self._plan = self._make_plan()
        self._rows: list[list[Nest]] = [[] for _ in sources]

    def take(self, n: int = 1, timeout_s: float = 60.0) -> list[Nest]:
        until = time.monotonic() + timeout_s
        made: list[Nest] = []
        while len(made) < n and self._fill(0.0 if made else until - time.monotonic()):
            rows = [iter(taken) for taken in self._rows]
            try:
                batch = nests.stack([next(rows[index]) for index in self._plan])
            except errors.DataError as error:
                if made:
                    return made  # the next call tells of it
                num_dropped = self._drop_misfits()
                raise errors.DataError(
                    f"{num_dropped} of {self._batch_size} items do not look like the others, and are dropped: {error}"
                ) from error
            made.append(batch)
            self._rows = [[] for _ in self._sources]
            self._plan = self._make_plan()
        return made

    @property
    def is_stopping(self) -> bool:
        return any(source.is_stopping for source in self._sources)

    @property
    def is_ended(self) -> bool:
        return any(source.is_ended for source in self._sources)

    def _make_plan(self) -> list[int]:
        """The buffer of each row of the next batch: always the one that is furthest behind its share."""
        plan = []
        for _ in range(self._batch_size):
            self._num_rows += 1
            behind = [share * self._num_rows - num for share, num in zip(self._shares, self._num_of, strict=True)]
            index = max(range(len(behind)), key=behind.__getitem__)
            self._num_of[index] += 1
            plan.append(index)
        return plan

    def _drop_misfits(self) -> int:
        """Keep the items that look like most of them; how many were not."""
        looks = collections.Counter(_looks(item) for taken in self._rows for item in taken)
        usual, num_usual = looks.most_common(1)[0]
        self._rows = [[item for item in taken if _looks(item) == usual] for taken in self._rows]
        if num_usual < looks.total():
            return looks.total() - num_usual
        self._rows = [[] for _ in self._sources]  # alike, and yet they cannot be stacked
        return num_usual

    def _fill(self, timeout_s: float) -> bool:
        """Take what the plan still lacks; what was taken stays for the next time."""
        until = time.monotonic() + timeout_s
        while True:
            lacking = [i for i in range(len(self._sources)) if len(self._rows[i]) < self._plan.count(i)]
            if not lacking:
                return True
            left = max(0.0, until - time.monotonic())
            got = 0
            for index in lacking:
                num = self._plan.count(index) - len(self._rows[index])
                taken = self._sources[index].take(num, min(left, SLICE_S) if len(lacking) == 1 else min(left, 0.05))
                self._rows[index] += taken
                got += len(taken)
            if not got and (self.is_ended or time.monotonic() >= until):
                return False


class TorchTensorBuffer(Buffer):
    """Arrays become torch tensors on `device`; on the CPU they share memory where they can. Texts stay as they are."""

    def __init__(self, buffer: Iterable[Nest], device: Any = "cpu") -> None:
        self._source = _as_buffer(buffer)
        self._device = device

    def take(self, n: int = 1, timeout_s: float = 60.0) -> list[Nest]:
        return [nests.map(self._convert, item) for item in self._source.take(n, timeout_s)]

    @property
    def is_stopping(self) -> bool:
        return self._source.is_stopping

    @property
    def is_ended(self) -> bool:
        return self._source.is_ended

    def _convert(self, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind in "OSUMm":
            return leaf
        return Batch(leaf=leaf[np.newaxis]).to_torch(self._device)["leaf"][0]


class PrefetchBuffer(Buffer):
    """A thread fetches up to `size` ahead. What it raises is raised to the one who waits.

    max_reuse: how often each may be given, at most; again only while the next is not there yet.
    """

    def __init__(self, buffer: Iterable[Nest], max_reuse: int = 1, size: int = 2) -> None:
        if max_reuse < 1 or size < 1:
            raise errors.ConfigError(f"max_reuse={max_reuse}, size={size}: both are at least 1")
        self._source = _as_buffer(buffer)
        self._max_reuse = max_reuse
        self._queue: queue.Queue[tuple[Nest, BaseException | None]] = queue.Queue(size)
        self._last: Nest = None
        self._num_uses = max_reuse  # there is no last
        self._closed = threading.Event()
        self._is_drained = False
        self._thread = threading.Thread(target=self._fetch, name="ludus-prefetch", daemon=True)
        self._starting = threading.Lock()

    def take(self, n: int = 1, timeout_s: float = 60.0) -> list[Nest]:
        self._start()
        made: list[Nest] = []
        while len(made) < n and not self._is_drained:
            is_reusable = self._num_uses < self._max_reuse
            try:
                item, error = (
                    self._queue.get(timeout=max(0.001, timeout_s))
                    if not (made or is_reusable)
                    else (self._queue.get_nowait())
                )
            except queue.Empty:
                if made or not is_reusable:
                    return made
            else:
                if isinstance(error, StopIteration):
                    self._is_drained = True
                    return made
                if error is not None:
                    raise error
                self._last, self._num_uses = item, 0
            self._num_uses += 1
            made.append(self._last)
        return made

    @property
    def is_stopping(self) -> bool:
        return self._source.is_stopping

    @property
    def is_ended(self) -> bool:
        return self._is_drained or self._closed.is_set() or self.is_stopping

    def close(self) -> None:
        """End the thread. What it has fetched is not given any more. Twice is fine."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _start(self) -> None:
        with self._starting:
            if self._thread.ident is None and not self._closed.is_set():
                self._thread.start()

    def _fetch(self) -> None:
        try:
            while not self._closed.is_set() and not self._source.is_ended:
                try:
                    for item in self._source.take(1, SLICE_S):
                        self._put(item, None)
                except Exception as error:  # after which the source may go on
                    self._put(None, error)
        except BaseException as error:
            self._put(None, error)
        finally:
            self._put(None, StopIteration())

    def _put(self, item: Nest, error: BaseException | None) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put((item, error), timeout=SLICE_S)
                return


def _looks(item: Nest) -> tuple[Any, ...]:
    """What items must have in common to be stacked: their leaves, and the shape of each."""
    shapes = (leaf.shape if isinstance(leaf, np.ndarray) else () for leaf in nests.leaves(item))
    return tuple(sorted(zip(nests.paths(item), shapes, strict=True)))


def _as_buffer(source: Iterable[Nest]) -> Buffer:
    if isinstance(source, Buffer):
        return source
    if not isinstance(source, Iterable):
        raise errors.ConfigError(f"a {type(source).__name__} is no buffer, nor anything to iterate over")
    return _Iterated(source)
