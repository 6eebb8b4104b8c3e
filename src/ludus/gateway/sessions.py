"""The sessions of one process: who is live, whose turn it is, what was answered last, when a lease runs out.

It knows nothing of HTTP. `step(step, done)` calls `done(answer)` once: at once if the actor's method is an ordinary
one, later if it is a coroutine or has to wait for its turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ludus.gateway.actor import ActorLike, MakeActor, as_bytes, call_end
from ludus.gateway.journal import Journal
from ludus.gateway.past import Past
from ludus.gateway.running import Done, Running, failure
from ludus.gateway.session import Session, current
from ludus.gateway.step import Answer, Step, problem

__all__ = ["Done", "Observer", "SessionLimits", "Sessions", "SessionsStatistics"]

_LOG = logging.getLogger(__name__)

Observer = Callable[[Step, Answer, Session | None], None]
"""Told of every step that an actor ran, after it: for recordings."""


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


class _Seat:
    """A live session: its actor and what is under way. One step at a time."""

    __slots__ = ("actor", "answer", "began", "closing", "expected", "queue", "running", "session", "touched", "waiters")

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.actor: ActorLike | None = None
        self.began = self.touched = now
        self.expected = 0  # the next number; that of the start
        self.answer: Answer | None = None  # to the number before that, if it was given as a number
        self.running: Step | None = None
        self.waiters: list[Done] = []  # for the step that is under way
        self.queue: deque[tuple[Step, Done]] = deque()
        self.closing: Callable[[], None] | None = None  # begins its end, as soon as nothing is under way


class Sessions:
    """Used from one event loop. `make_actor` makes one for each session; `journal` is told of starts and ends.

    `route` says what a session plays whose game does not ask for a version.
    """

    def __init__(
        self,
        make_actor: MakeActor,
        *,
        limits: SessionLimits | None = None,
        journal: Journal | None = None,
        observer: Observer | None = None,
        route: Callable[[], Mapping[str, str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_actor = make_actor
        self._limits = limits or SessionLimits()
        self._journal = journal
        self._observer = observer
        self._route = route
        self._clock = clock
        self._seats: dict[str, _Seat] = {}
        self._past = Past(journal.lost if journal is not None else ())
        self._shared: ActorLike | None = None
        self._running = Running()
        self._tasks = self._running.tasks
        self._max_waiting = self._limits.max_waiting
        self._num_queued = 0
        self._is_leaving = False
        self.statistics = SessionsStatistics()

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def num_waiting(self) -> int:
        """Steps that are under way or wait for their turn."""
        return len(self._running.tasks) + self._num_queued

    @property
    def is_open(self) -> bool:
        """Whether another session could begin now."""
        return not self._is_leaving and len(self._seats) < self._limits.max_sessions

    def describe(self) -> Iterator[dict[str, Any]]:
        """For `/sessions`."""
        now = self._clock()
        for seat in self._seats.values():
            yield {
                "session": str(seat.session),
                "run": seat.session.run,
                "age_s": round(now - seat.began, 3),
                "idle_s": round(now - seat.touched, 3),
                "step": max(0, seat.expected - 1),
                "versions": dict(seat.session.versions),
            }

    # -- steps --------------------------------------------------------------------------------------------------

    def step(self, step: Step, done: Done) -> None:
        """Run a step, or answer it without; `done` is called once."""
        if step.deadline_s is not None:
            done = self._timely(step, done)
        kind = step.kind
        if kind is None:
            self._run_stateless(step, done)
            return
        if kind == "start":
            self._start(step, done)
            return
        seat = self._seats.get(step.session)
        if seat is None:
            self._absent(step, done)
        elif seat.running is None and (step.number is None or step.number == seat.expected):
            if len(self._tasks) + self._num_queued < self._max_waiting or kind == "end":
                self._run(seat, step, done)
            else:
                done(self._overloaded(f"{self.num_waiting} steps are under way, as many as this server takes"))
        else:
            self._not_next(seat, step, done)

    def _absent(self, step: Step, done: Done) -> None:
        """There is no such session. The last step of one that has ended may still be repeated."""
        answer = self._past.repeated(step)
        if answer is not None:
            self.statistics.num_repeats += 1
        done(answer or self._past.refuse(step))

    def _not_next(self, seat: _Seat, step: Step, done: Done) -> None:
        """A step that cannot run now: a repetition, one that waits for its turn, or one out of order."""
        number, running = step.number, seat.running
        if number is not None and (not seat.session.end_reason or (running is not None and running.number == number)):
            if running is None and seat.answer is not None and number + 1 == seat.expected:
                seat.touched = self._clock()
                self.statistics.num_repeats += 1
                done(seat.answer)
                return
            if running is not None and number == running.number:
                self.statistics.num_repeats += 1
                if running.missed is not None and running.missed.status == 200:
                    done(running.missed)
                else:
                    seat.waiters.append(done)
                return
            following = seat.expected + (running is not None)
            if number != following + len(seat.queue) or running is None:
                detail = f"session {step.session} has done step {seat.expected - 1}; {number} is not the next"
                done(problem("out_of_order", detail, expected=following))
                return
        if len(seat.queue) >= self._limits.max_queue or self.num_waiting >= self._limits.max_waiting:
            done(self._overloaded(f"{len(seat.queue)} steps of session {step.session} wait already"))
        else:
            seat.queue.append((step, done))
            self._num_queued += 1

    def _run(self, seat: _Seat, step: Step, done: Done) -> None:
        """Its turn has come."""
        actor = seat.actor
        assert actor is not None
        token = current.set(seat.session)
        try:
            if step.kind == "tick":
                output: Any = actor.tick(step.data)
            else:
                seat.session.end_reason = "asked"
                output = call_end(actor, step.data, "asked")
            if type(output) is bytes:
                answer = Answer(200, output)
            elif isinstance(output, Awaitable):
                self._run_later(seat, step, output, done)
                return
            else:
                answer = Answer(200, as_bytes(output, step.kind or "tick"))
        except Exception as error:
            answer = failure(step, error)
        finally:
            current.reset(token)
        self._settle(seat, step, answer)
        done(answer)

    def _run_later(self, seat: _Seat, step: Step, output: Awaitable[Any], done: Done) -> None:
        seat.running = step
        seat.waiters.append(done)

        def finish(answer: Answer) -> None:
            seat.running = None
            self._settle(seat, step, answer)
            self._answer(seat, answer)
            self._next(seat)

        self._running.later(step, output, finish)

    def _settle(self, seat: _Seat, step: Step, answer: Answer) -> None:
        """A step was run: remember its answer, and close the session if that was its end."""
        self.statistics.num_steps += 1
        seat.touched = self._clock()
        if answer.status == 200:
            answer.head = seat.session.ready_head or seat.session.head
        seat.expected += 1
        kept = answer if step.missed is None or step.missed.status != 200 else step.missed
        seat.answer = kept if step.number is not None else None
        if self._observer is not None:
            self._observer(step, answer, seat.session)
        if step.kind == "end":
            self._close(seat, "asked", step.number, kept)

    def _next(self, seat: _Seat) -> None:
        """Nothing is under way: what waits for its turn has it."""
        while seat.running is None and (seat.closing is not None or seat.queue):
            if seat.closing is not None:
                closing, seat.closing = seat.closing, None
                closing()
                continue
            step, done = seat.queue.popleft()
            self._num_queued -= 1
            if self._seats.get(step.session) is seat:
                self._run(seat, step, done)
            else:
                self._absent(step, done)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _call(self, session: Session, step: Step, make: Callable[[], Any], finish: Done) -> None:
        """Call the actor of a session; what it waits for runs in the session's context."""
        token = current.set(session)
        try:
            self._running.call(step, make, finish)
        finally:
            current.reset(token)

    def _answer(self, seat: _Seat, answer: Answer) -> None:
        waiters, seat.waiters = seat.waiters, []
        for done in waiters:
            done(answer)

    def _timely(self, step: Step, done: Done) -> Done:
        """A `done` that does not wait for the actor longer than the game does."""

        def miss() -> None:
            step.missed = self._missed(step)
            done(step.missed)

        assert step.deadline_s is not None
        timer = asyncio.get_running_loop().call_later(step.deadline_s, miss)

        def once(answer: Answer) -> None:
            timer.cancel()
            if step.missed is None:
                done(answer)

        return once

    def _missed(self, step: Step) -> Answer:
        """What the game gets in place of an answer that is late: the actor's fallback, or a problem."""
        seat = self._seats.get(step.session)
        actor = self._shared if step.kind is None else seat.actor if seat is not None else None
        fallback = getattr(actor, "fallback", None) if step.kind in ("tick", None) else None
        if fallback is None:
            assert step.deadline_s is not None
            text = f"the actor was not done in {step.deadline_s * 1e3:.0f} ms; it goes on"
            return problem("deadline_exceeded", text)
        try:
            answer = Answer(200, as_bytes(fallback(step.data), "fallback"))
        except Exception as error:
            return failure(step, error)
        self.statistics.num_fallbacks += 1
        if seat is not None:
            answer.head = seat.session.head
        return answer

    def _overloaded(self, why: str) -> Answer:
        return problem("overloaded", why, headers={b"retry-after": b"%d" % self._limits.retry_after_s})

    # -- begin ------------------------------------------------------------------------------------------------------

    def _start(self, step: Step, done: Done) -> None:
        old = self._seats.get(step.session)
        if old is not None and self._start_again(old, step, done):
            return
        if self._is_leaving:
            done(problem("shutting_down", "no session begins any more", headers={b"retry-after": b"1"}))
            return
        if step.number not in (None, 0):
            done(problem("out_of_order", f"a start has number 0, not {step.number}", expected=0))
            return
        if old is None and not self.is_open:
            done(self._overloaded(f"{len(self._seats)} sessions are live, as many as this server takes"))
            return
        wants = step.wants or (self._route() if self._route is not None else {})
        seat = _Seat(Session(step.session, run=step.run, wants=wants), self._clock())
        seat.running = step
        seat.waiters.append(done)
        self._seats[step.session] = seat
        if old is None:
            self._begin(seat, step)
        else:  # the game came back: its old session ends first, and meanwhile the new one has the id
            self._end(old, "replaced", then=lambda: self._begin(seat, step))

    def _start_again(self, old: _Seat, step: Step, done: Done) -> bool:
        """A start on a live id: whether that is answered by this, as a repetition or by a refusal."""
        if step.number == 0 and step.run == old.session.run:
            if old.running is not None and old.running.kind == "start":
                self.statistics.num_repeats += 1
                old.waiters.append(done)
                return True
            if old.answer is not None and old.expected == 1:
                self.statistics.num_repeats += 1
                done(old.answer)
                return True
        if step.run and step.run != old.session.run:
            return False
        done(problem("already_started", f"session {step.session} is live; end it first, or give another run"))
        return True

    def _begin(self, seat: _Seat, step: Step) -> None:
        session = seat.session
        self._past.forget(session)
        if self._journal is not None:
            self._journal.began(session, session.run)
        self.statistics.num_started += 1

        def finish(answer: Answer) -> None:
            seat.running = None
            seat.expected = 1
            seat.touched = self._clock()
            if answer.status == 200:
                answer.head = session.head
                seat.answer = answer if step.number is not None else None
            if self._observer is not None:
                self._observer(step, answer, session)
            if answer.status != 200:
                self._close(seat, "failed", None, None)
            self._answer(seat, answer)
            self._next(seat)

        def start() -> Any:
            seat.actor = self._make_actor()
            return seat.actor.start(session, step.data)

        self._call(session, step, start, finish)

    # -- end --------------------------------------------------------------------------------------------------------

    def _end(self, seat: _Seat, reason: str, *, then: Callable[[], None] | None = None) -> None:
        """Call the actor's `end` for another reason than the game's asking, once its present step is done."""
        step = Step("end", str(seat.session), b"")

        def finish(answer: Answer) -> None:
            seat.running = None
            if self._observer is not None:
                self._observer(step, answer, seat.session)
            self._close(seat, reason, None, None)
            if then is not None:
                then()
            self._next(seat)  # those who waited for their turn learn that there is no session any more

        def begin() -> None:
            actor = seat.actor
            if seat.session.end_reason or actor is None:  # its own end was under way, or it never began
                if then is not None:
                    then()
                return
            seat.session.end_reason = reason
            seat.running = step
            self._call(seat.session, step, lambda: call_end(actor, b"", reason), finish)

        seat.closing = begin
        self._next(seat)

    def _close(self, seat: _Seat, reason: str, number: int | None, answer: Answer | None) -> None:
        session = seat.session
        if self._seats.get(session) is seat:
            del self._seats[session]
            self._past.add(session, reason, number, answer, until=self._clock() + self._limits.lease_s)
        if self._journal is not None:
            self._journal.ended(session, reason)
        self.statistics.ended[reason] += 1
        try:
            session.run_done_callbacks()
        except Exception:
            _LOG.exception("what was to be done after session %r failed", str(session))

    def sweep(self) -> None:
        """End sessions whose lease has run out, and forget those that ended long ago. Called about once a second."""
        now = self._clock()
        horizon = now - self._limits.lease_s
        for seat in [seat for seat in self._seats.values() if seat.touched < horizon]:
            if seat.running is None:
                self._end(seat, "lease")
        self._past.forget_until(now)

    async def leave(self, grace_s: float = 5.0) -> None:
        """End all sessions with the reason `shutdown`; steps that are not done within `grace_s` are cancelled first."""
        self._is_leaving = True
        for seat in list(self._seats.values()):
            self._end(seat, "shutdown")
        await self._running.finish_all(grace_s)

    # -- stateless --------------------------------------------------------------------------------------------------

    def _run_stateless(self, step: Step, done: Done) -> None:
        """A tick on the actor that all such requests share."""

        def finish(answer: Answer) -> None:
            self.statistics.num_steps += 1
            if self._observer is not None:
                self._observer(step, answer, None)
            done(answer)

        if self.num_waiting >= self._limits.max_waiting:
            done(self._overloaded(f"{self.num_waiting} steps are under way, as many as this server takes"))
            return

        def tick() -> Any:
            if self._shared is None:
                self._shared = self._make_actor()
            return self._shared.tick(step.data)

        self._running.call(step, tick, finish)
