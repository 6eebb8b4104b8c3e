"""Named buffers of items, and what stands between one and a trainer.

    buffer = ludus.RemoteBuffer("pong")
    buffer.push({"obs": obs, "reward": 0.5})                        # an actor, in any process of the trial

    batches = ludus.BatchBuffer(buffer, batch_size=64)              # a trainer
    for batch in ludus.PrefetchBuffer(ludus.TorchTensorBuffer(batches)):
        learn(batch["obs"], batch["reward"])

Iterating ends when the trial is asked to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ludus import errors
from ludus.data.nest import Nest
from ludus.rpc.aio import AsyncRpcClient
from ludus.rpc.client import Pending, wait_any
from ludus.rpc.link import Link
from ludus.services.buffer.adapters import SLICE_S, BatchBuffer, Buffer, PrefetchBuffer, TorchTensorBuffer
from ludus.services.buffer.buffer_settings import DROP_NEWEST
from ludus.services.buffer.nest_buffer import Sampled
from ludus.trial import current as trials
from ludus.trial.driver import check_count, check_name

__all__ = ["BatchBuffer", "Buffer", "PrefetchBuffer", "RemoteBuffer", "Sampled", "TorchTensorBuffer"]

_RETRY_AFTER_S = 0.05
_WAY_S = 10.0  # what a call may take beyond what it waits for
_LEAST_S = 1.0  # what it has in any case
_LOST = (errors.Unreachable, errors.OutcomeUnknown, errors.DeadlineExceeded, errors.Overloaded, errors.DiscoveryError)
"""After these a push may or may not have been queued. Pushing again is safe: the buffer knows its id."""


class RemoteBuffer(Buffer):
    """The buffer of that name: the same from any process of the trial. By default a queue, each item to one consumer.

    It is made when it is first named, and its items are in the driver's memory. What is not given is as it is already,
    or as by default; what is given must be the same everywhere, or `ConfigError`.

    capacity: how many items it holds (1024).
    sampler: which item is next: "fifo", "lifo", "uniform", "prioritised" (with `exponent`), "min_heap" or "max_heap".
    remover: which item goes to make room, if `when_full` is "drop_oldest"; the same names ("fifo").
    max_times_sampled: an item goes after so many; 0: never (1, or 0 if the sampler is random).
    min_size: it is not sampled from before it has so many items (1).
    samples_per_insert, tolerance: pushes and samples wait for each other so that each item is sampled so often on
        average, by `tolerance` samples more or less.
    when_full: what `push` does: "drop_newest", "drop_oldest", or "block", which waits ("drop_newest"; "drop_oldest" if
        items are never used up).
    compress: items are kept compressed.
    persist: what was pushed survives the death of the driver, even by kill -9, in the trial's folder.
    """

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        sampler: str | None = None,
        remover: str | None = None,
        exponent: float | None = None,
        max_times_sampled: int | None = None,
        min_size: int | None = None,
        samples_per_insert: float | None = None,
        tolerance: float | None = None,
        when_full: str | None = None,
        compress: bool | None = None,
        persist: bool | None = None,
    ) -> None:
        check_name("buffer", name)
        self.name = name
        given = {
            "capacity": None if capacity is None else check_count("capacity", capacity),
            "sampler": sampler,
            "remover": remover,
            "exponent": exponent,
            "max_times_sampled": max_times_sampled,
            "min_size": min_size,
            "samples_per_insert": samples_per_insert,
            "tolerance": tolerance,
            "when_full": when_full,
            "compress": compress,
            "persist": persist,
        }
        self._given = {key: value for key, value in given.items() if value is not None}
        self._trial = trials.current()
        self._line: _Line = self._trial.keep(f"buffer-{name}", lambda: _Line(self._trial, name))
        if self._given or not _is_in_loop():  # a loop waits only so that nobody else gives it other settings
            self._line.open(self._given)

    def push(
        self, *items: Nest, drop: bool | None = None, priorities: Sequence[float] | None = None, timeout_s: float = 60.0
    ) -> int:
        """Queue items, each a nest of arrays, numbers and texts; returns how many were queued.

        drop: when the buffer is full, what does not fit is dropped, and counted by `statistics`. If false, waits for
            room, at most `timeout_s`, and raises `DeadlineExceeded`. By default as `when_full` says. What was reported
            as queued is queued once.
        priorities: one for each item, of 0 or more; without, each gets the largest that there ever was.
        """
        self._line.open(self._given)
        push = _Push(self._line, items, drop=drop, priorities=priorities, timeout_s=timeout_s)
        with self._line.identity() as identity:
            while not push.is_done:
                try:
                    count = self._line.submit_push(push, identity).result()
                except _LOST as error:
                    push.lost(error)
                    time.sleep(_RETRY_AFTER_S)
                else:
                    push.answered(count)
        return push.num_queued

    async def push_async(
        self, *items: Nest, drop: bool | None = None, priorities: Sequence[float] | None = None, timeout_s: float = 60.0
    ) -> int:
        """`push` for those on an event loop, which is not blocked. The arrays must not change before it is done."""
        if not self._line.is_open:
            await asyncio.to_thread(self._line.open, self._given)
        push = _Push(self._line, items, drop=drop, priorities=priorities, timeout_s=timeout_s)
        with self._line.identity() as identity:
            while not push.is_done:
                try:
                    client = await self._line.client(push.call_s)
                    count = await client.call("push_many", push.arguments(identity), timeout_s=push.call_s)
                except _LOST as error:
                    push.lost(error)
                    await asyncio.sleep(_RETRY_AFTER_S)
                else:
                    push.answered(count)
        return push.num_queued

    def take(self, n: int = 1, timeout_s: float = 60.0) -> list[Nest]:
        """Up to `n`, as soon as there is one, the sampler's first first; none when none came within `timeout_s`."""
        self._line.open(self._given)
        now = time.monotonic()
        until = now + timeout_s
        try:
            while True:
                began, wait_s = now, max(0.0, min(SLICE_S, until - now))
                taken = self._line.take(n, wait_s)
                now = time.monotonic()
                if taken or now >= until or now - began < wait_s:  # nothing, and too soon: it was closed
                    return taken
        except (errors.Unreachable, errors.OutcomeUnknown, errors.DiscoveryError):
            if self._trial.has_ended():
                return []
            raise

    def sample(self, n: int = 1, timeout_s: float = 60.0) -> Sampled:
        """`n` draws by the sampler: `.items`, `.keys` and `.probabilities`, arrays of `n`.

        Raises `DeadlineExceeded` when they could not be had within `timeout_s`, which says why.
        """
        n = check_count("n", n)
        self._line.open(self._given)
        until = time.monotonic() + timeout_s
        while True:
            answer = self._line.sample(n, max(0.0, min(SLICE_S, until - time.monotonic())))
            if "items" in answer:
                return Sampled(answer["items"], answer["keys"], answer["probabilities"])
            if time.monotonic() >= until or self._trial.is_stopping:
                raise errors.DeadlineExceeded(
                    f"{n} items could not be sampled from buffer {self.name!r} in {timeout_s:g} s: {answer['waits']}"
                )

    def update_priorities(self, keys: Any, priorities: Any) -> int:
        """Of items that were sampled. Those that are gone are ignored; returns how many were there."""
        self._line.open(self._given)
        keys, priorities = np.asarray(keys, np.int64), np.asarray(priorities, np.float64)
        return int(self._line.remote.submit("update_priorities", keys, priorities).result())

    def statistics(self) -> dict[str, Any]:
        """`num_pushed`, `num_taken`, `num_dropped`, `size`, `capacity` and others: see `BufferStats`.

        `inserting` and `sampling` say why the next push or sample must wait; they are empty if it need not.
        """
        self._line.open(self._given)
        stats: dict[str, Any] = self._line.remote.submit("statistics").result()
        return stats

    def __len__(self) -> int:
        return int(self.statistics()["size"])

    def __bool__(self) -> bool:
        return True  # an empty buffer is one

    @property
    def is_stopping(self) -> bool:
        return self._trial.is_stopping

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self.name, self._given)  # in another process of the trial it is the same

    def __repr__(self) -> str:
        return f"RemoteBuffer({self.name!r})"


