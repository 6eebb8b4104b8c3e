"""Several workers behind one port: each session belongs to one of them, found by its id.

The kernel gives a connection to any of the workers; steps of sessions that belong to another are passed on to it
through a unix socket, many at a time over one connection, and the answers come back the same way, however long they
take. When a worker dies its connections close, so that those who wait for it, and those who ask for its sessions later,
learn so at once. A worker that hangs closes nothing: so the deadline of a step is kept by the worker that passes it on,
too.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
import weakref
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import msgspec

from ludus.gateway.actor_calls import done_within
from ludus.gateway.auth import Auth
from ludus.gateway.journal import lost_sessions
from ludus.gateway.live_session import Done
from ludus.gateway.session_core import SessionCore, lost
from ludus.gateway.step import Outcome, Step

__all__ = ["Ring", "owner_of"]

_LOG = logging.getLogger(__name__)
_JOURNAL_FRESH_S = 0.5
_OWNER_FIRST_S = 0.05  # beyond a deadline: the owner keeps it, too, and its answer may be the actor's fallback
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

Ask = Callable[[str], Any]


def owner_of(session: str, size: int) -> int:
    """Which of `size` workers a session belongs to."""
    return zlib.crc32(session.encode()) % size


class Ring:
    """One worker's view of all of them. `answer_ask(what)` answers the questions of the others."""

    def __init__(
        self, index: int, size: int, *, folder: Path, journals: Callable[[], list[Path]], answer_ask: Ask
    ) -> None:
        self.index = index
        self.size = size
        self._folder = folder
        self._journals = journals
        self._answer_ask = answer_ask
        self._links: dict[int, _Link] = {}
        self._peers: weakref.WeakSet[_Peer] = weakref.WeakSet()
        self._server: asyncio.AbstractServer | None = None
        self._lost: tuple[float, frozenset[str]] = (float("-inf"), frozenset())  # as of when
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="journals")  # starts no thread before it is used
        self._reading: asyncio.Task[None] | None = None
        self._after_reading: list[Callable[[], None]] = []
        self.num_forwarded = 0

    def path(self, index: int) -> Path:
        return self._folder / f"{index}.sock"

    async def start(self, sessions: SessionCore, auth: Auth) -> None:
        """Be reachable for the others. The socket of a dead predecessor is taken over."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self.path(self.index)
        path.unlink(missing_ok=True)

        def accept() -> _Peer:
            peer = _Peer(sessions, auth, self._answer_ask)
            self._peers.add(peer)
            return peer

        self._server = await asyncio.get_running_loop().create_unix_server(accept, str(path))

    async def close(self) -> None:
        for link in self._links.values():
            link.close()
        if self._server is not None:
            self._server.close()
            for peer in list(self._peers):
                peer.close()
            self.path(self.index).unlink(missing_ok=True)
        if self._reading is not None:
            self._reading.cancel()
        self._reader.shutdown(wait=False)

    def forward(self, owner: int, step: Step, done: Done) -> None:
        """Have the owner run it. If that does not answer by the step's deadline, the game gets a problem."""
        self.num_forwarded += 1
        if step.deadline_s is not None:
            detail = (
                f"the worker of this session did not answer in {step.deadline_s * 1e3:.0f} ms; the step may still run"
            )
            missed = functools.partial(Outcome.refused, "deadline_exceeded", detail)
            done = done_within(step.deadline_s + _OWNER_FIRST_S, done, missed)
        link = self._links.get(owner)
        if link is None:
            link = self._links[owner] = _Link(str(self.path(owner)))
        message = (
            step.kind, step.session, step.data, step.number, step.run, step.deadline_s, dict(step.wants),
            step.signature,
        )  # fmt: skip

        def on_reply(reply: Any) -> None:
            if isinstance(reply, _Down):
                self._answer_unreachable(step, done, was_sent=reply.was_sent)
            else:
                done(Outcome.from_message(reply))

        link.send(message, on_reply)

    async def ask_all(self, what: str, timeout_s: float = 1.0) -> dict[int, Any]:
        """What each worker that answers in time has to say."""
        found: dict[int, Any] = {self.index: self._answer_ask(what)}
        others = [index for index in range(self.size) if index != self.index]
        answers = await asyncio.gather(*(self.ask(index, what, timeout_s) for index in others))
        found.update({index: answer for index, answer in zip(others, answers, strict=True) if answer is not None})
        return dict(sorted(found.items()))

    async def ask(self, owner: int, what: str, timeout_s: float = 1.0) -> Any:
        """What another worker has to say; `None` if it does not answer in time."""
        link = self._links.get(owner)
        if link is None:
            link = self._links[owner] = _Link(str(self.path(owner)))
        reply = asyncio.get_running_loop().create_future()
        link.send(what, lambda answer: None if reply.done() else reply.set_result(answer))
        try:
            answer = await asyncio.wait_for(reply, timeout_s)
        except TimeoutError:
            return None
        return None if isinstance(answer, _Down) else answer

    def _answer_unreachable(self, step: Step, done: Done, *, was_sent: bool) -> None:
        """The owner is gone. The journals tell whether this session was there to be lost."""
        if step.kind == "start" and not was_sent:
            detail = "the worker that this session belongs to is being started again"
            done(Outcome.refused("overloaded", detail, retry_after_s=1))
        elif was_sent:
            done(lost(step))
        elif time.monotonic() - self._lost[0] <= _JOURNAL_FRESH_S:
            self._answer_absent(step, done)
        else:
            self._after_reading.append(lambda: self._answer_absent(step, done))
            if self._reading is None:
                self._reading = asyncio.get_running_loop().create_task(self._read_journals())

    def _answer_absent(self, step: Step, done: Done) -> None:
        if step.session in self._lost[1]:
            done(lost(step))
        else:
            done(Outcome.refused("unknown_session", f"no session {step.session} has started here"))

    async def _read_journals(self) -> None:
        """Which sessions dead workers had. Those of the living are among them, but are not asked for here."""
        loop = asyncio.get_running_loop()
        read = functools.partial(lost_sessions, self._journals(), is_quiet=True)
        try:
            self._lost = (time.monotonic(), frozenset(await loop.run_in_executor(self._reader, read)))
        except OSError:
            _LOG.exception("the journals cannot be read; sessions of dead workers may be answered unknown_session")
        finally:
            self._reading = None
        waiting, self._after_reading = self._after_reading, []
        for answer in waiting:
            answer()


