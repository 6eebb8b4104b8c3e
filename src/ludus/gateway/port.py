"""The port of a gateway: bound by the process that starts the workers, and lent to each of them.

All workers accept from one queue. So no new connection waits for a worker that is stopped, held up or being started
again, and none is reset because the worker that the kernel chose for it has died: who is well takes it.

port = Port("127.0.0.1", 8000, path)        # in the process that starts the workers
listener = borrow(path)                     # in each worker
"""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Acceptor", "Port", "SharedPort", "bind", "borrow"]

_LOG = logging.getLogger(__name__)
_BORROW_S = 30.0
_LEND_AGAIN_S = 0.1
_AFTER_YOU_S = 0.001
_MOST_AT_ONCE = 16
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_ROOM_S = 1.0
_COUNT = struct.Struct("<I")


def bind(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A bound socket; `is_shared`: other processes of this user may bind the port, too. Raises `OSError`."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    made.setblocking(False)
    return made


class Port:
    """Listens on a port until it is closed, and lends it through a unix socket at `path`. Raises `OSError` if taken.

    Connections wait for the first worker.
    """

    def __init__(self, host: str, port: int, path: Path, *, backlog: int = 1024) -> None:
        self.num_lent = 0
        self._path = path
        self._socket = bind(host, port)
        self._lender = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._waker, self._is_over = socket.socketpair()
        self._closing = threading.Lock()
        self._is_closed = False
        try:
            self._socket.listen(backlog)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # of a process that was killed: the port was free
            self._lender.bind(str(path))
            self._lender.listen()
        except OSError as error:
            self._close_all()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
        self._thread = threading.Thread(target=self._lend, name=f"port-{port}", daemon=True)
        self._thread.start()

    def _lend(self) -> None:
        while self._is_over not in select.select([self._lender, self._is_over], [], [])[0]:
            try:
                worker, _address = self._lender.accept()
                with worker:
                    socket.send_fds(worker, [b"l"], [self._socket.fileno()])
                    self.num_lent += 1
            except OSError as error:  # the worker has died, or this process has no more files: the next will ask
                _LOG.warning("a port could not be lent: %s", error)
                time.sleep(_LEND_AGAIN_S)

    def close(self) -> None:
        """The port is free once the workers have closed theirs. Safe from any thread."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            self._waker.send(b"o")
            self._thread.join()
            self._path.unlink(missing_ok=True)
            self._close_all()

    def _close_all(self) -> None:
        for each in (self._socket, self._lender, self._waker, self._is_over):
            each.close()


class SharedPort:
    """Keeps others off a port that workers of this user listen on by themselves, each for its own connections.

    That is gRPC's way, whose library takes no socket of ours. Bound, and no more, so no connection comes here. Raises
    `OSError` if anybody listens there already.
    """

    def __init__(self, host: str, port: int) -> None:
        with bind(host, port) as probe:  # alone, which fails if another shares it
            probe.listen(1)
        self._socket = bind(host, port, is_shared=True)

    def close(self) -> None:
        self._socket.close()


def borrow(path: Path) -> socket.socket | None:
    """The socket that is lent at `path`; `None` if nobody lends one there. Raises `OSError` if no answer comes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_BORROW_S)
        try:
            asking.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        _data, fds, _flags, _address = socket.recv_fds(asking, 1, 1)
    if not fds:  # it was closed just now
        return None
    borrowed = socket.socket(fileno=fds[0])
    borrowed.setblocking(False)
    return borrowed


class Acceptor:
    """Accepts connections from a queue that the workers of a port share. Lives on an event loop.

    `count` says how many this worker has. Who has more than another leaves the next to the others for a moment, so that
    all get their share; one that is hung or dead is not waited for longer than that. The counts are in a file in
    shared memory, at `path`.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        *,
        count: Callable[[], int],
        path: Path,
        index: int,
        size: int,
    ) -> None:
        self._listener = listener
        self._make = make
        self._tls = tls
        self._count = count
        self._index = index
        self._size = size
        self._counts = _open_counts(path, size)
        self._tasks: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._others: list[int] = []  # their counts, when they were last left something
        self._num_in_vain = 0  # times in a row that they did not take it
        self._is_closed = False

    def open(self, backlog: int) -> None:
        self.publish()
        self._listener.listen(backlog)  # again, if it is borrowed: that changes nothing
        self._resume(is_others_turn=True)

    def publish(self) -> None:
        """Let the others know how many connections this worker has."""
        _COUNT.pack_into(self._counts, self._index * _COUNT.size, self._count() + len(self._tasks))

    def _resume(self, *, is_others_turn: bool) -> None:
        self._resuming = None
        asyncio.get_running_loop().add_reader(self._listener, self._on_waiting, is_others_turn)

    def _pause(self, seconds: float, *, is_others_turn: bool) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._resuming = loop.call_later(seconds, lambda: self._resume(is_others_turn=is_others_turn))

    def _on_waiting(self, is_others_turn: bool) -> None:
        """`is_others_turn`: those who have fewer connections may not have been awake yet."""
        if is_others_turn and self._has_more_than_another():
            self._pause(_AFTER_YOU_S, is_others_turn=False)
            return
        for _ in range(1 if is_others_turn else min(2**self._num_in_vain, _MOST_AT_ONCE)):
            try:
                connection, _address = self._listener.accept()
            except BlockingIOError:  # another worker was quicker
                break
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                _LOG.warning("connections wait, because no more can be accepted: %s", error)
                self._pause(_NO_ROOM_S, is_others_turn=True)
                return
            connection.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.publish()
        if not is_others_turn:
            self._resume(is_others_turn=True)

    def _has_more_than_another(self) -> bool:
        self.publish()
        counts: list[int] = [_COUNT.unpack_from(self._counts, at * _COUNT.size)[0] for at in range(self._size)]
        mine = counts.pop(self._index)
        if mine <= min(counts):
            return False
        self._num_in_vain = self._num_in_vain + 1 if counts == self._others else 0
        self._others = counts
        return True

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection, ssl=self._tls)
        except OSError as error:  # the game has hung up, or does not speak TLS
            connection.close()
            _LOG.debug("a connection could not be served: %s", error)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        asyncio.get_running_loop().remove_reader(self._listener)
        if self._resuming is not None:
            self._resuming.cancel()
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        self._counts.close()


def _open_counts(path: Path, size: int) -> mmap.mmap:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_size < size * _COUNT.size:
            os.ftruncate(fd, size * _COUNT.size)
        return mmap.mmap(fd, size * _COUNT.size)
    finally:
        os.close(fd)
