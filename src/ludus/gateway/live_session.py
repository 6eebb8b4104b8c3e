"""A live session: its actor, what runs and what waits. One step at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ludus.gateway.actor import ActorLike
from ludus.gateway.session import Session
from ludus.gateway.session_table import Event, State
from ludus.gateway.step import Outcome, Step

__all__ = ["Done", "LiveSession"]

Done = Callable[[Outcome], None]


class LiveSession:
    __slots__ = (
        "actor", "answer", "began", "expected", "queue", "running", "session", "signed_ms", "state", "stop", "then",
        "touched", "waiters",
    )  # fmt: skip

    def __init__(self, session: Session, now: float, start: Step, done: Done) -> None:
        self.session = session
        self.state = State.STARTING
        self.signed_ms = start.signed_ms  # when its start was signed, if it was
        self.actor: ActorLike | None = None
        self.began = now
        self.touched = now  # when a step was answered last, or the one that runs began
        self.expected = 0  # the next number; that of the start
        self.answer: Outcome | None = None  # to the number before that, if it was given as a number
        self.running: Step | None = start
        self.waiters: list[Done] = [done]  # for the step that runs
        self.queue: deque[tuple[Step, list[Done]]] = deque()
        self.stop: Callable[[], None] | None = None  # begins its end, as soon as nothing runs
        self.then: Callable[[], None] | None = None  # what follows its end

    def event_of(self, step: Step) -> Event:
        """What a step is to this session, as it is now."""
        number, running = step.number, self.running
        if step.kind == "start":
            if step.run and step.run != self.session.run:
                return Event.OTHER_RUN
            is_kept = self.answer is not None and self.expected == 1
            is_same = number == 0 and step.run == self.session.run and (self.state is State.STARTING or is_kept)
            return Event.START_AGAIN if is_same else Event.START
        if number is not None:
            if (running is not None and running.number == number) or self.queued(number) is not None:
                return Event.SAME
            if self.answer is not None and number + 1 == self.expected:
                return Event.LAST
            if number != self.expected + (running is not None) + len(self.queue):
                return Event.OTHER
        return Event.TICK if step.kind == "tick" else Event.END

    def queued(self, number: int | None) -> list[Done] | None:
        """Those who get the answer of the step of this number, if it waits for its turn."""
        return next((dones for step, dones in self.queue if step.number == number), None)

    def answer_waiters(self, outcome: Outcome) -> None:
        waiters, self.waiters = self.waiters, []
        for done in waiters:
            done(outcome)
