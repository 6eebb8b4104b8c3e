"""A live session: its actor and what is under way. One step at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ludus.gateway.actor import ActorLike
from ludus.gateway.running import Done
from ludus.gateway.session import Session
from ludus.gateway.step import Answer, Step

__all__ = ["Seat"]


class Seat:
    __slots__ = (
        "actor", "answer", "began", "closing", "expected", "queue", "running", "session", "signed_ms", "touched",
        "waiters",
    )  # fmt: skip

    def __init__(self, session: Session, now: float, signed_ms: int = 0) -> None:
        self.session = session
        self.signed_ms = signed_ms  # when its start was signed, if it was
        self.actor: ActorLike | None = None
        self.began = now
        self.touched = now  # when a step was answered last, or the one that is under way began
        self.expected = 0  # the next number; that of the start
        self.answer: Answer | None = None  # to the number before that, if it was given as a number
        self.running: Step | None = None
        self.waiters: list[Done] = []  # for the step that is under way
        self.queue: deque[tuple[Step, Done]] = deque()
        self.closing: Callable[[], None] | None = None  # begins its end, as soon as nothing is under way

    def answer_waiters(self, answer: Answer) -> None:
        waiters, self.waiters = self.waiters, []
        for done in waiters:
            done(answer)

    def add_to_waiting(self, number: int, done: Done) -> bool:
        """Have one more told of the answer to a step that waits for its turn; whether it does."""
        for index, (step, first) in enumerate(self.queue):
            if step.number == number:
                if isinstance(first, _All):
                    first.dones.append(done)
                else:
                    self.queue[index] = step, _All(first, done)
                return True
        return False


class _All:
    """A `done` that calls several."""

    def __init__(self, *dones: Done) -> None:
        self.dones = list(dones)

    def __call__(self, answer: Answer) -> None:
        for done in self.dones:
            done(answer)
