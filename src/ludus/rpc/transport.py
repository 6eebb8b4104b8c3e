"""The seam: what a way of moving messages must offer. `memory`, `unix` and `zmq` implement it; so can a test.

A message is a list of frames (buffers). The caller holds a `Channel`; the server holds `Listener`s, which deliver
`(peer, frames)` to it whenever the reactor finds them ready.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["Buffer", "Channel", "ChannelClosed", "Deliver", "Frames", "Listener", "Peer", "PeerGone"]

Buffer = bytes | bytearray | memoryview
Frames = Sequence[Buffer]


class ChannelClosed(Exception):
    """The other end is gone. Never leaves the rpc floor."""


class PeerGone(ChannelClosed):
    """It was the other end that ended the connection, so nothing it had not started will begin."""


class Channel(Protocol):
    """A caller's end. One thread sends at a time and one receives at a time; they may be two."""

    same_host: bool

    def send(self, frames: Frames, timeout_s: float) -> None:
        """Hand over one message. Raises `ChannelClosed`, or `DeadlineExceeded` if it was not handed over in time."""
        ...

    def receive(self, timeout_s: float) -> list[Frames]:
        """The messages that are there, after waiting up to `timeout_s` for the first. Raises `ChannelClosed`."""
        ...

    def fileno(self) -> int:
        """Readable when `receive(0)` may have something to say."""
        ...

    def began(self, slot: int, seq: int) -> bool | None:
        """Once closed: had the server started call `seq`? `None` when that cannot be known.

        False is final: it will not begin it any more either.
        """
        ...

    def close(self) -> None: ...


class Peer(Protocol):
    """A server's end of one channel."""

    same_host: bool
    closed: bool

    def send(self, frames: Frames) -> None:
        """Hand over one message without waiting; dropped if the peer is gone."""
        ...

    def begin(self, slot: int, seq: int) -> None:
        """Leave a mark that call `seq` is about to run, which the caller can read even if this process is killed."""
        ...


Deliver = Callable[[Peer, Frames], None]


class Listener(Protocol):
    """A server's open door."""

    @property
    def num_connections(self) -> int: ...

    @property
    def num_unsent_bytes(self) -> int:
        """Of answers that their callers do not read fast enough."""
        ...

    def close(self) -> None: ...
