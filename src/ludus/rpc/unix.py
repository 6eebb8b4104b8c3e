"""The same-host path: unix sockets as doorbells, shared memory for what is large, no thread in between.

The caller blocks in `recv` on its own connection; the server waits on all of them. On connecting, the server sends a
hello with its instance and the connection's shared memory, so each can tell what became of the other's last words.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ludus import errors
from ludus.rpc import stream
from ludus.rpc.arena import Arena
from ludus.rpc.mailbox import Board
from ludus.rpc.reactor import Reactor
from ludus.rpc.spin import Spin
from ludus.rpc.transport import Buffer, ChannelClosed, Deliver, Frames, PeerGone

__all__ = ["UnixChannel", "UnixListener", "remove_stale"]

_LOG = logging.getLogger(__name__)
_HELLO = struct.Struct("<8s32sI")
_MAGIC = b"ludus/1\0"
_TICK_S = 0.05
_MAX_OUTBOX_BYTES = 256 << 20
_MOST_INTAKE = 4  # largest messages that may be on their way through a listener's sockets together
_STALE_AFTER_S = 60.0
_PEER_CREDENTIALS = struct.Struct("3i")


class UnixChannel:
    """A caller's end."""

    same_host = True

    def __init__(self, path: str, *, timeout_s: float, max_bytes: int) -> None:
        """Connect. Raises `Unreachable` when nobody listens at `path`."""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.settimeout(max(timeout_s, 0.001))
            self._sock.connect(path)
            hello, fds, _flags, _addr = socket.recv_fds(self._sock, _HELLO.size, 2)
            self.instance, index = self._check(hello, fds)
        except (OSError, ChannelClosed) as error:
            self._sock.close()
            raise errors.Unreachable(f"nobody answers at {path}: {error}") from error
        self._arena = Arena(fds[0], is_server=False, board=mmap.mmap(fds[1], Board.SIZE), index=index)
        os.close(fds[1])
        self._slot_in, self._slot_out = self._arena.slot_down, self._arena.slot_up
        self._sock.settimeout(None)
        # The kernel ends a blocking recv or send after a tick, so deadlines hold at one system call for each message.
        tick = struct.pack("ll", 0, int(_TICK_S * 1e6))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tick)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, tick)
        self._reader = stream.Reader(self._sock, self._arena.inside, max_bytes=max_bytes)
        self._peer_gone = False
        self._spin = Spin()
        self._poller = select.poll()
        self._poller.register(self._sock, select.POLLIN)

    @staticmethod
    def _check(hello: bytes, fds: list[int]) -> tuple[str, int]:
        if len(hello) == _HELLO.size and len(fds) == 2:
            magic, instance, index = _HELLO.unpack(hello)
            arena_size, board_size = (os.fstat(fd).st_size for fd in fds)
            if magic == _MAGIC and Arena.is_valid_size(arena_size) and index < Board.SIZE == board_size:
                return instance.decode("ascii", "replace"), index
        for fd in fds:
            os.close(fd)
        raise ChannelClosed("what answers there is not a Ludus server of this version")

    def send(self, frames: Frames, timeout_s: float) -> None:
        buffers, size = stream.pack(frames, self._arena.outside)
        if self._slot_out is not None and self._slot_out.put(buffers, size, self._ring):
            return
        try:
            sent = self._sock.send(buffers[0]) if len(buffers) == 1 else self._sock.sendmsg(buffers)
            if sent == size:
                return
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise self._closed_by(error) from error
        self._send_rest(buffers, sent, timeout_s)

    def _send_rest(self, buffers: list[Buffer], sent: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        rest = _after(buffers, sent)
        has_started = sent > 0
        while rest:
            try:
                rest = _after(rest, self._sock.sendmsg(rest[:64]))
                has_started = True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    if has_started:  # half a message is out: the stream cannot go on
                        raise ChannelClosed("the server stopped reading in the middle of a message") from None
                    raise errors.DeadlineExceeded(
                        f"the server took no more data for {timeout_s:.3g} s; the call was not run"
                    ) from None
            except OSError as error:
                raise self._closed_by(error) from error

    def _closed_by(self, error: OSError) -> ChannelClosed:
        self._peer_gone = self._peer_gone or isinstance(error, BrokenPipeError | ConnectionResetError)
        return ChannelClosed(str(error))

    def _ring(self) -> None:
        try:
            self._sock.send(stream.DOORBELL, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass  # it has enough to read to wake up
        except OSError as error:
            raise self._closed_by(error) from error

    def receive(self, timeout_s: float) -> list[Frames]:
        if timeout_s > 0 and not self._look():
            return self._sleep(timeout_s)
        slot = self._slot_in
        if slot is not None and slot.is_full():
            message = slot.take()
            if message is None:
                raise ChannelClosed("malformed message in the slot")
            return [self._reader.unpack(message)]
        return self._try()

    def _look(self) -> bool:
        """Whether something came while we looked for a moment, if looking has been worth it lately."""
        spin, poller, slot = self._spin, self._poller, self._slot_in
        if slot is None:
            return bool(spin.willing and spin.look(lambda: poller.poll(0)))
        if not spin.willing:
            return bool(slot.is_full())
        slot.wake_up()
        found = spin.look(slot.is_full, lambda: poller.poll(0))
        return not slot.fall_asleep() or bool(found)

    def _try(self) -> list[Frames]:
        try:
            return self._reader.read(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except PeerGone:
            self._peer_gone = True
            raise
        except OSError as error:
            raise self._closed_by(error) from error

    def _sleep(self, timeout_s: float) -> list[Frames]:
        since = self._spin.fall_asleep()
        if timeout_s < _TICK_S:
            self._poller.poll(timeout_s * 1e3)
            return self._try()
        try:
            messages = self._reader.read()
        except BlockingIOError:
            messages = []
        except PeerGone:
            self._peer_gone = True
            raise
        except OSError as error:
            raise self._closed_by(error) from error
        self._spin.woke(since)
        return messages

    def fileno(self) -> int:
        return self._sock.fileno()

    def began(self, slot: int, seq: int) -> bool | None:
        if self._arena.is_marked(slot, seq):
            return True
        # A server that we hung up on may still find the call in its queue before it notices.
        return False if self._peer_gone else None

    def close(self) -> None:
        self._sock.close()


class UnixListener:
    """A server's door at `path`."""

    def __init__(self, path: Path, *, instance: str, reactor: Reactor, deliver: Deliver, max_bytes: int) -> None:
        self.path = path
        self._instance = instance.encode("ascii")
        self._reactor = reactor
        self._deliver = deliver
        self._max_bytes = max_bytes
        self._intake = stream.Intake(_MOST_INTAKE * max_bytes)
        self._connections: set[_Connection] = set()
        self._board = Board()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._bind()
        except OSError:
            self._sock.close()
            raise
        self._sock.listen(512)
        self._sock.setblocking(False)
        reactor.add(self._sock.fileno(), self._on_caller)
        reactor.board = self._board

    def _bind(self) -> None:
        try:
            self._sock.bind(str(self.path))
        except OSError:
            if not _is_stale(self.path):
                raise
            self.path.unlink(missing_ok=True)
            self._sock.bind(str(self.path))

    @property
    def num_connections(self) -> int:
        return len(self._connections)

    @property
    def num_unsent_bytes(self) -> int:
        return sum(connection.num_unsent_bytes for connection in self._connections)

    def _on_caller(self, _events: int) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:  # nothing more, or a caller that left before we came to the door
                return
            if not _is_same_user(sock):
                sock.close()
                continue
            sock.setblocking(False)
            try:
                connection = _Connection(
                    sock, self._board, self._reactor, self._deliver, self._forget, self._max_bytes, self._intake
                )
            except OSError as error:
                _LOG.warning("a caller was turned away: there is no memory or descriptor left for it (%s)", error)
                sock.close()
                return
            self._connections.add(connection)
            connection.greet(self._instance)

    def _forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    def close(self) -> None:
        self._reactor.remove(self._sock.fileno())
        self._sock.close()
        self.path.unlink(missing_ok=True)
        for connection in list(self._connections):
            connection.close()
        self._reactor.board = None
        self._board.close()


class _Connection:
    """A server's end of one caller's connection."""

    same_host = True

    def __init__(
        self,
        sock: socket.socket,
        board: Board,
        reactor: Reactor,
        deliver: Deliver,
        forget: Callable[[_Connection], None],
        max_bytes: int,
        intake: stream.Intake,
    ) -> None:
        self.closed = False
        self._sock = sock
        self._fd = sock.fileno()
        self._board = board
        self._arena_fd = Arena.make()
        self._index = board.enter(self._on_mail)
        try:
            arena = Arena(os.dup(self._arena_fd), is_server=True, board=board.memory, index=self._index)
        except OSError:
            board.leave(self._index)
            os.close(self._arena_fd)
            raise
        self._arena = arena
        self._slot_in, self._slot_out = arena.slot_up, arena.slot_down
        self._reactor = reactor
        self._deliver = deliver
        self._forget = forget
        self._reader = stream.Reader(sock, arena.inside, max_bytes=max_bytes, intake=intake)
        self._outbox: deque[memoryview] = deque()
        self.num_unsent_bytes = 0
        self.begin = arena.mark
        reactor.add(self._fd, self._on_ready)

    def greet(self, instance: bytes) -> None:
        """Hand the caller its memory."""
        try:
            hello = _HELLO.pack(_MAGIC, instance, self._index)
            socket.send_fds(self._sock, [hello], [self._arena_fd, self._board.fd])
        except OSError:
            self.close()
        finally:
            os.close(self._arena_fd)

    def _on_mail(self) -> None:
        assert self._slot_in is not None
        message = self._slot_in.take()
        try:
            if message is None:
                raise ChannelClosed("malformed message in the slot")
            self._deliver(self, self._reader.unpack(message))
        except ChannelClosed:
            self.close()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it has enough to read to wake up; gone: it needs no waking
            self._sock.send(stream.DOORBELL)

    def _on_ready(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._flush()
        if not events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            messages = self._reader.read()
        except BlockingIOError:
            return
        except (OSError, ChannelClosed):
            self.close()
            return
        for frames in messages:
            self._deliver(self, frames)

    def send(self, frames: Frames) -> None:
        if self.closed:
            return
        buffers, size = stream.pack(frames, self._arena.outside)
        if self._slot_out is not None and self._slot_out.put(buffers, size, self._ring):
            return
        if self._outbox:
            self._keep(buffers, 0)
            return
        try:
            sent = self._sock.send(buffers[0]) if len(buffers) == 1 else self._sock.sendmsg(buffers)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        if sent != size:
            self._keep(buffers, sent)

    def _keep(self, buffers: list[Buffer], sent: int) -> None:
        """Copy what did not fit into the socket; the handler may change its arrays once it has returned."""
        for rest in _after(buffers, sent):
            self._outbox.append(memoryview(bytes(rest)))
            self.num_unsent_bytes += rest.nbytes
        if self.num_unsent_bytes > _MAX_OUTBOX_BYTES:
            self.close()  # a caller that does not read its answers
            return
        self._reactor.modify(self._fd, select.EPOLLIN | select.EPOLLOUT)

    def _flush(self) -> None:
        while self._outbox:
            first = self._outbox[0]
            try:
                sent = self._sock.send(first)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            self.num_unsent_bytes -= sent
            if sent < first.nbytes:
                self._outbox[0] = first[sent:]
                return
            self._outbox.popleft()
        if not self.closed:
            self._reactor.modify(self._fd, select.EPOLLIN)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._board.leave(self._index)
        self._reactor.remove(self._fd)
        self._sock.close()
        self._outbox.clear()
        self._reader.close()
        self._forget(self)


def _after(buffers: list[Buffer] | list[memoryview], sent: int) -> list[memoryview]:
    """What is left of `buffers` once `sent` bytes are out."""
    rest: list[memoryview] = []
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if sent >= view.nbytes:
            sent -= view.nbytes
        else:
            rest.append(view[sent:])
            sent = 0
    return rest


def _is_same_user(sock: socket.socket) -> bool:
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    return bool(_PEER_CREDENTIALS.unpack(raw)[1] in (os.getuid(), 0))


def remove_stale(folder: Path) -> None:
    """Unlink the sockets that killed servers left in `folder`."""
    for path in folder.glob("*.sock"):
        try:
            if time.time() - path.stat().st_mtime > _STALE_AFTER_S and _is_stale(path):
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue


def _is_stale(path: Path) -> bool:
    """Whether `path` is a socket that nobody listens at any more."""
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # one who does not get round to accepting would be waited for
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
