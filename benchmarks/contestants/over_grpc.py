"""Echo over grpcio: sync unary calls whose message is the raw array, no protobuf; tcp and unix sockets.

over_grpc.py server tcp|unix
over_grpc.py client
"""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
from slices import Caller, Callers, Channel, Nest

METHOD = "/ludus.bench.Echo/Echo"
OPTIONS = [
    ("grpc.max_send_message_length", 1 << 26),
    ("grpc.max_receive_message_length", 1 << 26),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # without it, channels to one address share one connection
]
NUM_SERVER_THREADS = 4


def echo(request: bytes, _context: grpc.ServicerContext) -> bytes:
    array = np.frombuffer(request, np.uint8)
    return array.base  # the request's own bytes: gRPC at its best, with no copy of ours


def serve(channel: Channel, wire: str) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(NUM_SERVER_THREADS), options=OPTIONS)
    _, service, method = METHOD.split("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    if wire == "unix":
        address = f"unix:{os.environ['BENCH_FOLDER']}/grpc"
        server.add_insecure_port(address)
    else:
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    channel.hello("grpcio", "numpy", address=address)
    server.wait_for_termination()


class OneCaller:
    def __init__(self, address: str) -> None:
        self._echo = grpc.insecure_channel(address, options=OPTIONS).unary_unary(METHOD)

    def call(self, nest: Nest) -> Nest:
        return {"x": np.frombuffer(self._echo(nest["x"].tobytes()), np.uint8)}


class ManyCallers:
    def __init__(self, address: str, num_callers: int) -> None:
        self.num_callers = num_callers
        self._done: queue.SimpleQueue[tuple[int, grpc.Future]] = queue.SimpleQueue()
        channels = [grpc.insecure_channel(address, options=OPTIONS) for _ in range(num_callers)]
        self._echoes = [channel.unary_unary(METHOD) for channel in channels]

    def submit(self, caller: int, nest: Nest) -> None:
        future = self._echoes[caller].future(nest["x"].tobytes())
        future.add_done_callback(lambda done: self._done.put((caller, done)))

    def finished(self) -> Iterator[tuple[int, Nest]]:
        caller, future = self._done.get()
        yield caller, {"x": np.frombuffer(future.result(), np.uint8)}


def connect(order: dict[str, Any]) -> Caller | Callers:
    if order["callers"] == 1:
        return OneCaller(order["address"])
    return ManyCallers(order["address"], order["callers"])


if __name__ == "__main__":
    channel = Channel()
    if sys.argv[1] == "server":
        serve(channel, sys.argv[2])
    else:
        channel.hello("grpcio", "numpy")
        channel.take_orders(connect)
