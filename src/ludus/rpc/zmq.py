"""The path between hosts: ZeroMQ over tcp, encrypted and authenticated by CURVE with keys from the trial's secret.

The only file that imports `zmq`. A lost connection is noticed by ZeroMQ's heart-beats within `_HEARTBEAT_LOST_MS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import select
import socket
import threading
import time
import weakref

import zmq
import zmq.auth.thread
import zmq.utils.monitor
import zmq.utils.z85

from ludus import errors
from ludus.rpc.address import is_loopback
from ludus.rpc.reactor import Reactor
from ludus.rpc.spin import Spin
from ludus.rpc.transport import ChannelClosed, Deliver, Frames

__all__ = ["ZmqChannel", "ZmqListener", "server_public_key"]

_QUEUE = 1024
_DRAIN = 256
_HEARTBEAT_MS = 500
_HEARTBEAT_LOST_MS = 2000
_lock = threading.Lock()
_context: zmq.Context[zmq.Socket[bytes]] | None = None
_authenticator: zmq.auth.thread.ThreadAuthenticator | None = None


def _shared_context() -> zmq.Context[zmq.Socket[bytes]]:
    global _context
    with _lock:
        if _context is None:
            _context = zmq.Context()
        return _context


def _keys(secret: str, role: str) -> tuple[bytes, bytes]:
    """The (public, secret) CURVE keys of `role`, the same on every host that knows the trial's secret."""
    raw = hashlib.blake2b(secret.encode(), digest_size=32, person=f"ludus-{role}".encode()).digest()
    private = zmq.utils.z85.encode(raw)
    return zmq.curve_public(private), private


def server_public_key(secret: str) -> str:
    return _keys(secret, "server")[0].decode()


class _Doorman:
    """Lets in the callers that hold a key made from a secret of one of this process's servers."""

    def __init__(self) -> None:
        self.welcome: dict[bytes, int] = {}

    def callback(self, domain: str, key: bytes) -> bool:
        return key in self.welcome


_doorman = _Doorman()


def _admit(secret: str) -> None:
    """Have ZeroMQ ask the doorman about every caller of an encrypted server."""
    global _authenticator
    context = _shared_context()
    with _lock:
        if _authenticator is None:
            _authenticator = zmq.auth.thread.ThreadAuthenticator(context)
            _authenticator.start()
            _authenticator.configure_curve_callback(domain="*", credentials_provider=_doorman)
        public = _keys(secret, "client")[0]
        _doorman.welcome[public] = _doorman.welcome.get(public, 0) + 1


def _dismiss(secret: str) -> None:
    """The reverse of `_admit`. The authenticator's thread stays: ZeroMQ cannot take its socket down and up again."""
    with _lock:
        public = _keys(secret, "client")[0]
        _doorman.welcome[public] -= 1
        if not _doorman.welcome[public]:
            del _doorman.welcome[public]


class _ZmqPeer:
    """A server's end: an identity to route answers to."""

    __slots__ = ("_identity", "_listener", "closed")
    same_host = False

    def __init__(self, listener: ZmqListener, identity: bytes) -> None:
        self._listener = listener
        self._identity = identity
        self.closed = False

    def send(self, frames: Frames) -> None:
        self._listener.send(self._identity, frames)

    def begin(self, slot: int, seq: int) -> None:
        """A mark on another host cannot be read after a kill: callers learn that the outcome is unknown."""


