"""A call at its caller: who makes it, its number, and what became of it."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ludus import errors
from ludus.data import codec
from ludus.rpc import deadline
from ludus.rpc.arena import CALL_WINDOW
from ludus.rpc.transport import Buffer

__all__ = ["Caller", "Pending", "Reader", "decode_body", "encode_body", "new_call"]

_FIRST_PROBE_S = 0.25


class Reader(Protocol):
    """What reads the answer of a call: a link, or whatever holds it until there is one."""

    def wait(self, pending: Pending) -> None:
        """Return once `pending` is done or has another reader."""
        ...

    def pump(self) -> None:
        """Take in what has arrived; never waits."""
        ...

    def tend(self) -> None:
        """End the calls whose deadline has passed and ask after those that have waited long."""
        ...

    def fileno(self) -> int | None:
        """Readable when `pump` has something to do; `None` when only time will tell."""
        ...


class Caller:
    """Who calls: an identity and its numbered, unsettled calls, which may be spread over several servers."""

    def __init__(self) -> None:
        self.client = os.urandom(16)
        self._lock = threading.Lock()
        self._last = 0
        self._unsettled: dict[int, int] = {}  # seq → slot; in order, so the first is the oldest
        self._slots = list(range(CALL_WINDOW - 1, -1, -1))

    def begin(self) -> tuple[int, int, int, list[int]]:
        """A new call's number and slot, and what is settled by now: every call below the third, except those listed.

        The exceptions are calls that take much longer than others. Raises `Overloaded` when too many are on the way.
        """
        with self._lock:
            if not self._slots:
                raise errors.Overloaded(
                    f"a caller may have {CALL_WINDOW} calls on the way; wait for some of them first"
                )
            self._last = seq = self._last + 1
            self._unsettled[seq] = slot = self._slots.pop()
            slow: list[int] = []
            for oldest in self._unsettled:
                if seq - oldest < CALL_WINDOW:
                    return seq, slot, oldest, slow
                slow.append(oldest)
            raise AssertionError("the new call itself is unsettled")

    def settle(self, seq: int) -> None:
        with self._lock:
            slot = self._unsettled.pop(seq, None)
            if slot is not None:
                self._slots.append(slot)

    def __len__(self) -> int:
        return len(self._unsettled)


class Pending:
    """A call on its way."""

    done = False
    link: Reader | None = None
    event: threading.Event | None = None
    probe_gap = _FIRST_PROBE_S
    next_probe = 0.0
    tried: tuple[object, ...] = ()
    move_at = math.inf  # from then on another replica may run it, too: for calls that may run twice
    answers_seen = -1  # of its link, when it was last looked at whether that is held up
    _value: Any = None
    _error: BaseException | None = None
    _callbacks: tuple[Callable[[Pending], None], ...] = ()

    def __init__(
        self,
        seq: int,
        slot: int,
        acked: int,
        slow: list[int],
        command: str,
        body: Sequence[Buffer],
        deadline_at: float,
    ) -> None:
        self.seq = seq
        self.slot = slot
        self.acked = acked
        self.slow = slow
        self.command = command
        self.body = body
        self.deadline = deadline_at

    def result(self) -> Any:
        """Wait for the end of the call; its result. Raises what it failed with."""
        while not self.done:
            link = self.link
            if link is None:
                raise errors.RpcError(f"call {self.command!r} was never sent")
            link.wait(self)
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def error(self) -> BaseException | None:
        """What a finished call failed with."""
        return self._error

    def add_done_callback(self, callback: Callable[[Pending], None]) -> None:
        """Called by the thread that reads the answer; at once if it is there."""
        self._callbacks = (*self._callbacks, callback)
        if self.done:
            self._run_callbacks()

    def finish(self, value: Any, error: BaseException | None) -> None:
        if self.done:
            return
        self._value = value
        self._error = error
        self.body = ()
        self.done = True
        if self.event is not None:
            self.event.set()
        if self._callbacks:
            self._run_callbacks()

    def _run_callbacks(self) -> None:
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)


def encode_body(args: Sequence[Any], kwargs: Mapping[str, Any] | None, limits: codec.Limits) -> Sequence[Buffer]:
    """The frames of a call's arguments: the keywords alone, or `[args, kwargs]` when there are others."""
    return codec.encode([list(args), kwargs or {}] if args else kwargs or {}, limits=limits)


def decode_body(frames: Sequence[Buffer], limits: codec.Limits) -> tuple[list[Any], dict[str, Any]]:
    """The inverse. Raises `CodecError`."""
    body = codec.decode(frames, limits=limits)
    if type(body) is dict:
        return [], body
    if type(body) is list and len(body) == 2 and type(body[0]) is list and type(body[1]) is dict:
        return body[0], body[1]
    raise errors.CodecError("the body of a call is its keywords, or [args, kwargs]")


def new_call(
    caller: Caller,
    command: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    timeout_s: float,
    limits: codec.Limits,
) -> Pending:
    """A numbered call that ends within `timeout_s` and within the deadline of the call being handled, if any."""
    body = encode_body(args, kwargs, limits)
    outer = deadline.current.get()
    until = time.monotonic() + timeout_s
    return Pending(*caller.begin(), command, body, until if outer is None else min(until, outer))
