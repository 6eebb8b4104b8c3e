"""Threads that run a kernel, for programs that live on an event loop.

with KernelThreads(kernel) as threads:
    threads.submit(12, (image,), {}, LoopSink(loop), future := loop.create_future())
    outputs = await future
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import asdict
from typing import Any

from ludus import errors
from ludus.models.kernel import Kernel
from ludus.models.request import Sink
from ludus.models.verify import Verification

__all__ = ["KernelThreads", "LoopSink"]

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_CLOSE_S = 10.0
_WAKE_EVERY_S = 0.02
_READY_WITHIN_S = 300.0


class KernelThreads:
    """One thread for each lane of the kernel, until closed. If it cannot be prepared, every call raises the reason."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._is_closed = False
        self._error: BaseException | None = None
        self._ready = threading.Event()
        names = [f"model-{kernel.name}", *(f"model-{kernel.name}-{lane}" for lane in range(1, kernel.lanes))]
        self._threads = [
            threading.Thread(target=self._help if lane else self._live, daemon=True, name=name)
            for lane, name in enumerate(names)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def wait_ready(self, timeout_s: float = _READY_WITHIN_S) -> None:
        """Until the backend is chosen. Raises why it could not be."""
        if not self._ready.wait(timeout_s):
            raise errors.DeadlineExceeded(f"the model {self.kernel.name!r} was not ready in {timeout_s:g} s")
        if self._error is not None:
            raise self._error.with_traceback(None)  # it is raised more than once

    def submit(self, version: int | str, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink, token: Any) -> None:
        """`Inference.submit`."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        self.kernel.submit(version, args, kwargs, sink, token)
        if self._is_closed or self._error is not None:  # perhaps too late for the threads
            gone = errors.Unreachable(f"the model {self.kernel.name!r} is closed here; the call was not run")
            self.kernel.refuse_pending(self._error or gone)

    def verification(self, *, again: bool = False) -> Verification:
        """`Inference.verification`."""
        self.wait_ready()
        if again:
            self.kernel.call(self.kernel.prepare).result(_READY_WITHIN_S)
        assert self.kernel.verification is not None, "ready"
        return self.kernel.verification

    def stats(self) -> dict[str, Any]:
        return asdict(self.kernel.stats())

    def _live(self) -> None:
        kernel = self.kernel
        try:
            kernel.prepare()
        except BaseException as error:
            _log.exception("the model %s cannot run here", kernel.name)
            self._error = error
        finally:
            self._ready.set()
        while not self._is_closed:
            if self._error is None:
                kernel.run_pending(_LOOK_EVERY_S)
            else:
                kernel.refuse_pending(self._error)
                return

    def _help(self) -> None:
        """A further lane: it begins when the first has prepared the kernel."""
        self._ready.wait()
        while not self._is_closed and self._error is None:
            self.kernel.run_pending(_LOOK_EVERY_S)

    def close(self) -> None:
        """`Inference.close`."""
        self._is_closed = True
        until = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            while thread is not threading.current_thread() and thread.is_alive() and time.monotonic() < until:
                self.kernel.call(lambda: None)  # wakes one of them, and not always this one
                thread.join(_WAKE_EVERY_S)
        self.kernel.close()

    def abandon(self) -> None:
        """`Inference.abandon`."""
        self._is_closed = True

    def __enter__(self) -> KernelThreads:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class LoopSink:
    """Outcomes for the futures of one event loop, which is woken once for each batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def deliver(self, tokens: list[asyncio.Future[Any]], results: list[Any], version: int) -> None:
        self._call_soon(_set_results, tokens, results)

    def fail(self, tokens: list[asyncio.Future[Any]], error: BaseException) -> None:
        self._call_soon(_set_error, tokens, error)

    def _call_soon(self, function: Any, tokens: list[asyncio.Future[Any]], outcome: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, tokens, outcome)
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
