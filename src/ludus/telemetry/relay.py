"""Warnings of workers in their driver's log, where somebody sees them: `simulator/0: env 3 of mine.py:make raised …`.

In a worker:    logging.getLogger().addHandler(RelayHandler(send))      # send(one line of bytes)
In its driver:  WarningRelay(folder / "logs").take("simulator/0", line)

What repeats is passed on once a minute, and a flood is cut off: the workers' own logs have all of it.
"""

from __future__ import annotations

import collections
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from ludus import clock as clocks

__all__ = ["RelayHandler", "WarningRelay"]

_LOG = logging.getLogger(__name__)
_OWN = "ludus"
_LOGGED_BY_THE_DRIVER = "ludus.launch"  # how a worker ended
_MAX_CHARS = 16_000
_REPEAT_AFTER_S = 60.0
_MAX_WARNINGS, _PERIOD_S = 40, 3600.0


class RelayHandler(logging.Handler):
    """Calls `send(line)` for each warning and error of Ludus's own loggers."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(message)s"))
        self.addFilter(logging.Filter(_OWN))
        self._not_sent = logging.Filter(_LOGGED_BY_THE_DRIVER)
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        if self._not_sent.filter(record):
            return
        try:
            text = self.format(record)
            if len(text) > _MAX_CHARS:
                text = f"{text[: _MAX_CHARS // 2]}\n…\n{text[-_MAX_CHARS // 2 :]}"
            self._send(json.dumps([record.levelno, record.name, text]).encode())
        except Exception:
            self.handleError(record)


class WarningRelay:
    """Logs what workers sent, under the same logger and level, with the worker's name in front. Thread-safe."""

    def __init__(self, logs: Path, *, clock: clocks.Clock = clocks.SYSTEM) -> None:
        """`logs` is the folder that has all of it."""
        self._logs = logs
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}  # text → when it was passed on
        self._passed_on: collections.deque[float] = collections.deque()
        self._is_cut_off = False

    def take(self, worker: str, line: bytes) -> None:
        """Raises `ValueError` for what no `RelayHandler` sent."""
        try:
            level, name, text = json.loads(line)
            logger = logging.getLogger(name)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not a warning: {line[:80]!r}") from error
        if self._may_pass(text):
            logger.log(level, "%s: %s", worker, text)

    def _may_pass(self, text: str) -> bool:
        with self._lock:
            now = self._clock.now()
            self._last = {known: at for known, at in self._last.items() if now - at < _REPEAT_AFTER_S}
            if text in self._last:
                return False
            while self._passed_on and now - self._passed_on[0] >= _PERIOD_S:
                self._passed_on.popleft()
                self._is_cut_off = False
            if len(self._passed_on) < _MAX_WARNINGS:
                self._last[text] = now
                self._passed_on.append(now)
                return True
            was_cut_off, self._is_cut_off = self._is_cut_off, True
        if not was_cut_off:
            _LOG.warning("the workers have more warnings, which are not shown: they are in %s", self._logs)
        return False
