"""A host with a thread of its own, for programs that live on an event loop.

with HostThread(host) as thread:
    thread.submit(12, (image,), {}, LoopSink(loop), future := loop.create_future())
    outputs = await future
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

from ludus import errors
from ludus.models.kernel import ModelHost
from ludus.models.request import Sink

__all__ = ["HostThread", "LoopSink"]

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_CLOSE_S = 10.0
_WAKE_EVERY_S = 0.02


class HostThread:
    """Threads that run a host until it is closed, one for each lane. If it cannot be prepared, calls are told why."""

    def __init__(self, host: ModelHost, lanes: int = 1) -> None:
        self.host = host
        self._is_closed = False
        self._error: BaseException | None = None
        self._ready = threading.Event()
        self._threads = [threading.Thread(target=self._live, daemon=True, name=f"model-{host.name}")]
        self._threads += [
            threading.Thread(target=self._help, daemon=True, name=f"model-{host.name}-{lane}")
            for lane in range(1, lanes)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def wait_ready(self, timeout_s: float) -> None:
        """Until the backend is chosen. Raises why it could not be."""
        if not self._ready.wait(timeout_s):
            raise errors.DeadlineExceeded(f"the model {self.host.name!r} was not ready in {timeout_s:g} s")
        if self._error is not None:
            raise self._error.with_traceback(None)  # it is raised more than once

    def submit(self, version: int, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink, token: Any) -> None:
        """`ModelHost.submit`."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        self.host.submit(version, args, kwargs, sink, token)
        if self._is_closed or self._error is not None:  # it may have come too late for the thread
            gone = errors.Unreachable(f"the model {self.host.name!r} is closed here; the call was not run")
            self.host.refuse_pending(self._error or gone)

    def _live(self) -> None:
        host = self.host
        try:
            host.prepare()
        except BaseException as error:
            _log.exception("the model %s cannot run here", host.name)
            self._error = error
        finally:
            self._ready.set()
        while not self._is_closed:
            if self._error is None:
                host.run_pending(_LOOK_EVERY_S)
            else:
                host.refuse_pending(self._error)
                return

    def _help(self) -> None:
        """A further lane: it begins when the first has prepared the host."""
        self._ready.wait()
        while not self._is_closed and self._error is None:
            self.host.run_pending(_LOOK_EVERY_S)

    def close(self) -> None:
        """Run no more. Doing it twice does nothing."""
        self._is_closed = True
        until = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            while thread is not threading.current_thread() and thread.is_alive() and time.monotonic() < until:
                self.host.call(lambda: None)  # wakes one of them, and not always this one
                thread.join(_WAKE_EVERY_S)
        self.host.close()

    def abandon(self) -> None:
        """In a child that was forked: its threads are the parent's, so it is closed here."""
        self._is_closed = True

    def __enter__(self) -> HostThread:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class LoopSink:
    """Outcomes for the futures of one event loop, which is woken once for each batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def deliver(self, tokens: list[asyncio.Future[Any]], results: list[Any]) -> None:
        self._tell(_set_results, tokens, results)

    def fail(self, tokens: list[asyncio.Future[Any]], error: BaseException) -> None:
        self._tell(_set_error, tokens, error)

    def _tell(self, tell: Any, tokens: list[asyncio.Future[Any]], outcome: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(tell, tokens, outcome)
        except RuntimeError:
            if not self._loop.is_closed():  # if it is, nobody waits any more
                raise


def _set_results(futures: list[asyncio.Future[Any]], results: list[Any]) -> None:
    for future, result in zip(futures, results, strict=True):
        if not future.done():  # cancelled: nobody waits for it any more
            future.set_result(result)


def _set_error(futures: list[asyncio.Future[Any]], error: BaseException) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
