"""Answers that leave together: what is answered in one turn of the event loop is written at its end.

Each write to a socket whose reader sleeps wakes it, which costs more than the answer itself. Written one after another,
the answers of a turn wake the other side once.
"""

from __future__ import annotations

import asyncio

__all__ = ["Outbox"]


class Outbox:
    """Of one event loop. What is given to it is written in the order in which it was given."""

    def __init__(self) -> None:
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []

    def send(self, transport: asyncio.Transport, data: bytes) -> None:
        waiting = self._waiting
        if not waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        waiting.append((transport, data))

    def flush(self) -> None:
        """Write what waits, now."""
        waiting, self._waiting = self._waiting, []
        for transport, data in waiting:
            if not transport.is_closing():
                transport.write(data)
