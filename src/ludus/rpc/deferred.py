"""An answer that comes later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ludus import errors

__all__ = ["Deferred"]


class Deferred:
    """What a handler returns to answer later, from any thread: once, with `set_result` or `set_error`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._finish: Callable[[Any, BaseException | None], None] | None = None

    @property
    def is_done(self) -> bool:
        return self._outcome is not None

    def set_result(self, value: Any) -> None:
        self._settle((value, None))

    def set_error(self, error: BaseException) -> None:
        self._settle((None, error))

    def _settle(self, outcome: tuple[Any, BaseException | None]) -> None:
        with self._lock:
            if self._outcome is not None:
                raise errors.RpcError("this call was answered already; the first answer stands")
            self._outcome = outcome
            finish = self._finish
        if finish is not None:
            finish(*outcome)

    def bind(self, finish: Callable[[Any, BaseException | None], None]) -> None:
        """For the server: `finish` is called as soon as there is an outcome, perhaps now."""
        with self._lock:
            self._finish = finish
            outcome = self._outcome
        if outcome is not None:
            finish(*outcome)
