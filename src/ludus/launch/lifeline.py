"""A worker notices that its driver is gone, however it went: a file descriptor reads end-of-file.

On one host it is a pipe whose only writing end the driver holds; from another host, a TCP connection to it. The
kernel closes both when the driver is killed, so nothing has to be polled, sent, or given a time-out.

A connection begins with a challenge: the driver sends a nonce, the worker answers with its HMAC by the trial's secret,
the driver confirms with one byte. Who does not answer in time, or wrongly, is disconnected.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import select
import signal
import socket
import threading
import time
from collections.abc import Callable

from ludus import errors
from ludus.rpc import address as addresses

__all__ = ["Lifeline", "LifelineServer", "connect_lifeline", "end_process_group"]

_LOG = logging.getLogger(__name__)
_GRACE_S = 1.5  # a worker is to be gone 3 s after its driver
_LOST_EXIT_CODE = 70
_NONCE_BYTES = 32
_ACCEPTED = b"+"
_PROVE_WITHIN_S = 5.0
_MAX_UNPROVEN = 64
_MAX_HELD = 4096
_RETRY_AFTER_S = 0.1


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
    """The driver's end for workers on other hosts: it lets in who knows the secret, and never says a word again.

    Beyond loopback it needs a secret. Strangers hold at most `_MAX_UNPROVEN` connections, each for `_PROVE_WITHIN_S`.
    """

    def __init__(self, host: str, *, secret: str | None = None) -> None:
        self._host = host
        self._secret = secret or ""
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="ludus-lifelines", daemon=True)
        self._unproven: dict[int, _Unproven] = {}  # by descriptor
        self._held: list[socket.socket] = []

    def start(self) -> None:
        """Listen. Raises `Unauthorised` for a public address without a secret."""
        if not self._secret and not addresses.is_loopback(self._host):
            raise errors.Unauthorised(
                f"{self._host} can be reached by others: lifelines there need the trial's secret, and it has none."
            )
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
            self._thread.join()
            self._listener.close()
        for line in (*self._held, *(each.line for each in self._unproven.values())):
            line.close()

    @property
    def num_held(self) -> int:
        return len(self._held)

    def _serve(self) -> None:
        assert self._listener is not None
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            wait_s = min((each.until - time.monotonic() for each in self._unproven.values()), default=None)
            ready = {fd for fd, _ in poll.poll(None if wait_s is None else max(0.0, wait_s) * 1000 + 1)}
            now = time.monotonic()
            for fd, each in list(self._unproven.items()):
                if (is_proven := each.read() if fd in ready else None) is None and now < each.until:
                    continue
                poll.unregister(fd)
                del self._unproven[fd]
                if is_proven and self._hold(each.line):
                    continue
                each.line.close()
            if self._listener.fileno() in ready and not self._accept(poll):
                return

    def _accept(self, poll: select.poll) -> bool:
        """Accept and challenge a peer; false once the listener is shut down."""
        assert self._listener is not None
        try:
            line, _ = self._listener.accept()
        except ConnectionAbortedError:  # it left before it was let in
            return True
        except OSError as error:
            if self._listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                _LOG.warning("a lifeline could not be accepted: %s", error)  # out of descriptors: later ones may be
                time.sleep(_RETRY_AFTER_S)
                return True
            return False
        if len(self._unproven) >= _MAX_UNPROVEN:
            line.close()  # a worker tries again
            return True
        line.setblocking(False)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        try:
            line.send(nonce)
        except OSError:
            line.close()
            return True
        proof = _proof(self._secret, nonce)
        self._unproven[line.fileno()] = _Unproven(line, proof, until=time.monotonic() + _PROVE_WITHIN_S)
        poll.register(line, select.POLLIN)
        return True

    def _hold(self, line: socket.socket) -> bool:
        still = [held for held in self._held if not _has_ended(held.fileno(), timeout_s=0.0)]
        for ended in set(self._held) - set(still):
            ended.close()
        self._held = still
        if len(still) >= _MAX_HELD:
            return False
        self._held.append(line)
        try:
            line.send(_ACCEPTED)
        except OSError:
            self._held.remove(line)
            return False
        return True


class _Unproven:
    """A connection that has yet to answer its challenge, until then."""

    def __init__(self, line: socket.socket, proof: bytes, *, until: float) -> None:
        self.line = line
        self.until = until
        self._proof = proof
        self._read = b""

    def read(self) -> bool | None:
        """Whether what came is the proof; `None` while there is more to come."""
        try:
            content = self.line.recv(len(self._proof) + 1 - len(self._read))
        except BlockingIOError:
            return None
        except OSError:
            return False
        self._read += content
        if content and len(self._read) < len(self._proof):
            return None
        return hmac.compare_digest(self._read, self._proof)


def _proof(secret: str, nonce: bytes) -> bytes:
    return hmac.digest(secret.encode(), b"ludus lifeline\0" + nonce, hashlib.sha256)


def connect_lifeline(address: tuple[str, int], *, secret: str | None = None, timeout_s: float = 10.0) -> socket.socket:
    """A connection to the driver that ends when the driver does, or when its host has been silent for 20 s.

    Raises `Unauthorised` if the driver has another secret, and `OSError` if it cannot be reached in time.
    """
    until = time.monotonic() + timeout_s
    while True:
        line = socket.create_connection(address, timeout=max(0.01, until - time.monotonic()))
        try:
            nonce = _receive(line, _NONCE_BYTES)
            if len(nonce) == _NONCE_BYTES:
                line.sendall(_proof(secret or "", nonce))
                if _receive(line, 1) == _ACCEPTED:
                    break
                raise errors.Unauthorised(
                    f"the driver at {address[0]}:{address[1]} did not accept this worker's secret; it has another"
                )
            if time.monotonic() >= until:
                raise TimeoutError(f"the driver at {address[0]}:{address[1]} has too many connections to take another")
        except BaseException:
            line.close()
            raise
        line.close()  # too many others are just connecting
        time.sleep(_RETRY_AFTER_S)
    line.setblocking(True)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return line


def _receive(line: socket.socket, count: int) -> bytes:
    """So many bytes, or fewer if the connection ends."""
    content = b""
    while len(content) < count:
        try:
            part = line.recv(count - len(content))
        except ConnectionResetError:
            return content
        if not part:
            return content
        content += part
    return content


def _has_ended(fd: int, *, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))  # nobody ever writes, so anything to be read is the end
