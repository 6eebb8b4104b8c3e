"""The client: calls to one server, over the nearest transport, each with a deadline and a number of its own.

    client = RpcClient("localhost", 5555)          # or RpcClient(server.address)
    client.request("foo", x=42, y="str")           # foo(x=42, y="str") runs at the server
    pending = client.submit("foo", kwargs={"x": 1})
    pending.result()

Several threads may share a client: one of those that wait reads for all. A reply that got lost is asked for again; a
call is sent again only when it surely was not started.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ludus.data import codec
from ludus.rpc.address import parse, port_address
from ludus.rpc.call import Caller, Pending, encode_body, new_call
from ludus.rpc.link import ClientStats, Link
from ludus.rpc.opening import OpenChannel

__all__ = ["DEFAULT_TIMEOUT_S", "Calls", "ClientStats", "Pending", "RpcClient", "wait_any"]

DEFAULT_TIMEOUT_S = 60.0
_TICK_S = 0.05


class Calls:
    """What clients share, whether they wait or await: the link to one server, and the calls made for it."""

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        transport: str | None = None,
        secret: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        limits: codec.Limits = codec.DEFAULT_LIMITS,
        opener: OpenChannel | None = None,
    ) -> None:
        address = parse(host) if port is None else port_address(host, port)
        self._limits = limits
        self._timeout_s = timeout_s
        self._caller = Caller()
        self.link = Link(address, self._caller, transport=transport, secret=secret, limits=limits, opener=opener)

    def _new_call(
        self, command: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None, timeout_s: float | None
    ) -> Pending:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        return new_call(self._caller, command, args, kwargs, limit_s, self._limits)

    def statistics(self) -> ClientStats:
        return self.link.statistics()


class RpcClient(Calls):
    """Calls one server: `RpcClient(host, port)`, or `RpcClient(address)` with what `server.address` says."""

    def request(self, command: str, *args: Any, **kwargs: Any) -> Any:
        """Run `command` at the server and wait for its result, for as long as the client's `timeout_s`."""
        pending = new_call(self._caller, command, args, kwargs, self._timeout_s, self._limits)
        self.link.send(pending)
        return pending.result()

    def call(
        self,
        command: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """`request` with a timeout of its own."""
        return self.submit(command, args, kwargs, timeout_s=timeout_s).result()

    def submit(
        self,
        command: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Pending:
        """Send a call and go on. The arrays given must not change before it is done."""
        pending = self._new_call(command, args, kwargs, timeout_s)
        self.link.send(pending)
        return pending

    def notify(self, command: str, *args: Any, **kwargs: Any) -> None:
        """Send `command` and forget it: no result, no error, no promise that it ran."""
        self.link.notify(command, encode_body(args, kwargs, self._limits), self._timeout_s)

    def close(self) -> None:
        self.link.close()

    def __enter__(self) -> RpcClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def wait_any(pendings: Iterable[Pending], timeout_s: float) -> list[Pending]:
    """The calls that are done, after waiting up to `timeout_s` for the first. They may be to many servers."""
    waiting = list(pendings)
    done = [pending for pending in waiting if pending.done]
    if done:
        return done
    until = time.monotonic() + timeout_s
    while True:
        links = {id(pending.link): pending.link for pending in waiting if pending.link is not None}.values()
        for link in links:
            link.pump()
        done = [pending for pending in waiting if pending.done]
        left = until - time.monotonic()
        if done or left <= 0:
            return done
        poller = select.poll()
        for link in links:
            fd = link.fileno()
            if fd is not None:
                poller.register(fd, select.POLLIN)
        if not poller.poll(min(left, _TICK_S) * 1e3):
            for link in links:
                link.tend()
