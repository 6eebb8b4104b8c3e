"""A worker notices that its driver is gone, however it went: a file descriptor reads end-of-file.

On one host it is a pipe whose only writing end the driver holds; from another host, a TCP connection to it. The
kernel closes both when the driver is killed, so nothing has to be polled, sent, or given a time-out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable

__all__ = ["Lifeline", "LifelineServer", "connect_lifeline", "end_process_group"]

_LOG = logging.getLogger(__name__)
_GRACE_S = 1.5  # a worker is to be gone 3 s after its driver
_LOST_EXIT_CODE = 70


class Lifeline:
    """The worker's end: a thread that waits for `fd` to end, asks the worker to exit, and then ends the process."""

    def __init__(self, fd: int, *, ask_exit: Callable[[str], None], parent_pid: int | None = None) -> None:
        """`parent_pid`: if another process has become the parent, that too means that the driver is gone."""
        self._fd = fd
        self._ask_exit = ask_exit
        self._parent_pid = parent_pid
        self._is_released = False
        self._thread = threading.Thread(target=self._watch, name="ludus-lifeline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def release(self) -> None:
        """The worker has ended; the end of the driver no longer matters."""
        self._is_released = True

    @property
    def is_lost(self) -> bool:
        return self._is_gone(timeout_s=0.0)

    def _watch(self) -> None:
        while not self._is_gone(timeout_s=0.5):
            pass
        if self._is_released:
            return
        _LOG.error("the driver is gone; this worker ends within %g s", _GRACE_S)
        try:
            self._ask_exit("the driver is gone")
        finally:
            time.sleep(_GRACE_S)
            end_process_group()

    def _is_gone(self, *, timeout_s: float) -> bool:
        return _has_ended(self._fd, timeout_s=timeout_s) or self._parent_pid not in (None, os.getppid())


def end_process_group() -> None:
    """End this process at once and, if it leads its group, whatever it has started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(_LOST_EXIT_CODE)


class LifelineServer:
    """The driver's end for workers on other hosts: it accepts, and never says a word."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._accept, name="ludus-lifelines", daemon=True)
        self._held: list[socket.socket] = []

    def start(self) -> None:
        self._listener = socket.create_server((self._host, 0), backlog=512)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        if self._listener is None:
            raise RuntimeError("a LifelineServer has an address once it is started")
        host, port = self._listener.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Every worker that holds a line sees it end."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accept, which close alone would not
            self._listener.close()
            self._thread.join()
        for line in self._held:
            line.close()

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            self._held = [held for held in self._held if not _has_ended(held.fileno(), timeout_s=0.0)]
            self._held.append(line)


def connect_lifeline(address: tuple[str, int], *, timeout_s: float = 10.0) -> socket.socket:
    """A connection to the driver that ends when the driver does, or when its host has been silent for 20 s."""
    line = socket.create_connection(address, timeout=timeout_s)
    line.setblocking(True)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return line


def _has_ended(fd: int, *, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))  # nobody ever writes, so anything to be read is the end
