"""Echo over hand-written pyzmq: REQ/REP and DEALER/ROUTER, ipc and tcp, three ways to put a nest in frames.

    over_pyzmq.py server reqrep|router|drain ipc|tcp buffers|copied|inline
    over_pyzmq.py client

`buffers` is pickle protocol 5 with out-of-band buffers and copy=False; `copied` the same with frames copied,
cheaper for small ones; `inline` one frame with everything pickled into it, cheaper still for small nests and
ruinous for large ones.
The `drain` server takes everything that is pending before it answers, for many callers.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import zmq
from slices import Caller, Callers, Channel, Nest


class Frames:
    """How a nest becomes frames, and back."""

    def __init__(self, encoding: str) -> None:
        self.copy = encoding != "buffers"
        self.dumps: Callable[[Any], list[Any]] = _dumps_inline if encoding == "inline" else _dumps_buffers
        self.loads: Callable[[list[Any]], Any] = _loads_inline if encoding == "inline" else _loads_buffers


def _dumps_buffers(nest: Any) -> list[Any]:
    buffers: list[pickle.PickleBuffer] = []
    return [pickle.dumps(nest, protocol=5, buffer_callback=buffers.append), *buffers]


def _loads_buffers(frames: list[Any]) -> Any:
    return pickle.loads(frames[0], buffers=frames[1:])


def _dumps_inline(nest: Any) -> list[Any]:
    return [pickle.dumps(nest, protocol=5)]


def _loads_inline(frames: list[Any]) -> Any:
    return pickle.loads(frames[0])


def echo(nest: Nest) -> Nest:
    return nest


def serve(channel: Channel, pattern: str, wire: str, encoding: str) -> None:
    socket = zmq.Context().socket(zmq.REP if pattern == "reqrep" else zmq.ROUTER)
    ipc = f"ipc://{os.environ['BENCH_FOLDER']}/{pattern}-{encoding}"
    socket.bind(ipc if wire == "ipc" else "tcp://127.0.0.1:*")
    address = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    channel.hello("pyzmq", "numpy", address=address)
    {"reqrep": serve_rep, "router": serve_router, "drain": serve_drain}[pattern](socket, Frames(encoding))


def serve_rep(socket: zmq.Socket, frames: Frames) -> None:
    copy, dumps, loads = frames.copy, frames.dumps, frames.loads
    while True:
        request = loads(socket.recv_multipart(copy=copy))
        socket.send_multipart(dumps(echo(request)), copy=copy)


def serve_router(socket: zmq.Socket, frames: Frames) -> None:
    copy, dumps, loads = frames.copy, frames.dumps, frames.loads
    while True:
        caller, *request = socket.recv_multipart(copy=copy)
        socket.send_multipart([caller, *dumps(echo(loads(request)))], copy=copy)


def serve_drain(socket: zmq.Socket, frames: Frames) -> None:
    copy, dumps, loads = frames.copy, frames.dumps, frames.loads
    while True:
        pending = [socket.recv_multipart(copy=copy)]
        try:
            while True:
                pending.append(socket.recv_multipart(zmq.NOBLOCK, copy=copy))
        except zmq.Again:
            pass
        for caller, *request in pending:
            socket.send_multipart([caller, *dumps(echo(loads(request)))], copy=copy)


class OneCaller:
    def __init__(self, address: str, pattern: str, encoding: str) -> None:
        self._socket = zmq.Context().socket(zmq.REQ if pattern == "reqrep" else zmq.DEALER)
        self._socket.connect(address)
        self._frames = Frames(encoding)

    def call(self, nest: Nest) -> Nest:
        frames = self._frames
        self._socket.send_multipart(frames.dumps(nest), copy=frames.copy)
        return frames.loads(self._socket.recv_multipart(copy=frames.copy))


class ManyCallers:
    def __init__(self, address: str, encoding: str, num_callers: int) -> None:
        self.num_callers = num_callers
        self._frames = Frames(encoding)
        self._poller = zmq.Poller()
        self._sockets = []
        context = zmq.Context()
        for _ in range(num_callers):
            socket = context.socket(zmq.DEALER)
            socket.connect(address)
            self._poller.register(socket, zmq.POLLIN)
            self._sockets.append(socket)
        self._index = {socket: i for i, socket in enumerate(self._sockets)}

    def submit(self, caller: int, nest: Nest) -> None:
        self._sockets[caller].send_multipart(self._frames.dumps(nest), copy=self._frames.copy)

    def finished(self) -> Iterator[tuple[int, Nest]]:
        frames = self._frames
        for socket, _ in self._poller.poll():
            yield self._index[socket], frames.loads(socket.recv_multipart(copy=frames.copy))


def connect(order: dict[str, Any]) -> Caller | Callers:
    if order["callers"] == 1:
        return OneCaller(order["address"], order["pattern"], order["encoding"])
    return ManyCallers(order["address"], order["encoding"], order["callers"])


if __name__ == "__main__":
    channel = Channel()
    if sys.argv[1] == "server":
        serve(channel, *sys.argv[2:])
    else:
        channel.hello("pyzmq", "numpy")
        channel.take_orders(connect)
