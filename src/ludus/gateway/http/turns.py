"""Connections with input that is read and not parsed yet: one of them goes on in each turn of the event loop.

Parsing many small things is slow, so a connection that has much of it waits here. However many such connections there
are, the others are read in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["Turns"]


class Turns:
    """Of one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, go_on: Callable[[], None]) -> None:
        """Have it called once, after those that wait already."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        go_on()
