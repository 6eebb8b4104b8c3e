"""What a run in this process is doing, said from a thread of its own while the run itself has no time to.

with StatusReporter(lambda: (training.num_steps, training.doing), progress.status):
    ...
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ludus.clock import SYSTEM, Clock

__all__ = ["BUSY_AFTER_S", "StatusReporter"]

BUSY_AFTER_S = 1.0
_LOOK_EVERY_S = 0.5


class StatusReporter:
    """Calls `say("busy: update, 4.1 s")` while what `look` returns, a number and a word, has not changed for long."""

    def __init__(
        self, look: Callable[[], tuple[int, str]], say: Callable[[str], None], *, clock: Clock = SYSTEM
    ) -> None:
        self._look = look
        self._say = say
        self._clock = clock
        self._seen: tuple[int, str] | None = None
        self._since = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ludus-status", daemon=True)

    def look(self) -> None:
        """One look, called by the watching thread."""
        seen, now = self._look(), self._clock.now()
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif seen[1] and now - self._since >= BUSY_AFTER_S:
            self._say(f"busy: {seen[1]}, {now - self._since:.1f} s")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._clock.wait(self._stopped, _LOOK_EVERY_S):
            self.look()
