"""HTTP connections that end: a client that sends or reads too slowly would otherwise keep its place for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ANSWERED_WITHIN_S", "TimedProtocol"]

ANSWERED_WITHIN_S = 30.0


class TimedProtocol(H11Protocol):
    """A connection is cut `ANSWERED_WITHIN_S` after it was made, or after its last answer, if no answer followed."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(
            ANSWERED_WITHIN_S, self.transport.abort
        )  # `close` waits for who does not read

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
