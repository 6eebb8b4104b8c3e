"""Echo over Ludus, codec and dispatch included.

over_ludus.py server unix|zmq
over_ludus.py client
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from slices import Caller, Callers, Channel, Nest

from ludus.rpc.client import Pending, RpcClient, wait_any
from ludus.rpc.server import RpcServer


def serve(channel: Channel, transport: str) -> None:
    server = RpcServer(None, transports=(transport,))
    server.register_handler("echo", lambda x: x)
    server.start()
    channel.hello("ludus", "numpy", "msgspec", "pyzmq", address=server.address)
    while True:
        server.handle_requests(timeout_s=1.0)


class OneCaller:
    def __init__(self, address: str, transport: str) -> None:
        self._client = RpcClient(address, transport=transport)

    def call(self, nest: Nest) -> Nest:
        return self._client.request("echo", x=nest)


class ManyCallers:
    def __init__(self, address: str, transport: str, num_callers: int) -> None:
        self.num_callers = num_callers
        self._clients = [RpcClient(address, transport=transport) for _ in range(num_callers)]
        self._pending: dict[Pending, int] = {}

    def submit(self, caller: int, nest: Nest) -> None:
        self._pending[self._clients[caller].submit("echo", kwargs={"x": nest})] = caller

    def finished(self) -> Iterator[tuple[int, Nest]]:
        for done in wait_any(list(self._pending), 10.0):
            yield self._pending.pop(done), done.result()


def connect(order: dict[str, Any]) -> Caller | Callers:
    if order["callers"] == 1:
        return OneCaller(order["address"], order["transport"])
    return ManyCallers(order["address"], order["transport"], order["callers"])


if __name__ == "__main__":
    channel = Channel()
    if sys.argv[1] == "server":
        serve(channel, sys.argv[2])
    else:
        channel.hello("ludus", "numpy")
        channel.take_orders(connect)
