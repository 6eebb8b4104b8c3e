"""Games that do not wait for an answer longer than they said: what they get in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ludus.gateway.actor import as_bytes
from ludus.gateway.limits import SessionsStatistics
from ludus.gateway.running import Done, failure
from ludus.gateway.seat import Seat
from ludus.gateway.stateless import Stateless
from ludus.gateway.step import Answer, Step, problem

__all__ = ["Deadlines"]


class Deadlines:
    """Those of the steps of `seats`, and of stateless ones."""

    def __init__(self, seats: Mapping[str, Seat], stateless: Stateless, statistics: SessionsStatistics) -> None:
        self._seats = seats
        self._stateless = stateless
        self._statistics = statistics

    def timely(self, step: Step, done: Done) -> Done:
        """A `done` that does not wait for the actor longer than the game does."""

        is_late = False

        def miss() -> None:
            nonlocal is_late
            is_late = True
            done(self._missed(step))

        assert step.deadline_s is not None
        timer = asyncio.get_running_loop().call_later(step.deadline_s, miss)

        def once(answer: Answer) -> None:
            timer.cancel()
            if not is_late:
                done(answer)

        return once

    def _missed(self, step: Step) -> Answer:
        """What the game gets in place of an answer that is late: the actor's fallback, or a problem.

        A fallback is the answer to its number from then on; so the repetition of a step speaks for the step itself.
        """
        seat = self._seats.get(step.session) if step.kind is not None else None
        running = seat.running if seat is not None and step.number is not None else None
        missing = running if running is not None and running.number == step.number else step
        if missing.missed is not None and missing.missed.status == 200:
            return missing.missed
        missing.missed = answer = self._fall_back(missing, seat, step.deadline_s or 0.0)
        return answer

    def _fall_back(self, step: Step, seat: Seat | None, after_s: float) -> Answer:
        actor = self._stateless.actor if step.kind is None else seat.actor if seat is not None else None
        fallback = getattr(actor, "fallback", None) if step.kind in ("tick", None) else None
        if fallback is None:
            return problem("deadline_exceeded", f"the actor was not done in {after_s * 1e3:.0f} ms; it goes on")
        try:
            answer = Answer(200, as_bytes(fallback(step.data), "fallback"))
        except BaseException as error:
            return failure(step, error)
        self._statistics.num_fallbacks += 1
        if seat is not None:
            answer.head = seat.session.head
        return answer
