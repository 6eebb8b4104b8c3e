"""Calls that cannot be answered yet, in the order they came, each until its time is up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ludus.rpc import deadline
from ludus.rpc.deferred import Deferred

__all__ = ["WaitingCalls", "time_left"]

_T = TypeVar("_T")


def time_left(timeout_s: float) -> float:
    """Past the call's deadline nobody waits any more, and what it took would be lost; half of it is for the way."""
    until = deadline.current.get()
    return timeout_s if until is None else min(timeout_s, (until - time.monotonic()) / 2)


class _Call:
    def __init__(self, attempt: Callable[[], Any], expire: Callable[[], Any]) -> None:
        self.attempt = attempt
        self.expire = expire
        self.answer = Deferred()
        self.timer: threading.Timer | None = None

    def end(self, answer: Any = None, error: Exception | None = None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None  # it has this call: in a circle, its arrays would keep a dead client's shared memory
        if error is None:
            self.answer.set_result(answer)
        else:
            self.answer.set_error(error)


class WaitingCalls:
    """Used with `lock`, which its owner holds when it calls `serve`; timers take it themselves.

    `on_expired`: called, with the lock, when a call has left the line: those behind it may want less.
    """

    def __init__(self, lock: threading.RLock, *, on_expired: Callable[[], None] | None = None) -> None:
        self._lock = lock
        self._calls: deque[_Call] = deque()
        self._on_expired = on_expired or self.serve

    def __len__(self) -> int:
        return len(self._calls)

    def answer(self, attempt: Callable[[], _T], expire: Callable[[], _T], timeout_s: float) -> Deferred | _T:
        """What `attempt` gives, as soon as that is something and no call before waits; in the end what `expire` gives.

        What `attempt` raises now is raised; what it raises later is the answer. A wait that is not a number is none.
        """
        with self._lock:
            if not self._calls:
                result = attempt()
                if result:
                    return result
            if not timeout_s > 0:
                return expire()
            call = _Call(attempt, expire)
            call.timer = threading.Timer(min(time_left(timeout_s), threading.TIMEOUT_MAX), self._expire, (call,))
            call.timer.daemon = True
            call.timer.start()
            self._calls.append(call)
        return call.answer

    def serve(self) -> None:
        """Answer those that can be answered now, in their order."""
        with self._lock:
            while self._calls:
                call = self._calls[0]
                try:
                    result = call.attempt()
                except Exception as error:  # also what nobody has thought of: this call must not hold up the others
                    self._calls.popleft()
                    call.end(error=error)
                    continue
                if not result:
                    return
                self._calls.popleft()
                call.end(result)

    def _expire(self, call: _Call) -> None:
        with self._lock:
            if call not in self._calls:
                return
            self._calls.remove(call)
            call.end(call.expire())
            self._on_expired()

    def close(self) -> None:
        """All get what they would get when their time is up."""
        with self._lock:
            calls, self._calls = self._calls, deque()
        for call in calls:
            call.end(call.expire())
