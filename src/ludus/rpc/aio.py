"""The client for asyncio programs: the same calls, awaited. Answers are read by the event loop itself; no thread.

client = AsyncRpcClient(server.address)
result = await client.request("foo", x=42)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.rpc.call import Pending, encode_body
from ludus.rpc.client import Calls

__all__ = ["AsyncRpcClient"]

_TICK_S = 0.05


class AsyncRpcClient(Calls):
    """Calls one server from one event loop. Deadlines and lost replies are looked after every 50 ms."""

    _loop: asyncio.AbstractEventLoop | None = None
    _fd: int | None = None
    _tick: asyncio.TimerHandle | None = None

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
        pending = self._new_call(command, args, kwargs, timeout_s)
        future: asyncio.Future[Any] = loop.create_future()

        def resolve(done: Pending) -> None:
            loop.call_soon_threadsafe(_resolve, future, done)

        if self.link.is_writable():
            self.link.send(pending)
        else:  # connecting, or waiting for a server that takes nothing in, is not for the loop's thread
            await loop.run_in_executor(None, self.link.send, pending)
        if pending.done:
            return pending.result()
        pending.add_done_callback(lambda done: _resolve(future, done) if _is_current(loop) else resolve(done))
        self._watch(loop)
        self.link.pump()
        return await future

    async def notify(self, command: str, *args: Any, **kwargs: Any) -> None:
        """Send `command` and forget it."""
        body = encode_body(args, kwargs, self._limits)
        if self.link.is_writable():
            self.link.notify(command, body, self._timeout_s)
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self.link.notify, command, body, self._timeout_s)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        fd = self.link.fileno()
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
        self.link.pump()
        if self.link.fileno() != self._fd:
            self._watch(self._loop)

    def _on_tick(self) -> None:
        assert self._loop is not None
        self._tick = None
        self.link.pump()
        self.link.tend()
        if self.link.num_in_flight:
            self._watch(self._loop)

    async def close(self) -> None:
        """Hang up. Doing it twice does nothing."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if self._fd is not None and self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._fd = None
        self.link.close()

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