def _make(name: str, given: dict[str, Any]) -> RemoteBuffer:
    return RemoteBuffer(name, **given)


class _Line:
    """The way to one buffer, shared by all that use it in this process."""

    def __init__(self, trial: trials.Trial, name: str) -> None:
        self.is_open = False
        self.trial = trial
        self.name = name
        self._node = f"buffer-{name}"
        self.drops_by_default = True
        self._declared: dict[str, Any] = {}
        self._identities: deque[_Identity] = deque()
        self._clients: weakref.WeakKeyDictionary[Any, AsyncRpcClient] = weakref.WeakKeyDictionary()

    def open(self, given: dict[str, Any]) -> None:
        """Have the driver make it. Raises `ConfigError` if it has other settings."""
        if not self.is_open or any(key not in self._declared or self._declared[key] != given[key] for key in given):
            when_full = self.trial.ask_driver("open_buffer", self.name, given)
            self.drops_by_default = when_full == DROP_NEWEST
            self._declared |= given
            self.is_open = True

    @property
    def remote(self) -> Any:
        return self.trial.remote(self._node)

    @contextlib.contextmanager
    def identity(self) -> Iterator[_Identity]:
        """Whose pushes come one after another: two at a time are by two, so that none overtakes another's number."""
        try:
            mine = self._identities.pop()
        except IndexError:
            mine = _Identity()
        try:
            yield mine
        finally:
            self._identities.append(mine)

    def submit_push(self, push: _Push, identity: _Identity) -> Any:
        return self.remote.solver.submit(self._node, "push_many", push.arguments(identity), timeout_s=push.call_s)

    def take(self, n: int, wait_s: float) -> list[Nest]:
        """At most `SLICE_S`: until a wait expires, a dead consumer can still be handed items."""
        if self.trial.is_driver_gone:
            raise errors.Unreachable(self._gone)
        # An answer that came too late would be lost with what was taken, so there is much time for it.
        way_s = _LEAST_S if self.trial.is_stopping else _WAY_S
        call = self.remote.solver.submit(self._node, "take_some", [n, wait_s], timeout_s=2 * wait_s + way_s)
        try:
            taken: list[Nest] = self._await(call)
            return taken
        except errors.LudusError:
            raise
        except BaseException:  # Ctrl-C: nobody will have what is on its way
            with contextlib.suppress(errors.LudusError):  # then it is lost with the call
                taken = self._await(call)
                if taken:
                    self.remote.submit("give_back", taken).result()
            raise

    def sample(self, n: int, wait_s: float) -> dict[str, Any]:
        """The items, or why they must be waited for."""
        if self.trial.is_driver_gone:
            raise errors.Unreachable(self._gone)
        way_s = _LEAST_S if self.trial.is_stopping else _WAY_S
        call = self.remote.solver.submit(self._node, "sample", [n, wait_s], timeout_s=2 * wait_s + way_s)
        answer: dict[str, Any] = self._await(call)
        return answer

    def _await(self, call: Pending) -> Any:
        """What was taken. Of a driver that died before it had the call, nothing is waited for."""
        while not call.done and isinstance(call.link, Link):
            call.link.wait(call)
        while not call.done and not wait_any([call], SLICE_S):  # there is nobody to run it now
            if self.trial.is_driver_gone:
                raise errors.Unreachable(self._gone)
        return call.result()

    @property
    def _gone(self) -> str:
        return f"the driver of the trial is gone, and buffer {self.name!r} with it"

    async def client(self, timeout_s: float) -> AsyncRpcClient:
        """Of the running event loop."""
        self.trial.expect_open()
        loop = asyncio.get_running_loop()
        known = self._clients.get(loop)
        if known is None:
            address = await asyncio.to_thread(self.trial.address, f"{self._node}/0", timeout_s=timeout_s)
            known = self._clients.setdefault(loop, AsyncRpcClient(address, secret=self.trial.context.secret))
        return known


