"""The deadline of the call being handled, so that the calls a handler makes end no later than its own."""

from __future__ import annotations

import contextvars

__all__ = ["current"]

current: contextvars.ContextVar[float | None] = contextvars.ContextVar("ludus_deadline", default=None)
"""On the monotonic clock; `None` outside a handler."""
