"""A worker whose event loop is held up gives new connections to another one.

The kernel goes on handing connections to its socket. Its main thread accepts them, and passes them on through a unix
socket; to the game nothing looks unusual.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from ludus.gateway.beat import Pulse, read_pulse

__all__ = ["Handover", "Takeover"]

_LOG = logging.getLogger(__name__)
_MAX_PASSED = 64  # connections in one message
_FRESH_S = 1.0
_WATCH_AFTER_S = 0.5
_PASS_AFTER_S = 1.0


class Takeover:
    """Where a worker takes over connections of others. Lives on its event loop."""

    def __init__(self, path: Path, make: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None) -> None:
        self._path = path
        self._make = make
        self._tls = tls
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._tasks: set[asyncio.Task[None]] = set()
        self.num_taken = 0

    def open(self) -> None:
        self._path.unlink(missing_ok=True)
        self._socket.bind(str(self._path))
        asyncio.get_running_loop().add_reader(self._socket, self._on_message)

    def _on_message(self) -> None:
        try:
            _data, fds, _flags, _address = socket.recv_fds(self._socket, 1, _MAX_PASSED)
        except BlockingIOError:
            return
        for fd in fds:
            connection = socket.socket(fileno=fd)
            connection.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._make, connection, ssl=self._tls)
            self.num_taken += 1
        except OSError as error:  # the game has hung up, or does not speak TLS
            connection.close()
            _LOG.info("a connection that was passed on could not be served: %s", error)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._path.unlink(missing_ok=True)


class Handover:
    """For the main thread of a worker. `others`: of each other worker its beat's file and where it takes over."""

    def __init__(self, others: list[tuple[Path, Path]], clock: Callable[[], float] = time.monotonic) -> None:
        self._others = others
        self._clock = clock
        self._pulses: dict[Path, Pulse | None] = {}
        self._turned: dict[Path, float] = {}  # when the loop of each was last seen to have turned
        self._next = itertools.count()
        self.num_passed = 0

    def check(self, listener: socket.socket, held_up_s: float) -> None:
        """Pass on the connections that wait, if the loop has been held up for long and another worker's turns."""
        if held_up_s < _WATCH_AFTER_S:
            self._pulses.clear()
            return
        healthy = [path for beat, path in self._others if self._is_turning(beat)]
        if healthy and held_up_s >= _PASS_AFTER_S:
            self._pass_on(listener, healthy[next(self._next) % len(healthy)])

    def _is_turning(self, beat: Path) -> bool:
        now, pulse = self._clock(), read_pulse(beat)
        before = self._pulses.get(beat)
        self._pulses[beat] = pulse
        if pulse is not None and before is not None and pulse.num_turns != before.num_turns:
            self._turned[beat] = now
        return now - self._turned.get(beat, float("-inf")) < _FRESH_S

    def _pass_on(self, listener: socket.socket, path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.connect(str(path))
            except OSError:  # it has just gone; nothing is accepted for it
                return
            while waiting := _accept_all(listener):
                try:
                    socket.send_fds(sender, [b"c"], [each.fileno() for each in waiting])
                    self.num_passed += len(waiting)
                except OSError as error:
                    _LOG.warning("%d connections could not be passed on, and are closed: %s", len(waiting), error)
                for each in waiting:
                    each.close()


def _accept_all(listener: socket.socket) -> list[socket.socket]:
    """Up to `_MAX_PASSED` that wait."""
    accepted: list[socket.socket] = []
    while len(accepted) < _MAX_PASSED:
        try:
            accepted.append(listener.accept()[0])
        except BlockingIOError:
            break
        except OSError as error:  # no more files, or a connection that was given up
            _LOG.warning("a connection could not be accepted: %s", error)
            break
    return accepted
