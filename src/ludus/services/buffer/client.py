"""The two ends of a buffer elsewhere: one that pushes to it and one that takes from it.

producer = BufferProducer(remote, producer="simulator/0", credits=2)
free = [Segment.allocate(...) for _ in range(producer.num_segments)]     # one more than credits
while True:
    segment = free.pop()                    # there is always one
    play(segment)                           # the ones before are still on their way
    free += producer.push(segment)          # waits only while `credits` pushes are unanswered
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from ludus import errors
from ludus.data.segment import Segment
from ludus.rpc.call import Pending
from ludus.rpc.client import wait_any
from ludus.services.buffer.nest_buffer import Item
from ludus.services.buffer.seen_segments import WINDOW

__all__ = ["BufferConsumer", "BufferProducer", "ProducerStats"]

_RETRY_AFTER_S = 0.05
_SLICE_S = 0.5


class _Remote(Protocol):
    """What a handle becomes: `ludus.workers.remote.Remote`."""

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending: ...


@dataclass(frozen=True, kw_only=True)
class ProducerStats:
    num_pushed: int  # segments given to `push`
    num_answered: int  # of which so many are known to be queued
    num_repeated: int  # pushes that were made again, because the buffer was lost or did not answer in time
    num_unanswered: int
    credits: int
    waited_s: float  # spent in waiting for the buffer


@dataclass(kw_only=True)
class _Push:
    segment: Segment
    segment_id: str
    pending: Pending
    until: float


class BufferProducer:
    """Pushes segments, at most `credits` of them unanswered. Used by one thread.

    With more than one credit a segment can overtake the one before it on the way; with one they arrive in order.

    Every object is a new incarnation of `producer` and numbers its segments, so a push that is repeated after the
    buffer was lost is queued once. `timeout_s`: how long a segment may stay unanswered, be the buffer gone or full.
    """

    def __init__(self, remote: _Remote, *, producer: str, credits: int = 2, timeout_s: float = 600.0) -> None:
        if not 1 <= credits <= WINDOW:
            raise errors.ConfigError(f"credits={credits}: a producer has 1 to {WINDOW}")
        self._remote = remote
        self._credits = credits
        self._timeout_s = timeout_s
        self._identity = f"{producer}-{uuid.uuid4().hex[:12]}"
        self._unanswered: deque[_Push] = deque()
        self._free: list[Segment] = []
        self._num_pushed = self._num_answered = self._num_repeated = 0
        self._waited_s = 0.0

    @property
    def num_segments(self) -> int:
        """How many to rotate so that one is always free: the pushed ones may not be written to before they are."""
        return self._credits + 1

    @property
    def waited_s(self) -> float:
        """Seconds that `push`, `poll` and `flush` have waited for the buffer: the producer's idle time."""
        return self._waited_s

    def push(self, segment: Segment) -> list[Segment]:
        """Send a segment, once fewer than `credits` are unanswered; returns those that may be written to again.

        `segment` itself may not until a later call returns it. Raises `DeadlineExceeded` when the oldest has been
        unanswered for `timeout_s`, and what the buffer raised if it refuses one; either is not pushed any more.
        """
        self._collect(self._credits - 1)
        self._num_pushed += 1
        segment_id = f"{self._identity}/{self._num_pushed}"
        pending = self._send(segment, segment_id)
        until = time.monotonic() + self._timeout_s
        self._unanswered.append(_Push(segment=segment, segment_id=segment_id, pending=pending, until=until))
        return self._take_free()

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Whether the next `push` would go without waiting, after waiting up to `timeout_s` for that.

        For a worker that must also answer its own callers. What was answered is returned by the next `push`.
        """
        if len(self._unanswered) < self._credits:
            return True
        oldest = self._unanswered[0]
        began = time.monotonic()
        wait_any([oldest.pending], timeout_s)
        self._waited_s += time.monotonic() - began
        if isinstance(oldest.pending.error, errors.UNANSWERED) and time.monotonic() < oldest.until:
            self._repeat(oldest)
        return oldest.pending.done

    def flush(self) -> list[Segment]:
        """Wait until everything is queued; returns the segments that are free by it. Raises as `push` does."""
        self._collect(0)
        return self._take_free()

    def statistics(self) -> ProducerStats:
        return ProducerStats(
            num_pushed=self._num_pushed,
            num_answered=self._num_answered,
            num_repeated=self._num_repeated,
            num_unanswered=len(self._unanswered),
            credits=self._credits,
            waited_s=self._waited_s,
        )

    def _send(self, segment: Segment, segment_id: str) -> Pending:
        return self._remote.submit("push", segment.to_nest(), segment_id)

    def _take_free(self) -> list[Segment]:
        free, self._free = self._free, []
        return free

    def _collect(self, most: int) -> None:
        """Wait until at most `most` are unanswered; the segments of those that are answered are free."""
        while self._unanswered and (len(self._unanswered) > most or self._unanswered[0].pending.done):
            oldest = self._unanswered[0]
            began = time.monotonic()
            try:
                self._settle(oldest)
                self._num_answered += 1
            finally:
                self._waited_s += time.monotonic() - began
                self._unanswered.popleft()
                self._free.append(oldest.segment)

    def _settle(self, push: _Push) -> None:
        """Wait for the answer; push again when the buffer was lost on the way: it knows the segment by its id."""
        while True:
            try:
                push.pending.result()
                return
            except errors.UNANSWERED as error:
                if time.monotonic() >= push.until:
                    raise errors.DeadlineExceeded(
                        f"segment {push.segment_id} was not queued in {self._timeout_s:.3g} s and is given up: {error}"
                    ) from error
            time.sleep(_RETRY_AFTER_S)
            self._repeat(push)

    def _repeat(self, push: _Push) -> None:
        self._num_repeated += 1
        push.pending = self._send(push.segment, push.segment_id)


class BufferConsumer:
    """Takes segments from a buffer in another process. A trainer that owns its buffer needs none."""

    def __init__(self, remote: _Remote) -> None:
        self._remote = remote

    def take(
        self, num_segments: int | None = None, *, min_rows: int | None = None, timeout_s: float = 30.0
    ) -> list[Item]:
        """As `NestBuffer.take`: all that was asked for, or nothing when there was not enough in time.

        It asks again every half a second: until a wait expires, a dead consumer can still be handed segments.
        """
        now = time.monotonic()
        until = now + timeout_s
        while True:
            began, wait_s = now, max(0.0, min(_SLICE_S, until - now))
            items = self._remote.submit("take", num_segments, min_rows, wait_s).result()
            now = time.monotonic()
            if items or now >= until or now - began < wait_s:  # nothing, and too soon: it was closed
                break
        return [Item(segment=Segment.from_nest(item["segment"]), segment_id=item["segment_id"]) for item in items]
