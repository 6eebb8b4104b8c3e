"""How many sessions there may be, and for how long; and how many there were."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["SessionLimits", "SessionsStatistics"]


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    """How many, and for how long."""

    lease_s: float = 60.0  # that a session lives without a step
    max_sessions: int = 10_000
    max_waiting: int = 4096  # steps of all sessions that are under way or wait for their turn
    max_queue: int = 16  # steps of one session that wait for their turn
    retry_after_s: int = 1


@dataclass(kw_only=True)
class SessionsStatistics:
    num_started: int = 0
    num_steps: int = 0  # that actors ran
    num_repeats: int = 0  # that were answered again without them
    num_fallbacks: int = 0
    ended: Counter[str] = field(default_factory=Counter)  # by reason