class _Identity:
    """A producer, with the number of its last push."""

    def __init__(self) -> None:
        self.name = f"push-{uuid.uuid4().hex[:16]}"
        self.number = 0


class _Push:
    """One `push` on its way: what is left of it, and until when."""

    def __init__(
        self,
        line: _Line,
        items: Sequence[Nest],
        *,
        drop: bool | None,
        timeout_s: float,
        priorities: Sequence[float] | None = None,
    ) -> None:
        self.num_queued = 0
        self.is_done = not items
        self._line = line
        self._left = list(items)
        self._drop = line.drops_by_default if drop is None else drop
        self._priorities = None if priorities is None else np.asarray(priorities, np.float64)
        if self._priorities is not None and self._priorities.shape != (len(items),):
            raise errors.DataError(
                f"{len(items)} items with priorities of shape {self._priorities.shape}; nothing was queued. "
                "Give one each."
            )
        self._timeout_s = timeout_s
        self._until = time.monotonic() + timeout_s
        self._number: int | None = None  # of the call that is on its way, or lost

    @property
    def call_s(self) -> float:
        """What the next call may take."""
        return max(_LEAST_S, min(self._until - time.monotonic(), 2 * SLICE_S + _WAY_S))

    def arguments(self, identity: _Identity) -> list[Any]:
        """Of the next call: with a new number, unless it is made again because nobody knows what became of it."""
        if self._number is None:
            self._number = identity.number = identity.number + 1
        wait_s = 0.0 if self._drop else max(0.001, min(SLICE_S, self._until - time.monotonic()))
        priorities = None if self._priorities is None else self._priorities[-len(self._left) :]
        return [self._left, f"{identity.name}/{self._number}", wait_s, priorities]

    def answered(self, count: int) -> None:
        self._number = None
        self.num_queued += count
        self._left = self._left[count:]
        self.is_done = self._drop or not self._left
        if not self.is_done and count == 0:
            if self._line.trial.is_stopping:
                raise self._expired("it is full, and the trial is stopping, so nobody takes from it any more.")
            if time.monotonic() >= self._until:
                raise self._expired(
                    f"it was full for {self._timeout_s:g} s. Take more quickly, give it more capacity, or push with "
                    "drop=True."
                )

    def lost(self, error: Exception) -> None:
        trial = self._line.trial
        if time.monotonic() >= self._until or (trial.is_stopping and isinstance(error, errors.Unreachable)):
            raise self._expired(f"it does not answer: {error}") from error
        if trial.is_driver_gone and trial.has_ended():
            raise self._expired("the driver of the trial is gone, and it with it.") from error

    def _expired(self, why: str) -> errors.DeadlineExceeded:
        return errors.DeadlineExceeded(
            f"{len(self._left)} items were not queued in buffer {self._line.name!r}, {self.num_queued} were: {why}"
        )


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
