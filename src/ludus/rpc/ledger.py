"""What a server remembers of the calls it has seen, so that none runs twice.

A caller numbers its calls and says up to which number they are settled, and with what exceptions. Those may be
forgotten; the others are kept: running, or done with their answer, for a caller whose answer was lost on the way.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from collections import deque

from ludus import errors
from ludus.rpc.transport import Frames

__all__ = ["Ledger", "LedgerStats", "Seen"]


class Seen(enum.Enum):
    """What the ledger says of a call that arrives."""

    NEW = "new"  # run it
    RUNNING = "running"  # it is under way: the answer will come
    SETTLED = "settled"  # the caller has its answer: a late copy
    GONE = "gone"  # it ran, and its answer was too large or too old to keep


@dataclasses.dataclass(frozen=True, kw_only=True)
class LedgerStats:
    num_callers: int
    num_answers: int
    answer_bytes: int
    max_answer_bytes: int


_NOBODY: frozenset[int] = frozenset()


class _Caller:
    __slots__ = ("acked", "calls", "last_seen", "unsettled")

    def __init__(self) -> None:
        self.acked = 0
        self.unsettled: frozenset[int] = _NOBODY
        self.calls: dict[int, Seen | Frames] = {}
        self.last_seen = 0.0


class Ledger:
    """Bounded: of answers above `max_kept_bytes`, or above `max_answer_bytes` in all, only that they ran is kept."""

    def __init__(
        self,
        *,
        max_callers: int = 16_384,
        idle_s: float = 600.0,
        max_kept_bytes: int = 64 << 10,
        max_answer_bytes: int = 64 << 20,
    ) -> None:
        self._callers: dict[bytes, _Caller] = {}
        self._max_callers = max_callers
        self._idle_s = idle_s
        self._max_kept_bytes = max_kept_bytes
        self._max_answer_bytes = max_answer_bytes
        self._answer_bytes = 0
        self._order: deque[tuple[_Caller, int, int]] = deque()  # (caller, seq, bytes), oldest first
        self._sweep_at = 4096

    def arrive(self, client: bytes, seq: int, acked: int, unsettled: list[int]) -> Seen | Frames:
        """Note that call `seq` of `client` is here. `NEW` means it is now running; frames are its kept answer.

        Raises `Overloaded` when there are too many callers.
        """
        caller = self._callers.get(client)
        if caller is None:
            self._make_room()
            caller = self._callers[client] = _Caller()
        caller.last_seen = time.monotonic()
        if acked == seq > caller.acked and not unsettled:  # most callers make one call at a time
            caller.acked = acked
            caller.unsettled = _NOBODY
            caller.calls = {seq: Seen.RUNNING}
            return Seen.NEW
        calls = caller.calls
        if acked > caller.acked:
            caller.acked = acked
            caller.unsettled = frozenset(unsettled)
            for old in [key for key in calls if key < acked and key not in caller.unsettled]:
                del calls[old]
        if seq < caller.acked and seq not in caller.unsettled:
            return Seen.SETTLED
        found = calls.get(seq)
        if found is not None:
            return found
        calls[seq] = Seen.RUNNING
        return Seen.NEW

    def find(self, client: bytes, seq: int) -> Seen | Frames:
        """What became of a call, without noting anything. `NEW` means it was never seen."""
        caller = self._callers.get(client)
        if caller is None:
            return Seen.NEW
        caller.last_seen = time.monotonic()
        if seq < caller.acked and seq not in caller.unsettled:
            return Seen.SETTLED
        return caller.calls.get(seq, Seen.NEW)

    def finish(self, client: bytes, seq: int, answer: Frames) -> None:
        """Keep the answer of a running call until its caller has settled it."""
        caller = self._callers.get(client)
        if caller is None or seq not in caller.calls:
            return
        size = 0
        for frame in answer:
            size += frame.nbytes if type(frame) is memoryview else len(frame)
        if size > self._max_kept_bytes:
            caller.calls[seq] = Seen.GONE
            return
        # Copied: the handler may change its arrays once it has returned.
        caller.calls[seq] = [frame if type(frame) is bytes else bytes(frame) for frame in answer]
        self._order.append((caller, seq, size))
        self._answer_bytes += size
        if self._answer_bytes > self._max_answer_bytes or len(self._order) > self._sweep_at:
            self._sweep()

    def abandon(self, client: bytes, seq: int) -> None:
        """Forget a call that arrived and was not started: it may arrive again."""
        caller = self._callers.get(client)
        if caller is not None:
            caller.calls.pop(seq, None)

    def _sweep(self) -> None:
        """Drop the records of settled calls and, if there is still too much, the oldest answers."""
        kept: deque[tuple[_Caller, int, int]] = deque()
        size = 0
        for entry in self._order:
            if isinstance(entry[0].calls.get(entry[1]), list):
                kept.append(entry)
                size += entry[2]
        while kept and size > self._max_answer_bytes // 2:
            caller, seq, answer_bytes = kept.popleft()
            caller.calls[seq] = Seen.GONE
            size -= answer_bytes
        self._order = kept
        self._answer_bytes = size
        self._sweep_at = max(4096, 2 * len(kept))

    def _make_room(self) -> None:
        if len(self._callers) < self._max_callers:
            return
        horizon = time.monotonic() - self._idle_s
        idle = [key for key, caller in self._callers.items() if caller.last_seen < horizon]
        for key in idle:
            del self._callers[key]
        if not idle:
            raise errors.Overloaded(f"{len(self._callers)} callers are being served, as many as allowed; not run")

    def statistics(self) -> LedgerStats:
        return LedgerStats(
            num_callers=len(self._callers),
            num_answers=len(self._order),
            answer_bytes=self._answer_bytes,
            max_answer_bytes=self._max_answer_bytes,
        )
