"""The server: handlers by name, run in the thread that calls `handle_requests`.

server = RpcServer(5555)
server.register_handler("foo", foo)
while True:
    server.handle_requests(timeout_s=1.0)
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ludus import errors, spelling
from ludus.data import codec
from ludus.rpc import deadline, failures, messages
from ludus.rpc.address import Address, host_id, socket_path
from ludus.rpc.batching import Batching, Gathering, run_stacked
from ludus.rpc.call import decode_body
from ludus.rpc.commands import Arrived, Command, ServerStats
from ludus.rpc.deferred import Deferred
from ludus.rpc.ledger import Ledger, Seen
from ludus.rpc.memory import MemoryListener
from ludus.rpc.reactor import Reactor
from ludus.rpc.transport import Frames, Listener, Peer
from ludus.rpc.unix import UnixListener, remove_stale

__all__ = ["Deferred", "RpcServer", "ServerStats"]

_log = logging.getLogger(__name__)
TRANSPORTS = ("memory", "unix", "zmq")
MAX_DEFERRED = 65_536


class RpcServer:
    """Serves one set of handlers to callers in this process, on this host and, with a `port`, over tcp.

    Used by one thread, except `wake`, `statistics` and the completion of a `Deferred`. `port=0` takes any free port;
    with `port=None` there is no tcp. A `host` other than loopback asks for a `secret`.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        host: str = "127.0.0.1",
        transports: Iterable[str] | None = None,
        secret: str | None = None,
        limits: codec.Limits = codec.DEFAULT_LIMITS,
    ) -> None:
        self._port = port
        self._host = host
        self._secret = secret
        self._limits = limits
        self._transports = tuple(transports or (TRANSPORTS if port is not None else ("memory", "unix")))
        for name in self._transports:
            if name not in TRANSPORTS:
                raise ValueError(f"no transport {name!r}; there are {', '.join(TRANSPORTS)}")
        self._commands: dict[str, Command] = {}
        self._gatherings: list[tuple[str, Command, Gathering[Arrived]]] = []
        self._instance = uuid.uuid4().hex
        self._ledger = Ledger()
        self._inbox: deque[tuple[Peer, Frames]] = deque()
        self._completions: deque[Callable[[], None]] = deque()
        self._listeners: list[Listener] = []
        self._reactor: Reactor | None = None
        self._address: Address | None = None
        self._thread = 0
        self._num_received = self._num_run = self._num_failed = 0
        self._num_duplicates = self._num_expired = self._num_malformed = self._num_deferred = 0

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the doors; doing it twice does nothing."""
        if self._reactor is not None:
            return
        self._reactor = reactor = Reactor()
        unix, tcp, curve = "", "", ""
        try:
            if "memory" in self._transports:
                self._listeners.append(MemoryListener(self._instance, reactor=reactor, deliver=self._deliver))
            if "zmq" in self._transports:
                from ludus.rpc.zmq import ZmqListener, server_public_key

                listener = ZmqListener(
                    self._host,
                    self._port or 0,
                    secret=self._secret,
                    reactor=reactor,
                    deliver=self._deliver,
                    max_bytes=self._limits.max_bytes,
                )
                self._listeners.append(listener)
                self._port = listener.port
                tcp = f"{self._host}:{listener.port}"
                curve = server_public_key(self._secret) if self._secret else ""
            if "unix" in self._transports:
                unix = self._open_unix(reactor)
        except BaseException:
            self.close()
            raise
        self._address = Address(
            instance=self._instance, host=host_id(), pid=os.getpid(), unix=unix, tcp=tcp, curve=curve
        )

    def _open_unix(self, reactor: Reactor) -> str:
        """The socket is named after the port, if there is one, so that `RpcClient(host, port)` finds it."""
        path = socket_path(f"port-{self._port}" if self._port else self._instance)
        remove_stale(path.parent)
        listener = UnixListener(
            path,
            instance=self._instance,
            reactor=reactor,
            deliver=self._deliver,
            max_bytes=self._limits.max_bytes,
        )
        self._listeners.append(listener)
        return str(path)

    @property
    def address(self) -> str:
        """What a client connects to. Raises `RpcError` before `start`."""
        if self._address is None:
            raise errors.RpcError("the server has no address before start()")
        return str(self._address)

    @property
    def port(self) -> int | None:
        return self._port

    def close(self) -> None:
        """Close the doors; calls that were not run are not run. Doing it twice does nothing."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
        if self._reactor is not None:
            self._reactor.close()
        self._reactor = None
        self._inbox.clear()

    def __enter__(self) -> RpcServer:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- commands -----------------------------------------------------------------------------------------------

    def register_handler(
        self,
        command: str,
        handler: Callable[..., Any],
        *,
        response: bool = True,
        batching: Batching | None = None,
    ) -> None:
        """Run `handler(*args, **kwargs)` for calls of `command`.

        With `response=False` the caller is answered (with `None`) before the handler runs, and errors are logged here.
        """
        if command in self._commands:
            raise ValueError(f"command {command!r} is registered already")
        gathering = Gathering[Arrived](batching) if batching is not None and batching.is_on else None
        entry = Command(handler, response, gathering)
        self._commands[command] = entry
        if gathering is not None:
            self._gatherings.append((command, entry, gathering))

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(self._commands)

    # -- the loop -----------------------------------------------------------------------------------------------

    def handle_requests(self, max_count: int | None = None, *, timeout_s: float = 0.0) -> int:
        """Handle what is there, at most `max_count` requests, after waiting up to `timeout_s` for the first.

        Returns how many were handled. Handlers run here, in the calling thread.
        """
        if self._reactor is None:
            self.start()
        reactor = self._reactor
        assert reactor is not None
        self._thread = threading.get_ident()
        if not self._inbox:
            reactor.poll(self._poll_timeout(timeout_s))
        while self._completions:
            self._completions.popleft()()
        count = 0
        inbox = self._inbox
        while inbox and (max_count is None or count < max_count):
            peer, frames = inbox.popleft()
            self._num_received += 1
            count += self._accept(peer, frames)
        if self._gatherings:
            count += self._run_batches()
        return count

    def serve_forever(self, stop: threading.Event) -> None:
        """`handle_requests` until `stop` is set (and `wake` called)."""
        while not stop.is_set():
            self.handle_requests(timeout_s=0.5)

    def wake(self) -> None:
        """Make a waiting `handle_requests` return. Safe from any thread and from signal handlers."""
        reactor = self._reactor
        if reactor is not None:
            reactor.wake()

    def _poll_timeout(self, timeout_s: float) -> float:
        """`timeout_s`, or less if a gathering batch is due before."""
        if self._gatherings:
            now = time.monotonic()
            for _name, _command, gathering in self._gatherings:
                due = gathering.due_in(now)
                if due is not None:
                    timeout_s = min(timeout_s, due)
        return 0.0 if self._completions else timeout_s

    def _deliver(self, peer: Peer, frames: Frames) -> None:
        self._inbox.append((peer, frames))

    def _accept(self, peer: Peer, frames: Frames) -> int:
        try:
            message = messages.decode_from_caller(frames[0])
        except messages.MALFORMED as error:
            self._num_malformed += 1
            _log.warning("dropped a message that is none: %s", error)
            return 0
        match message:
            case messages.Call():
                return self._on_call(peer, message, frames)
            case messages.Notify():
                return self._on_notify(message, frames)
            case messages.Probe():
                self._on_probe(peer, message)
                return 0

    def _on_call(self, peer: Peer, call: messages.Call, frames: Frames) -> int:
        if peer.closed:
            return 0  # the caller may have given this call to someone else: see `arena`
        try:
            seen = self._ledger.arrive(call.client, call.seq, call.acked, call.unsettled)
        except errors.Overloaded as error:
            peer.send([messages.encode(failures.describe(error, seq=call.seq, load=len(self._inbox)))])
            return 0
        if seen is not Seen.NEW:
            self._num_duplicates += 1
            self._answer_again(peer, call.seq, seen)
            return 0
        began = call.sent_at if peer.same_host else time.monotonic()
        arrived = Arrived(peer, call, began + call.timeout_s)
        command = self._commands.get(call.command)
        try:
            if command is None:
                raise errors.UnknownCommand(self._unknown(call.command))
            arrived.body = decode_body(frames[1:], self._limits)
            if command.gathering is not None:
                command.gathering.add(arrived, time.monotonic())
                return 0
        except errors.LudusError as error:
            self._fail(arrived, error)
            return 1
        self._run_one(command, arrived)
        return 1

    def _unknown(self, command: str) -> str:
        near = spelling.suggest(command, self._commands, num=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(sorted(self._commands))}"
        return f"no command {command!r} here{hint}"

    def _on_notify(self, notify: messages.Notify, frames: Frames) -> int:
        command = self._commands.get(notify.command)
        try:
            if command is None:
                raise errors.UnknownCommand(self._unknown(notify.command))
            args, kwargs = decode_body(frames[1:], self._limits)
            self._num_run += 1
            if command.gathering is not None:
                run_stacked(command.handler, [(args, kwargs)])
            else:
                command.handler(*args, **kwargs)
        except Exception:  # what a handler raises is its caller's business, and here nobody waits
            self._num_failed += 1
            _log.exception("notification %r failed", notify.command)
        return 1

    def _on_probe(self, peer: Peer, probe: messages.Probe) -> None:
        seen = self._ledger.find(probe.client, probe.seq)
        if seen is Seen.NEW and probe.instance != self._instance:
            error = errors.OutcomeUnknown("the server that had the call is gone; it was not run again")
            peer.send([messages.encode(failures.describe(error, seq=probe.seq, load=len(self._inbox)))])
        elif seen is Seen.NEW:
            failure = messages.Failure(probe.seq, len(self._inbox), messages.NOT_SEEN, "", "")
            peer.send([messages.encode(failure)])
        else:
            self._answer_again(peer, probe.seq, seen)

    def _answer_again(self, peer: Peer, seq: int, seen: Seen | Frames) -> None:
        if seen is Seen.GONE:
            error = errors.OutcomeUnknown("the call ran and its answer got lost; it was too large to keep")
            peer.send([messages.encode(failures.describe(error, seq=seq, load=len(self._inbox)))])
        elif not isinstance(seen, Seen):
            peer.send(seen)

    # -- running ------------------------------------------------------------------------------------------------

    def _is_abandoned(self, arrived: Arrived) -> bool:
        """Whether the caller is gone: it may have given the call to another server, so it must not begin here."""
        if arrived.peer.closed:
            self._ledger.abandon(arrived.call.client, arrived.call.seq)
        return arrived.peer.closed

    def _is_late(self, arrived: Arrived) -> bool:
        if time.monotonic() < arrived.deadline:
            return False
        self._num_expired += 1
        self._fail(arrived, errors.DeadlineExceeded("the deadline passed before the call could run; it was not run"))
        return True

    def _run_one(self, command: Command, arrived: Arrived) -> None:
        if time.monotonic() >= arrived.deadline and self._is_late(arrived):
            return
        args, kwargs = arrived.body
        arrived.body = None
        call = arrived.call
        arrived.peer.begin(call.slot, call.seq)
        self._num_run += 1
        if not command.response:
            self._answer(arrived, None)
        token = deadline.current.set(arrived.deadline)
        try:
            result = command.handler(*args, **kwargs)
        except Exception as error:
            if command.response:
                self._fail(arrived, error)
            else:
                self._num_failed += 1
                _log.exception("command %r failed; its caller was answered before", arrived.call.command)
            return
        finally:
            deadline.current.reset(token)
        if not command.response:
            return
        if isinstance(result, Deferred):
            if self._num_deferred >= MAX_DEFERRED:
                self._fail(arrived, errors.Overloaded(f"{MAX_DEFERRED} calls are waiting for their answer here"))
                return
            self._num_deferred += 1
            result.bind(lambda value, error: self._complete(arrived, value, error))
        else:
            self._answer(arrived, result)

    def _run_batches(self) -> int:
        count = 0
        for name, command, gathering in self._gatherings:
            now = time.monotonic()
            while batch := gathering.take(now):
                count += len(batch)
                self._run_batch(name, command, batch)
                if command.gathering is not None and command.gathering.policy.max_batch > 1:
                    break  # see first what has arrived by now
        return count

    def _run_batch(self, name: str, command: Command, batch: list[Arrived]) -> None:
        batch = [arrived for arrived in batch if not self._is_abandoned(arrived) and not self._is_late(arrived)]
        if not batch:
            return
        for arrived in batch:
            arrived.peer.begin(arrived.call.slot, arrived.call.seq)
        self._num_run += len(batch)
        if not command.response:
            for arrived in batch:
                self._answer(arrived, None)
        token = deadline.current.set(min(arrived.deadline for arrived in batch))
        try:
            outcomes = run_stacked(command.handler, [arrived.body for arrived in batch])
        except Exception as error:
            if not command.response:
                _log.exception("command %r failed; its callers were answered before", name)
            outcomes = [error] * len(batch)
        finally:
            deadline.current.reset(token)
        if command.response:
            for arrived, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, BaseException):
                    self._fail(arrived, outcome)
                else:
                    self._answer(arrived, outcome)

    # -- answering ----------------------------------------------------------------------------------------------

    def _answer(self, arrived: Arrived, value: Any) -> None:
        call = arrived.call
        try:
            frames = codec.encode(value, limits=self._limits)
        except errors.CodecError as error:
            self._fail(arrived, error)
            return
        frames.insert(0, messages.encode(messages.Reply(call.seq, len(self._inbox))))
        arrived.peer.send(frames)
        self._ledger.finish(call.client, call.seq, frames)  # the caller is at work again by now

    def _fail(self, arrived: Arrived, error: BaseException) -> None:
        self._num_failed += 1
        call = arrived.call
        frames = [messages.encode(failures.describe(error, seq=call.seq, load=len(self._inbox)))]
        self._ledger.finish(call.client, call.seq, frames)
        arrived.peer.send(frames)

    def _complete(self, arrived: Arrived, value: Any, error: BaseException | None) -> None:
        """A deferred call has its outcome; it is sent from the server's own thread."""

        def finish() -> None:
            self._num_deferred -= 1
            if error is not None:
                self._fail(arrived, error)
            else:
                self._answer(arrived, value)

        if threading.get_ident() == self._thread:
            finish()
        else:
            self._completions.append(finish)
            self.wake()

    @property
    def num_run(self) -> int:
        """How many handlers were started; safe from any thread."""
        return self._num_run

    def statistics(self) -> ServerStats:
        return ServerStats(
            num_received=self._num_received,
            num_run=self._num_run,
            num_failed=self._num_failed,
            num_duplicates=self._num_duplicates,
            num_expired=self._num_expired,
            num_malformed=self._num_malformed,
            num_waiting=len(self._inbox) + sum(len(g) for _, _, g in self._gatherings),
            num_deferred=self._num_deferred,
            num_connections=sum(listener.num_connections for listener in self._listeners),
            num_unsent_bytes=sum(listener.num_unsent_bytes for listener in self._listeners),
            batches={name: gathering.statistics() for name, _, gathering in self._gatherings},
            ledger=self._ledger.statistics(),
        )
