"""The event loop that gateways and load generators run on: uvloop's, twice as fast as asyncio's own."""

from __future__ import annotations

import asyncio

from ludus import errors

__all__ = ["new_event_loop"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Raises `MissingExtra` if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        raise errors.MissingExtra("uvloop", extra="serve") from None
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
