"""One place where a server waits for all its doors at once."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable

from ludus.rpc.mailbox import Board
from ludus.rpc.spin import Spin

__all__ = ["Reactor"]

_OTHER_DOORS = 16  # after so many messages through the board the other doors are looked at too


class Reactor:
    """File descriptors and what to do when they are ready. Used by one thread; only `wake` is for others."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._again: list[Callable[[int], None]] = []
        self._spin = Spin()
        self.board: Board | None = None
        self._turns = 0
        self._bell_in, self._bell_out = socket.socketpair()
        self._bell_in.setblocking(False)
        self._bell_out.setblocking(False)
        self.add(self._bell_in.fileno(), self._on_bell)

    def add(self, fd: int, callback: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        self._callbacks[fd] = callback
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def again(self, callback: Callable[[int], None]) -> None:
        """Run `callback` at the next `poll` too, without waiting: it left something behind."""
        self._again.append(callback)

    def poll(self, timeout_s: float) -> None:
        """Run the callbacks of whatever is ready, after waiting up to `timeout_s` for the first."""
        if self._again:
            again, self._again = self._again, []
            for callback in again:
                callback(0)
            timeout_s = 0.0
        board = self.board
        if board is not None and board.read():
            self._turns += 1
            if self._turns % _OTHER_DOORS:
                return
            timeout_s = 0.0
        ready = self._epoll.poll(0)
        if not ready and timeout_s > 0:
            ready = self._wait(timeout_s)
        for fd, events in ready:
            found = self._callbacks.get(fd)
            if found is not None:
                found(events)
        if board is not None:
            board.read()

    def _wait(self, timeout_s: float) -> list[tuple[int, int]]:
        spin, epoll, board = self._spin, self._epoll, self.board
        if spin.willing:
            if board is not None:
                found = spin.look(board.has_mail, lambda: epoll.poll(0))
            else:
                found = spin.look(lambda: epoll.poll(0))
            if found:
                return found if isinstance(found, list) else []
        since = spin.fall_asleep()
        if board is None:
            ready = epoll.poll(timeout_s)
        else:
            ready = epoll.poll(timeout_s) if board.fall_asleep() else []
            board.wake_up()
        spin.woke(since)
        return ready

    def wake(self) -> None:
        """Make a waiting `poll` return. Safe from any thread and from signal handlers."""
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: nobody waits
            self._bell_out.send(b"!")

    def _on_bell(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell_in.recv(4096)

    def close(self) -> None:
        self._epoll.close()
        self._bell_in.close()
        self._bell_out.close()
