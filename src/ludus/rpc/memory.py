"""Calls within one process: the other transports' in-memory twin.

Frames are copied, as a wire would, so that neither side sees the other's arrays change.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections import deque

from ludus import errors
from ludus.rpc.arena import CALL_WINDOW
from ludus.rpc.reactor import Reactor
from ludus.rpc.transport import ChannelClosed, Deliver, Frames

__all__ = ["MemoryChannel", "MemoryListener"]

_listeners: dict[str, MemoryListener] = {}
_lock = threading.Lock()


class _Bell:
    """A queue of messages with a file descriptor that is readable while it is not empty."""

    def __init__(self) -> None:
        self._messages: deque[tuple[MemoryPeer, Frames]] = deque()
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def put(self, peer: MemoryPeer, frames: Frames) -> None:
        self._messages.append((peer, [bytearray(frame) for frame in frames]))
        self.ring()

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # it is ringing already, or nobody listens any more
            self._write.send(b"!")

    def take(self) -> list[tuple[MemoryPeer, Frames]]:
        with contextlib.suppress(OSError):
            self._read.recv(4096)
        taken = []
        while self._messages:
            taken.append(self._messages.popleft())
        return taken

    def fileno(self) -> int:
        return self._read.fileno()

    def close(self) -> None:
        self._read.close()
        self._write.close()


class MemoryPeer:
    """A server's end of one channel."""

    same_host = True

    def __init__(self) -> None:
        self.closed = False
        self.answers = _Bell()
        self.marks = [-1] * CALL_WINDOW

    def send(self, frames: Frames) -> None:
        if not self.closed:
            self.answers.put(self, frames)

    def begin(self, slot: int, seq: int) -> None:
        self.marks[slot] = seq


class MemoryListener:
    """A server's door, found by its instance."""

    def __init__(self, instance: str, *, reactor: Reactor, deliver: Deliver) -> None:
        self._instance = instance
        self._reactor = reactor
        self._deliver = deliver
        self.calls = _Bell()
        self.peers: set[MemoryPeer] = set()
        reactor.add(self.calls.fileno(), self._on_ready)
        with _lock:
            _listeners[instance] = self

    def _on_ready(self, _events: int) -> None:
        for peer, frames in self.calls.take():
            self._deliver(peer, frames)

    @property
    def num_connections(self) -> int:
        return len(self.peers)

    @property
    def num_unsent_bytes(self) -> int:
        return 0

    def close(self) -> None:
        with _lock:
            _listeners.pop(self._instance, None)
            peers, self.peers = self.peers, set()
        self._reactor.remove(self.calls.fileno())
        for peer in peers:
            peer.closed = True
            peer.answers.ring()
        self.calls.close()


class MemoryChannel:
    """A caller's end."""

    same_host = True

    def __init__(self, instance: str) -> None:
        with _lock:
            listener = _listeners.get(instance)
            if listener is None:
                raise errors.Unreachable(f"no server {instance} in this process; it was closed, or never started")
            self._listener = listener
            self._peer = MemoryPeer()
            listener.peers.add(self._peer)
        self.instance = instance
        self._hung_up = False

    @staticmethod
    def is_here(instance: str) -> bool:
        return instance in _listeners

    def send(self, frames: Frames, timeout_s: float) -> None:
        if self._peer.closed:
            raise ChannelClosed("the server was closed")
        self._listener.calls.put(self._peer, frames)

    def receive(self, timeout_s: float) -> list[Frames]:
        answers = self._peer.answers
        taken = answers.take()
        if not taken and timeout_s > 0 and not self._peer.closed:
            poller = select.poll()
            poller.register(answers.fileno(), select.POLLIN)
            poller.poll(timeout_s * 1e3)
            taken = answers.take()
        if not taken and self._peer.closed:
            raise ChannelClosed("the server was closed")
        return [frames for _peer, frames in taken]

    def fileno(self) -> int:
        return self._peer.answers.fileno()

    def began(self, slot: int, seq: int) -> bool | None:
        if self._peer.marks[slot] == seq:
            return True
        return None if self._hung_up else False

    def close(self) -> None:
        self._hung_up = self._hung_up or not self._peer.closed
        self._peer.closed = True
        with _lock:
            self._listener.peers.discard(self._peer)
        self._peer.answers.close()


def _forget_after_fork() -> None:
    """A child has none of the threads that answer."""
    global _lock
    _lock = threading.Lock()
    _listeners.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