class ZmqListener:
    """A server's door at a tcp port."""

    def __init__(
        self, host: str, port: int, *, secret: str | None, reactor: Reactor, deliver: Deliver, max_bytes: int
    ) -> None:
        if not is_loopback(host) and not secret:
            raise errors.Unauthorised(
                f"refusing to listen on {host} without a secret: anyone who can reach it could run commands here. "
                f"Give the trial a secret, or listen on 127.0.0.1."
            )
        self._reactor = reactor
        self._deliver = deliver
        self._secret = secret
        self.dropped = 0
        self._sock = _shared_context().socket(zmq.ROUTER)
        _configure(self._sock, max_bytes)
        if secret:
            _admit(secret)
            public, private = _keys(secret, "server")
            self._sock.curve_server = True
            self._sock.curve_publickey, self._sock.curve_secretkey = public, private
        try:
            self._sock.bind(f"tcp://{host}:{port if port else '*'}")
        except zmq.ZMQError as error:
            self._sock.close(0)
            if secret:
                _dismiss(secret)
            raise errors.Unreachable(f"cannot listen on {host}:{port}: {error}") from error
        self.port = int(self._sock.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        self._fd = int(self._sock.getsockopt(zmq.FD))
        reactor.add(self._fd, self._on_ready)
        reactor.again(self._on_ready)

    def _on_ready(self, _events: int) -> None:
        # ZeroMQ's descriptor tells of changes, not of states: take all there is, or come again unasked.
        for _ in range(_DRAIN):
            try:
                identity, *frames = self._sock.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if frames:
                self._deliver(_ZmqPeer(self, identity.bytes), [frame.buffer for frame in frames])
        self._reactor.again(self._on_ready)

    def send(self, identity: bytes, frames: Frames) -> None:
        try:
            self._sock.send_multipart([identity, *frames], zmq.NOBLOCK)
        except zmq.Again:
            self.dropped += 1  # the caller's queue is full; it will probe
        self._reactor.again(self._on_ready)  # sending may have taken note of arrivals

    @property
    def num_connections(self) -> int:
        """Not known: ZeroMQ keeps its connections to itself."""
        return 0

    @property
    def num_unsent_bytes(self) -> int:
        """Not known either; at most `_QUEUE` messages for each caller."""
        return 0

    def close(self) -> None:
        self._reactor.remove(self._fd)
        self._sock.close(100)
        if self._secret:
            _dismiss(self._secret)


class ZmqChannel:
    """A caller's end."""

    same_host = False

    def __init__(self, endpoint: str, *, secret: str | None, server_key: str, timeout_s: float, max_bytes: int) -> None:
        """Connect. Raises `Unreachable` when nobody answers in time, `Unauthorised` when a secret is missing."""
        self.instance = ""
        if server_key and not secret:
            raise errors.Unauthorised(f"the server at {endpoint} asks for the trial's secret and none was given")
        self._sock = _shared_context().socket(zmq.DEALER)
        _configure(self._sock, max_bytes)
        self._sock.setsockopt(zmq.IMMEDIATE, 1)
        if secret and server_key:
            public, private = _keys(secret, "client")
            self._sock.curve_serverkey = server_key.encode()
            self._sock.curve_publickey, self._sock.curve_secretkey = public, private
        self._monitor = self._sock.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        )
        # A ZeroMQ socket is for one thread at a time: it is touched under a lock, and waited for by its descriptor.
        self._lock = threading.Lock()
        self._ready: list[Frames] = []
        self._bell_in, self._bell_out = socket.socketpair()
        self._bell_in.setblocking(False)
        self._bell_out.setblocking(False)
        self._spin = Spin()
        self._poller = select.poll()
        for fd in (self.fileno(), int(self._monitor.getsockopt(zmq.FD)), self._bell_in.fileno()):
            self._poller.register(fd, select.POLLIN)
        self._finalizer = weakref.finalize(self, _close, self._sock, self._monitor, self._bell_in, self._bell_out)
        self._connect(endpoint, timeout_s)

    def _connect(self, endpoint: str, timeout_s: float) -> None:
        try:
            self._sock.connect(f"tcp://{endpoint}")
            poller = zmq.Poller()
            poller.register(self._sock, zmq.POLLOUT)
            poller.register(self._monitor, zmq.POLLIN)
            ready = dict(poller.poll(int(max(timeout_s, 0) * 1e3)))
        except zmq.ZMQError as error:
            self.close()
            raise errors.Unreachable(f"cannot connect to {endpoint}: {error}") from error
        if self._monitor in ready and self._sock not in ready:
            event = zmq.utils.monitor.recv_monitor_message(self._monitor)["event"]
            self.close()
            if event != zmq.EVENT_DISCONNECTED:
                raise errors.Unauthorised(f"the server at {endpoint} refused the trial's secret")
            raise errors.Unreachable(f"{endpoint} hung up at once: not a Ludus server, or one with another secret")
        if not ready:
            self.close()
            raise errors.Unreachable(f"nobody answers at {endpoint} within {timeout_s:.3g} s")

    def send(self, frames: Frames, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._try_send(frames):
            self._check_monitor()
            if time.monotonic() > deadline:
                raise errors.DeadlineExceeded(
                    f"the server took no more data for {timeout_s:.3g} s; the call was not run"
                )
            time.sleep(0.001)

    def _try_send(self, frames: Frames) -> bool:
        with self._lock:
            try:
                self._sock.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                return False
            if int(self._sock.getsockopt(zmq.EVENTS)) & zmq.POLLIN:  # sending may have eaten the descriptor's news
                self._ready += self._take()
                self._ring()
            return True

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell_out.send(b"!")

    def receive(self, timeout_s: float) -> list[Frames]:
        messages = self._receive_now()
        if not messages and timeout_s > 0:
            spin, poller = self._spin, self._poller
            found = spin.look(lambda: poller.poll(0)) if spin.willing else None
            if not found:
                since = spin.fall_asleep()
                poller.poll(timeout_s * 1e3)
                spin.woke(since)
            messages = self._receive_now()
        if not messages:
            self._check_monitor()
        return messages

    def _receive_now(self) -> list[Frames]:
        with self._lock:
            messages = self._take()
            if self._ready:
                messages = self._ready + messages
                self._ready = []
                with contextlib.suppress(BlockingIOError):
                    self._bell_in.recv(4096)
            return messages

    def _take(self) -> list[Frames]:
        messages: list[Frames] = []
        while True:
            try:
                parts = self._sock.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return messages
            messages.append([part.buffer for part in parts])

    def _check_monitor(self) -> None:
        with self._lock:
            if self._monitor.poll(0):
                raise ChannelClosed("the connection broke")

    def fileno(self) -> int:
        return int(self._sock.getsockopt(zmq.FD))

    def began(self, slot: int, seq: int) -> bool | None:
        return None

    def close(self) -> None:
        self._finalizer()


def _configure(sock: zmq.Socket[bytes], max_bytes: int) -> None:
    sock.setsockopt(zmq.LINGER, 0)
    sock.setsockopt(zmq.SNDHWM, _QUEUE)
    sock.setsockopt(zmq.RCVHWM, _QUEUE)
    sock.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    sock.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_LOST_MS)


def _close(sock: zmq.Socket[bytes], monitor: zmq.Socket[bytes], *bells: socket.socket) -> None:
    sock.disable_monitor()
    monitor.close(0)
    sock.close(0)
    for bell in bells:
        bell.close()
