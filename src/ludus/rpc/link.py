"""A caller's connection to one server, and what is done when it breaks."""

from __future__ import annotations

import dataclasses
import logging
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ludus import errors
from ludus.data import codec
from ludus.rpc import failures, messages
from ludus.rpc.address import Address
from ludus.rpc.arena import CALL_WINDOW
from ludus.rpc.call import Caller, Pending
from ludus.rpc.opening import OpenChannel, nearest
from ludus.rpc.transport import Buffer, Channel, ChannelClosed, Frames

__all__ = ["ClientStats", "Link"]

_log = logging.getLogger(__name__)
CONNECT_TIMEOUT_S = 5.0
RECONNECT_TIMEOUT_S = 1.0
_LAST_PROBE_S = 2.0
_TICK_S = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientStats:
    num_sent: int
    num_answered: int
    num_in_flight: int
    max_in_flight: int
    num_probes: int
    num_resent: int
    num_connects: int
    num_late: int  # answers that came twice, or after their deadline


class Link:
    """A caller's connection to one server, made when first needed and made again when it breaks."""

    def __init__(
        self,
        address: Address,
        caller: Caller,
        *,
        transport: str | None = None,
        secret: str | None = None,
        limits: codec.Limits = codec.DEFAULT_LIMITS,
        on_not_run: Callable[[Pending, errors.RpcError], bool] | None = None,
        on_slow: Callable[[Pending], None] | None = None,
        opener: OpenChannel | None = None,
    ) -> None:
        """`on_not_run` is offered the calls that could not be run here; true means that it took them over.

        `on_slow` is called with calls that have not been answered at their `move_at`.
        """
        self.address = address
        self.load = 0
        self._caller = caller
        self._limits = limits
        self._on_not_run = on_not_run
        self._on_slow = on_slow
        self._opener: OpenChannel = opener or (
            lambda to, timeout_s: nearest(
                to, transport=transport, secret=secret, timeout_s=timeout_s, max_bytes=limits.max_bytes
            )
        )
        self._channel: Channel | None = None
        self._instance = ""
        self._closed = False
        self._pending: dict[int, Pending] = {}
        self._sending = threading.RLock()
        self._depth = 0
        self._orphans: list[tuple[Pending, errors.RpcError]] = []
        self._reading = threading.Lock()
        self._num_sent = self._num_answered = self._num_probes = 0
        self._num_resent = self._num_connects = self._num_late = 0

    @property
    def num_in_flight(self) -> int:
        return len(self._pending)

    @property
    def num_answered(self) -> int:
        return self._num_answered

    def forget(self, pending: Pending) -> None:
        """Another link has the call now; an answer that still comes here is not taken."""
        self._pending.pop(pending.seq, None)

    # -- sending ------------------------------------------------------------------------------------------------

    def send(self, pending: Pending) -> None:
        """Send a call; what goes wrong becomes its outcome. May be given the same call again."""
        pending.link = self
        self._sending.acquire()
        self._depth += 1
        channel = self._channel
        try:
            self._pending[pending.seq] = pending
            if channel is None:
                channel = self._connected(pending.deadline)
            now = time.monotonic()
            left = pending.deadline - now
            if left <= 0:
                raise errors.DeadlineExceeded(f"no time was left for call {pending.command!r}; it was not run")
            pending.next_probe = min(now + pending.probe_gap, pending.deadline)
            call = messages.Call(
                self._caller.client,
                pending.seq,
                pending.slot,
                pending.acked,
                pending.slow,
                pending.command,
                left,
                now,
            )
            self._num_sent += 1
            channel.send([messages.encode(call), *pending.body], left)
        except ChannelClosed:
            assert channel is not None
            self._on_lost(channel)
        except errors.DeadlineExceeded as error:
            self._settle(pending, None, error)
        except errors.RpcError as error:
            self._not_run(pending, error)
        finally:
            self._leave()

    def _enter(self) -> None:
        self._sending.acquire()
        self._depth += 1

    def _leave(self) -> None:
        """Let others in and, once nothing is held, look for a new home for the calls that could not run here."""
        self._depth -= 1
        if not self._orphans or self._depth:
            self._sending.release()
            return
        orphans, self._orphans = self._orphans, []
        self._sending.release()
        for pending, error in orphans:
            if self._on_not_run is None or not self._on_not_run(pending, error):
                self._settle(pending, None, error)

    def notify(self, command: str, body: Sequence[Buffer], timeout_s: float) -> None:
        self._enter()
        try:
            for _ in range(2):
                channel = self._connected(time.monotonic() + timeout_s)
                try:
                    channel.send([messages.encode(messages.Notify(command)), *body], timeout_s)
                    return
                except ChannelClosed:
                    self._on_lost(channel)
        finally:
            self._leave()
        raise errors.Unreachable(f"the server hung up twice; {command!r} was not delivered")

    def _connected(self, deadline_at: float) -> Channel:
        if self._closed:
            raise errors.Unreachable("this client was closed")
        if self._channel is None:
            left = min(deadline_at - time.monotonic(), CONNECT_TIMEOUT_S)
            self._channel = self._opener(self.address, left)
            self._instance = getattr(self._channel, "instance", "") or self.address.instance
            self._num_connects += 1
        return self._channel

    # -- waiting ------------------------------------------------------------------------------------------------

    def wait(self, pending: Pending) -> None:
        """Return once `pending` is done or has moved to another link."""
        while not pending.done and pending.link is self:
            if self._reading.acquire(blocking=False):
                try:
                    while not pending.done and pending.link is self:
                        channel = self._channel
                        if channel is None:
                            self._await_verdict(pending)
                            continue
                        left = pending.next_probe - time.monotonic()
                        self._receive(channel, left)
                        if left <= 0 and not pending.done:
                            self.tend()  # for the others too: perhaps nobody waits for them yet
                finally:
                    self._reading.release()
                    if self._pending:
                        self._pass_on()
            else:  # another thread reads for us and rings when our answer is there, or when it leaves
                if pending.event is None:
                    pending.event = threading.Event()
                    continue  # it may have ended before there was an event to set
                pending.event.wait(_TICK_S)
                pending.event.clear()
                self._expire(pending, time.monotonic())

    def _await_verdict(self, pending: Pending) -> None:
        """Another thread is just deciding what becomes of the calls of a broken connection."""
        self._enter()
        try:
            if self._channel is None and self._pending.get(pending.seq) is pending:
                self._give_up(pending, None, errors.Unreachable("the connection broke"))
        finally:
            self._leave()

    def pump(self) -> None:
        """Take in what has arrived, and look after deadlines and lost replies; never waits."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            channel = self._channel
            if channel is not None:
                self._receive(channel, 0.0)
        finally:
            self._reading.release()

    def tend(self) -> None:
        """End the calls whose deadline has passed and ask after those that have waited long."""
        now = time.monotonic()
        for pending in list(self._pending.values()):
            self._expire(pending, now)

    def fileno(self) -> int | None:
        channel = self._channel
        return channel.fileno() if channel is not None else None

    def is_writable(self) -> bool:
        """Whether a small message can be sent without waiting."""
        channel = self._channel
        if channel is None:
            return False
        if not channel.same_host:
            return True
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLOUT)
        return bool(poller.poll(0))

    def _receive(self, channel: Channel, timeout_s: float) -> None:
        try:
            answers = channel.receive(timeout_s)
        except ChannelClosed:
            self._hang_up(channel)
            return
        for frames in answers:
            try:
                self._on_answer(frames)
            except messages.MALFORMED as error:
                _log.warning("hanging up on a server that sends nonsense: %s", error)
                self._hang_up(channel)
                return

    def _hang_up(self, channel: Channel) -> None:
        self._enter()
        try:
            self._on_lost(channel)
        finally:
            self._leave()

    def _pass_on(self) -> None:
        for pending in list(self._pending.values()):
            if pending.event is not None:
                pending.event.set()
                return

    def _on_answer(self, frames: Frames) -> None:
        message = messages.decode_from_server(frames[0])
        self.load = message.load
        if type(message) is messages.Reply:
            pending = self._pending.get(message.seq)
            if pending is None:
                self._num_late += 1
                return
            try:
                value = codec.decode(frames[1:], limits=self._limits)
            except errors.CodecError as error:
                self._settle(pending, None, error)
            else:
                self._settle(pending, value, None)
        elif type(message) is messages.Failure:
            pending = self._pending.get(message.seq)
            if pending is None:
                self._num_late += 1
            elif message.kind == messages.NOT_SEEN:
                self._num_resent += 1
                self.send(pending)
            else:
                self._settle(pending, None, failures.revive(message))

    def _expire(self, pending: Pending, now: float) -> bool:
        """End a call whose time is up; ask for its answer again when it has waited long."""
        if pending.done:
            return True
        if now >= pending.deadline:
            self._settle(
                pending,
                None,
                errors.DeadlineExceeded(f"no answer to {pending.command!r} in time; it may still have run"),
            )
            return True
        if now >= pending.next_probe:
            pending.probe_gap = min(pending.probe_gap * 2, _LAST_PROBE_S)
            pending.next_probe = min(now + pending.probe_gap, pending.deadline)
            self._probe(pending)
        if now >= pending.move_at and not pending.done and self._on_slow is not None:
            self._on_slow(pending)
        return pending.done

    def _probe(self, pending: Pending) -> None:
        self._enter()
        channel = self._channel
        try:
            if channel is not None:
                self._num_probes += 1
                probe = messages.Probe(self._caller.client, pending.seq, self._instance)
                channel.send([messages.encode(probe)], 1.0)
        except ChannelClosed:
            assert channel is not None
            self._on_lost(channel)
        except errors.DeadlineExceeded:
            pass  # the server takes nothing in just now: it is busy, and its answer will come
        finally:
            self._leave()

    # -- trouble ------------------------------------------------------------------------------------------------

    def _on_lost(self, channel: Channel) -> None:
        """The connection broke: send again what was not started, ask after what was, give up what is gone."""
        if self._channel is not channel:
            return
        self._channel = None
        instance = self._instance
        channel.close()
        if not self._pending:
            return
        try:
            fresh = self._connected(time.monotonic() + RECONNECT_TIMEOUT_S)
        except errors.RpcError as error:
            # Nobody listens any more, so nothing will begin any more: the marks say how it ended.
            if isinstance(error, errors.Unauthorised):  # who refuses what was good before is not who it was
                error = errors.Unreachable(f"another server took its place: {error}")
            for pending in list(self._pending.values()):
                self._give_up(pending, channel.began(pending.slot, pending.seq), error)
            return
        same = bool(instance) and self._instance == instance
        for pending in list(self._pending.values()):
            if not self._uses(fresh):
                return  # lost once more: that loss saw to the rest
            began = channel.began(pending.slot, pending.seq)
            if began is False:
                self._num_resent += 1
                self.send(pending)
            elif same:
                self._probe(pending)
            else:
                self._give_up(pending, began, errors.Unreachable("another server took its place"))

    def _uses(self, channel: Channel) -> bool:
        return self._channel is channel

    def _give_up(self, pending: Pending, began: bool | None, error: errors.RpcError) -> None:
        if began is False:
            self._not_run(pending, error)
            return
        text = f"the server was lost while it had {pending.command!r}; the call may have run and was not run again"
        unknown = errors.OutcomeUnknown(text)
        unknown.__cause__ = error
        self._settle(pending, None, unknown)

    def declare_lost(self, reason: str) -> None:
        """Give up what the server had: its lease lapsed, or nobody wants to know any more."""
        self._enter()
        try:
            channel, self._channel = self._channel, None
            for pending in list(self._pending.values()):
                self._give_up(pending, None, errors.Unreachable(reason))
            if channel is not None:
                channel.close()
        finally:
            self._leave()

    def _not_run(self, pending: Pending, error: errors.RpcError) -> None:
        self._pending.pop(pending.seq, None)
        self._orphans.append((pending, error))

    def _settle(self, pending: Pending, value: Any, error: BaseException | None) -> None:
        self._pending.pop(pending.seq, None)
        self._num_answered += 1
        self._caller.settle(pending.seq)
        pending.finish(value, error)

    def close(self) -> None:
        """Hang up; calls on their way end in `OutcomeUnknown`. Doing it twice does nothing."""
        self._closed = True
        self.declare_lost("this client was closed")

    def close_if_idle(self) -> bool:
        """Hang up unless a call is on its way; says whether it did."""
        self._enter()
        try:
            if self._pending:
                return False
            self._closed = True
            channel, self._channel = self._channel, None
            if channel is not None:
                channel.close()
            return True
        finally:
            self._leave()

    def statistics(self) -> ClientStats:
        return ClientStats(
            num_sent=self._num_sent,
            num_answered=self._num_answered,
            num_in_flight=len(self._pending),
            max_in_flight=CALL_WINDOW,
            num_probes=self._num_probes,
            num_resent=self._num_resent,
            num_connects=self._num_connects,
            num_late=self._num_late,
        )
