"""The client for asyncio programs: the same calls, awaited. Answers are read by the event loop itself; no thread.

client = AsyncRpcClient(server.address)
result = await client.request("foo", x=42)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.data import codec
from ludus.rpc.address import parse, port_address
from ludus.rpc.call import Caller, Pending, encode_body, new_call
from ludus.rpc.client import DEFAULT_TIMEOUT_S
from ludus.rpc.link import ClientStats, Link
from ludus.rpc.opening import OpenChannel

__all__ = ["AsyncRpcClient"]

_TICK_S = 0.05


class AsyncRpcClient:
    """Calls one server from one event loop. Deadlines and lost replies are looked after every 50 ms."""

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
        self._link = Link(address, self._caller, transport=transport, secret=secret, limits=limits, opener=opener)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd: int | None = None
        self._tick: asyncio.TimerHandle | None = None

    async def request(self, command: str, *args: Any, **kwargs: Any) -> Any:
        """Run `command` at the server and await its result, for as long as the client's `timeout_s`."""
        return await self.call(command, args, kwargs)

    async def call(
        self,
        command: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """`request` with a timeout of its own."""
        loop = self._loop = asyncio.get_running_loop()
        pending = new_call(
            self._caller,
            command,
            args,
            kwargs,
            self._timeout_s if timeout_s is None else timeout_s,
            self._limits,
        )
        future: asyncio.Future[Any] = loop.create_future()

        def resolve(done: Pending) -> None:
            loop.call_soon_threadsafe(_resolve, future, done)

        if self._link.is_writable():
            self._link.send(pending)
        else:  # connecting, or waiting for a server that takes nothing in, is not for the loop's thread
            await loop.run_in_executor(None, self._link.send, pending)
        if pending.done:
            return pending.result()
        pending.add_done_callback(lambda done: _resolve(future, done) if _is_current(loop) else resolve(done))
        self._watch(loop)
        self._link.pump()
        return await future

    async def notify(self, command: str, *args: Any, **kwargs: Any) -> None:
        """Send `command` and forget it."""
        body = encode_body(args, kwargs, self._limits)
        if self._link.is_writable():
            self._link.notify(command, body, self._timeout_s)
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._link.notify, command, body, self._timeout_s)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        fd = self._link.fileno()
        if fd != self._fd:
            if self._fd is not None:
                loop.remove_reader(self._fd)
            if fd is not None:
                loop.add_reader(fd, self._on_readable)
            self._fd = fd
        if self._tick is None:
            self._tick = loop.call_later(_TICK_S, self._on_tick)

    def _on_readable(self) -> None:
        assert self._loop is not None
        self._link.pump()
        if self._link.fileno() != self._fd:
            self._watch(self._loop)

    def _on_tick(self) -> None:
        assert self._loop is not None
        self._tick = None
        self._link.pump()
        self._link.tend()
        if self._link.num_in_flight:
            self._watch(self._loop)

    def statistics(self) -> ClientStats:
        return self._link.statistics()

    async def close(self) -> None:
        """Hang up. Doing it twice does nothing."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if self._fd is not None and self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._fd = None
        self._link.close()

    async def __aenter__(self) -> AsyncRpcClient:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _resolve(future: asyncio.Future[Any], pending: Pending) -> None:
    if future.done():  # cancelled: nobody waits any more
        return
    if pending.error is not None:
        future.set_exception(pending.error)
    else:
        future.set_result(pending.result())