class _Down:
    """In place of a reply: the other is gone. `was_sent`: it may have started."""

    def __init__(self, was_sent: bool) -> None:
        self.was_sent = was_sent


class _Frames(asyncio.Protocol):
    """Messages with their length in front."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at, size = 0, len(buffer)
        while size - at >= 4:
            length = int.from_bytes(buffer[at : at + 4], "little")
            if size - at - 4 < length:
                break
            message = _decode(memoryview(buffer)[at + 4 : at + 4 + length])
            at += 4 + length
            self.on_message(message)
        if at:
            del buffer[:at]

    def close(self) -> None:
        """Hang up, unless it was never connected."""
        if self.transport is not None:
            self.transport.close()

    def send(self, message: Any) -> None:
        data = _encode(message)
        self.transport.write(len(data).to_bytes(4, "little") + data)

    def on_message(self, message: Any) -> None:
        raise NotImplementedError


class _Peer(_Frames):
    """The owner's end: runs what others pass on."""

    def __init__(self, sessions: SessionCore, auth: Auth, answer_ask: Ask) -> None:
        super().__init__()
        self._sessions = sessions
        self._auth = auth
        self._answer_ask = answer_ask

    def on_message(self, message: Any) -> None:
        number, content = message
        if isinstance(content, str):
            self._reply(number, self._answer_ask(content))
            return
        step = Step(*content)

        def done(outcome: Outcome) -> None:
            self._reply(number, outcome.to_message())

        refused = self._auth.use(step)
        if refused is not None:
            done(refused)
        else:
            self._sessions.step(step, done)

    def _reply(self, number: int, content: Any) -> None:
        if not self.transport.is_closing():
            self.send((number, content))


class _Link:
    """The way to one owner; connects when first used, and again when it was lost."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._wire: _Wire | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._unsent: list[tuple[Any, Callable[[Any], None]]] = []

    def send(self, content: Any, on_reply: Callable[[Any], None]) -> None:
        if self._wire is not None and not self._wire.transport.is_closing():
            self._wire.ask(content, on_reply)
            return
        self._unsent.append((content, on_reply))
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            _transport, self._wire = await asyncio.wait_for(loop.create_unix_connection(_Wire, self._path), 1.0)
        except (OSError, TimeoutError):
            self._wire = None
        finally:
            self._connecting = None
        unsent, self._unsent = self._unsent, []
        for content, on_reply in unsent:
            if self._wire is None:
                on_reply(_Down(was_sent=False))
            else:
                self._wire.ask(content, on_reply)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()


class _Wire(_Frames):
    """The asker's end of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._last = 0

    def ask(self, content: Any, on_reply: Callable[[Any], None]) -> None:
        self._last += 1
        self._waiting[self._last] = on_reply
        self.send((self._last, content))

    def on_message(self, message: Any) -> None:
        number, content = message
        on_reply = self._waiting.pop(number, None)
        if on_reply is not None:
            on_reply(content)

    def connection_lost(self, error: Exception | None) -> None:
        waiting, self._waiting = self._waiting, {}
        for on_reply in waiting.values():
            on_reply(_Down(was_sent=True))
