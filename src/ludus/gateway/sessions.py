"""The sessions of one process: who is live, whose turn it is, what was answered last, when a lease runs out.

It knows nothing of HTTP. `step(step, done)` calls `done(answer)` once: at once if the actor's method is an ordinary
one, later if it is a coroutine or has to wait for its turn.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from ludus.gateway.actor import MakeActor, as_bytes, call_end
from ludus.gateway.appending import Failures
from ludus.gateway.deadlines import Deadlines
from ludus.gateway.journal import Journal
from ludus.gateway.limits import SessionLimits, SessionsStatistics
from ludus.gateway.past import Past
from ludus.gateway.running import Done, Running, failure, given_up
from ludus.gateway.seat import Seat
from ludus.gateway.session import Session, current
from ludus.gateway.stateless import Stateless
from ludus.gateway.step import Answer, Step, problem

__all__ = ["Done", "Observer", "SessionLimits", "Sessions", "SessionsStatistics"]

_MAX_LEASES = 10  # that a step may run
_MAX_LEASES_UNWANTED = 1  # if its session is to end

Observer = Callable[[Step, Answer, Session], None]
"""Told of every step that an actor ran, after it: for recordings."""
Route = Callable[[], Mapping[str, str]]
Spend = Callable[[Step], Answer | None]


class Sessions:
    """Used from one event loop. `make_actor` makes one for each session; `journal` is told of starts and ends.

    `route` says what a session plays whose game does not ask for a version, `stateless_route` what a stateless tick
    plays. `spend` is called with each signed, numbered start that begins a session, and says why it must not, if so.
    """

    def __init__(
        self,
        make_actor: MakeActor,
        *,
        limits: SessionLimits | None = None,
        journal: Journal | None = None,
        observer: Observer | None = None,
        route: Route | None = None,
        stateless_route: Route | None = None,
        spend: Spend | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_actor = make_actor
        self._limits = limits or SessionLimits()
        self._journal = journal
        self._unrecorded = Failures("a step cannot be recorded")
        self._observer = None if observer is None else self._unrecorded.guard(observer)
        self._route = route
        self._spend = spend
        self._clock = clock
        self._seats: dict[str, Seat] = {}
        self._replaced: set[Seat] = set()  # whose ids others have, and which have not ended
        self._past = Past(journal.lost if journal is not None else ())
        self._running = Running()
        self._stateless = Stateless(make_actor, self._running, stateless_route)
        self._tasks = self._running.tasks
        self._max_waiting = self._limits.max_waiting
        self._num_queued = 0
        self._is_leaving = False
        self.statistics = SessionsStatistics()
        self._deadlines = Deadlines(self._seats, self._stateless, self.statistics)

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

    @property
    def num_unwritten(self) -> int:
        """Steps that could not be recorded, and starts and ends that could not be written down at once."""
        return self._unrecorded.num + (self._journal.failures.num if self._journal is not None else 0)

    def find(self, session: str) -> Session | None:
        """The session, if it is live."""
        seat = self._seats.get(session)
        return None if seat is None else seat.session

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
            done = self._deadlines.timely(step, done)
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
        elif step.signature and step.signed_ms < seat.signed_ms:
            done(_older(step))
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

    def _not_next(self, seat: Seat, step: Step, done: Done) -> None:
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
            if seat.add_to_waiting(number, done):
                self.statistics.num_repeats += 1
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

    def _run(self, seat: Seat, step: Step, done: Done) -> None:
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
        except BaseException as error:  # the number of the step is used up, whatever was raised
            answer = failure(step, error)
        finally:
            current.reset(token)
        self._settle(seat, step, answer)
        done(answer)

    def _run_later(self, seat: Seat, step: Step, output: Awaitable[Any], done: Done) -> None:
        seat.running = step
        seat.touched = self._clock()
        seat.waiters.append(done)

        def finish(answer: Answer) -> None:
            seat.running = None
            kept = self._settle(seat, step, answer)
            if answer.code == "shutting_down":  # it is no answer to the step
                seat.answer = None
            seat.answer_waiters(kept)
            self._next(seat)

        self._running.later(step, output, finish)

    def _settle(self, seat: Seat, step: Step, answer: Answer) -> Answer:
        """A step was run: keep what the game gets for its number, and close the session if that was its end."""
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
        return kept

    def _next(self, seat: Seat) -> None:
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

    def _overloaded(self, why: str) -> Answer:
        return problem("overloaded", why, headers={b"retry-after": b"%d" % self._limits.retry_after_s})

    # -- begin ------------------------------------------------------------------------------------------------------

    def _start(self, step: Step, done: Done) -> None:
        old = self._seats.get(step.session)
        if old is not None and step.signed_ms and step.signed_ms < old.signed_ms:
            done(_older(step))
            return
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
        refused = self._spend(step) if self._spend is not None and step.number is not None else None
        if refused is not None:
            done(refused)
            return
        wants = step.wants
        if self._route is not None and "" not in wants:
            wants = {**self._route(), **wants}
        seat = Seat(Session(step.session, run=step.run, wants=wants), self._clock(), step.signed_ms)
        seat.running = step
        seat.waiters.append(done)
        self._seats[step.session] = seat
        if old is None:
            self._begin(seat, step)
        else:  # the game came back: its old session ends first, and meanwhile the new one has the id
            self._replaced.add(old)

            def begin() -> None:
                self._replaced.discard(old)
                self._begin(seat, step)

            self._end(old, "replaced", then=begin)

    def _start_again(self, old: Seat, step: Step, done: Done) -> bool:
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

    def _begin(self, seat: Seat, step: Step) -> None:
        session = seat.session
        refused = self._write_down(session)
        if refused is not None:
            seat.running = None
            if self._seats.get(session) is seat:
                del self._seats[session]
            seat.answer_waiters(refused)
            self._next(seat)
            return
        self._past.forget(session)
        seat.touched = self._clock()
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
                seat.actor = None  # there is nothing to end
                self._close(seat, "failed", None, None)
            seat.answer_waiters(answer)
            self._next(seat)

        def start() -> Any:
            seat.actor = self._make_actor()
            return seat.actor.start(session, step.data)

        self._call(session, step, start, finish)

    def _write_down(self, session: Session) -> Answer | None:
        """That a session begins, so that it is known if it is lost. Returns why it cannot begin, if so."""
        if self._is_leaving:
            return problem("shutting_down", "no session begins any more", headers={b"retry-after": b"1"})
        try:
            if self._journal is not None:
                self._journal.began(session, session.run)
        except OSError as error:
            return self._overloaded(f"the start cannot be written down: {error.strerror}")
        return None

    # -- end --------------------------------------------------------------------------------------------------------

    def end(self, session: str, reason: str, then: Callable[[], None]) -> None:
        """End a live session as if for this reason; `then` is called when it has ended."""
        self._end(self._seats[session], reason, then=then)

    def _end(self, seat: Seat, reason: str, *, then: Callable[[], None] | None = None) -> None:
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
            seat.touched = self._clock()
            self._call(seat.session, step, lambda: call_end(actor, b"", reason), finish)

        seat.closing = begin
        self._next(seat)

    def _close(self, seat: Seat, reason: str, number: int | None, answer: Answer | None) -> None:
        session = seat.session
        if self._seats.get(session) is seat:
            del self._seats[session]
            self._past.add(session, reason, number, answer, until=self._clock() + self._limits.lease_s)
        if self._journal is not None:
            self._journal.ended(session, reason)
        self.statistics.ended[reason] += 1
        session.run_done_callbacks()

    def sweep(self, held_up_s: float = 0.0) -> None:
        """End sessions whose lease has run out, and forget those that ended long ago. Called about once a second.

        `held_up_s` is how long the event loop did not turn since the last call. Leases do not run in that time: steps
        that arrived in it are still to be read.
        """
        now = self._clock()
        if held_up_s > 0:
            for seat in (*self._seats.values(), *self._replaced):
                seat.touched = min(now, seat.touched + held_up_s)
            self._past.prolong(held_up_s)
        horizon = now - self._limits.lease_s
        for seat in [seat for seat in (*self._seats.values(), *self._replaced) if seat.touched < horizon]:
            if seat.running is None:
                self._end(seat, "lease")
            else:
                self._check_hung(seat, seat.running, now)
        self._past.forget_until(now)

    def _check_hung(self, seat: Seat, step: Step, now: float) -> None:
        """Cancel a step that has run for so long that nothing will come of it; its session then ends."""
        age_s = now - seat.touched
        if age_s < self._limits.lease_s * (_MAX_LEASES if seat.closing is None else _MAX_LEASES_UNWANTED):
            return
        seat.touched = now  # one that does not heed it is told again, after a while
        if seat.closing is None and step.kind == "tick":
            self._end(seat, "lease")
        self._running.cancel(step, given_up(step, age_s))

    async def leave(self, grace_s: float = 5.0) -> None:
        """End all sessions with the reason `shutdown`; steps that are not done within `grace_s` are cancelled first."""
        self._is_leaving = True
        for seat in list(self._seats.values()):
            self._end(seat, "shutdown")
        await self._running.finish_all(grace_s)
        self._stateless.close()

    # -- stateless --------------------------------------------------------------------------------------------------

    def _run_stateless(self, step: Step, done: Done) -> None:
        """A tick on the actor that all such requests share."""

        def finish(answer: Answer, session: Session) -> None:
            self.statistics.num_steps += 1
            if self._observer is not None:
                self._observer(step, answer, session)
            done(answer)

        if self.num_waiting >= self._limits.max_waiting:
            done(self._overloaded(f"{self.num_waiting} steps are under way, as many as this server takes"))
        else:
            self._stateless.tick(step, finish)


def _older(step: Step) -> Answer:
    detail = f"it was signed before the start of session {step.session} that is live, so it is none of its steps"
    return problem("replayed", detail)
