"""The deadline of the call being handled, so that the calls a handler makes end no later than its own."""

from __future__ import annotations

import contextvars
import time

__all__ = ["current", "limit"]

current: contextvars.ContextVar[float | None] = contextvars.ContextVar("ludus_deadline", default=None)
"""On the monotonic clock; `None` outside a handler."""


def limit(timeout_s: float) -> float:
    """`timeout_s`, or what is left of the current deadline if that is less."""
    outer = current.get()
    return timeout_s if outer is None else min(timeout_s, outer - time.monotonic())
