"""The sessions of one process: which are live, whose turn it is, what was answered last, when a lease runs out.

Events in, outcomes out; it knows no protocol. `session_table.py` says what becomes of a session in every state; the
`_do_…` methods here are the actions of that table.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ludus.gateway.actor import MakeActor, as_bytes, call_end
from ludus.gateway.actor_calls import ActorCalls, Deadlines, Route, StatelessActor, failure, given_up
from ludus.gateway.appending import Failures
from ludus.gateway.ended_sessions import EndedSessions
from ludus.gateway.journal import Journal
from ludus.gateway.live_session import Done, LiveSession
from ludus.gateway.session import Session, current
from ludus.gateway.session_looks import SessionLooks
from ludus.gateway.session_table import TABLE, Event, State
from ludus.gateway.step import Outcome, Step

__all__ = ["Observer", "SessionCore", "SessionLimits", "SessionStats"]

_MAX_LEASES = 10  # that a step may run
_MAX_LEASES_UNWANTED = 1  # if its session is to end
_IDLE = State.IDLE

Observer = Callable[[Step, Outcome, Session], None]
"""Called with every step that an actor ran, after it: for recordings."""
Spend = Callable[[Step], Outcome | None]


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    """How many, and for how long."""

    lease_s: float = 60.0  # that a session lives without a step
    max_sessions: int = 10_000
    max_waiting: int = 4096  # steps of all sessions that run or wait for their turn
    max_queue: int = 16  # steps of one session that wait for their turn
    retry_after_s: int = 1


@dataclass(kw_only=True)
class SessionStats:
    num_started: int = 0
    num_steps: int = 0  # that actors ran
    num_repeats: int = 0  # that were answered again without them
    num_fallbacks: int = 0
    ended: Counter[str] = field(default_factory=Counter)  # by reason


class SessionCore:
    """Used from one event loop. `make_actor` makes one for each session; `journal` gets starts and ends.

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
        self._live: dict[str, LiveSession] = {}
        self.looks = SessionLooks(self._live, clock)
        self._replaced: set[LiveSession] = set()  # whose ids others have, and which have not ended
        self._ended = EndedSessions(journal.lost if journal is not None else ())
        self._calls = ActorCalls()
        self._tasks = self._calls.tasks
        self._stateless = StatelessActor(make_actor, self._calls, stateless_route)
        self._max_waiting = self._limits.max_waiting
        self._num_queued = 0
        self._is_leaving = False
        self.stats = SessionStats()
        self._deadlines = Deadlines(self._live, self._stateless, self.stats)
        self._actions: dict[Event, dict[State, Callable[..., None]]] = {
            event: {state: getattr(self, f"_do_{move.action}") for state, move in moves.items() if move is not None}
            for event, moves in TABLE.items()
        }

    def __len__(self) -> int:
        return len(self._live)

    @property
    def num_waiting(self) -> int:
        """Steps that run or wait for their turn."""
        return len(self._calls.tasks) + self._num_queued

    @property
    def is_open(self) -> bool:
        """Whether another session could begin now."""
        return not self._is_leaving and len(self._live) < self._limits.max_sessions

    @property
    def num_unwritten(self) -> int:
        """Steps that could not be recorded, and starts and ends that could not be written down at once."""
        return self._unrecorded.num + (self._journal.failures.num if self._journal is not None else 0)

    def find(self, session: str) -> Session | None:
        """The session, if it is live."""
        live = self._live.get(session)
        return None if live is None else live.session

    def describe(self) -> Iterator[dict[str, Any]]:
        """For `/sessions`."""
        now = self._clock()
        for live in self._live.values():
            yield {
                "session": str(live.session),
                "run": live.session.run,
                "age_s": round(now - live.began, 3),
                "idle_s": round(now - live.touched, 3),
                "step": max(0, live.expected - 1),
                "versions": dict(live.session.versions),
            }

    # -- steps ----------------------------------------------------------------------------------------------------

    def step(self, step: Step, done: Done) -> None:
        """Run a step, or answer it without; `done` is called once.

        That is at once if the actor's method is an ordinary one, and later if it is a coroutine or has to wait for its
        turn.
        """
        if step.deadline_s is not None:
            done = self._deadlines.timely(step, done)
        kind, number = step.kind, step.number
        live = self._live.get(step.session)
        if kind is None:
            self._run_stateless(step, done)
        elif (
            live is not None
            and live.state is _IDLE
            and kind == "tick"
            and (number is None or number == live.expected)
            and not step.signature
            and len(self._tasks) + self._num_queued < self._max_waiting
        ):
            self._run(live, step, done)  # as the table has it; nearly all steps are such
        else:
            self._look_up(live, step, done)

    def _look_up(self, live: LiveSession | None, step: Step, done: Done) -> None:
        if live is None:
            state, event = self._ended.state_of(step.session), self._ended.event_of(step)
        elif step.signature and step.signed_ms < live.signed_ms:
            detail = (
                f"it was signed before the start of session {step.session} that is live, so it is none of its steps"
            )
            done(Outcome.refused("replayed", detail))
            return
        else:
            state, event = live.state, live.event_of(step)
        self._actions[event][state](live, step, done)

    def _do_run(self, live: LiveSession, step: Step, done: Done) -> None:
        if self.num_waiting >= self._max_waiting and step.kind != "end":
            done(self._too_many())
        else:
            self._run(live, step, done)

    def _do_queue(self, live: LiveSession, step: Step, done: Done) -> None:
        if len(live.queue) >= self._limits.max_queue or self.num_waiting >= self._max_waiting:
            done(self._overloaded(f"{len(live.queue)} steps of session {step.session} wait already"))
        else:
            live.queue.append((step, [done]))
            self._num_queued += 1

    def _do_wait(self, live: LiveSession, step: Step, done: Done) -> None:
        self.stats.num_repeats += 1
        running = live.running
        assert running is not None
        if step.number != running.number and (queued := live.queued(step.number)) is not None:
            queued.append(done)
        elif running.missed is not None and not running.missed.code:
            done(running.missed)
        else:
            live.waiters.append(done)

    def _do_repeat(self, live: LiveSession | None, step: Step, done: Done) -> None:
        if live is not None and live.state is _IDLE and step.kind != "start":
            live.touched = self._clock()
        self.stats.num_repeats += 1
        outcome = self._ended.answer_to(step) if live is None else live.answer
        assert outcome is not None
        done(outcome)

    def _do_out_of_order(self, live: LiveSession, step: Step, done: Done) -> None:
        detail = f"session {step.session} has done step {live.expected - 1}; {step.number} is not the next"
        done(Outcome.refused("out_of_order", detail, expected=live.expected + (live.running is not None)))

    def _do_already_started(self, live: LiveSession, step: Step, done: Done) -> None:
        detail = f"session {step.session} is live; end it first, or give another run"
        done(Outcome.refused("already_started", detail))

    def _do_unknown_session(self, _live: None, step: Step, done: Done) -> None:
        done(Outcome.refused("unknown_session", self._ended.why(step.session)))

    def _do_session_lost(self, _live: None, step: Step, done: Done) -> None:
        done(lost(step))

    def _overloaded(self, why: str) -> Outcome:
        return Outcome.refused("overloaded", why, retry_after_s=self._limits.retry_after_s)

    def _too_many(self) -> Outcome:
        return self._overloaded(f"{self.num_waiting} steps are under way, as many as this server takes")

    def _run(self, live: LiveSession, step: Step, done: Done) -> None:
        """Its turn has come."""
        actor, session = live.actor, live.session
        assert actor is not None
        token = current.set(session)
        try:
            if step.kind == "tick":
                output: Any = actor.tick(step.data)
            else:
                session.end_reason = "asked"
                output = call_end(actor, step.data, "asked")
            if type(output) is bytes:
                outcome = Outcome(output, session)
            elif isinstance(output, Awaitable):
                live.state = State.RUNNING if step.kind == "tick" else State.ENDING
                live.running = step
                live.touched = self._clock()
                live.waiters.append(done)
                self._calls.later(session, step, output, functools.partial(self._finish, live, step))
                return
            else:
                outcome = Outcome(as_bytes(output, step.kind or "tick"), session)
        except BaseException as error:  # the number of the step is used up, whatever was raised
            outcome = failure(step, error)
        finally:
            current.reset(token)
        self._settle(live, step, outcome)
        done(outcome)

    def _finish(self, live: LiveSession, step: Step, outcome: Outcome) -> None:
        """An actor's method is done that was waited for."""
        event = Event.FAILED if outcome.code else Event.DONE
        live.running = None
        self._actions[event][live.state](live, step, outcome)
        self._next(live)

    def _do_settle(self, live: LiveSession, step: Step, outcome: Outcome) -> None:
        live.state = _IDLE
        kept = self._settle(live, step, outcome)
        if outcome.code == "shutting_down":  # it is no answer to the step
            live.answer = None
        live.answer_waiters(kept)

    def _settle(self, live: LiveSession, step: Step, outcome: Outcome) -> Outcome:
        """A step was run: keep what the game gets for its number, and close the session if that was its end."""
        self.stats.num_steps += 1
        live.touched = self._clock()
        live.expected += 1
        kept = outcome if step.missed is None or step.missed.code else step.missed
        live.answer = kept if step.number is not None else None
        if self._observer is not None:
            self._observer(step, outcome, live.session)
        if step.kind == "end":
            self._close(live, "asked", step.number, kept)
        return kept

    def _next(self, live: LiveSession) -> None:
        """Nothing runs: what waits for its turn has it."""
        while live.running is None and (live.stop is not None or live.queue):
            if live.stop is not None:
                stop, live.stop = live.stop, None
                stop()
                continue
            step, dones = live.queue.popleft()
            self._num_queued -= 1
            done = dones[0] if len(dones) == 1 else functools.partial(_tell, dones)
            if self._live.get(step.session) is live:
                self._run(live, step, done)
            else:
                self._look_up(None, step, done)

    def _run_stateless(self, step: Step, done: Done) -> None:
        """A tick on the actor that all such requests share."""

        def finish(outcome: Outcome, session: Session) -> None:
            self.stats.num_steps += 1
            if self._observer is not None:
                self._observer(step, outcome, session)
            done(outcome)

        if self.num_waiting >= self._max_waiting:
            done(self._too_many())
        else:
            self._stateless.tick(step, finish)

    # -- begin ------------------------------------------------------------------------------------------------------

    def _do_begin(self, old: LiveSession | None, step: Step, done: Done) -> None:
        refused = self._refuse_start(old, step)
        if refused is not None:
            done(refused)
            return
        wants = step.wants
        if self._route is not None and "" not in wants:
            wants = {**self._route(), **wants}
        live = LiveSession(Session(step.session, run=step.run, wants=wants), self._clock(), step, done)
        self._live[step.session] = live
        if old is None:
            self._begin(live, step)
        else:  # the game came back: its old session ends first, and until then the new one has the id
            self._replaced.add(old)

            def begin() -> None:
                self._replaced.discard(old)
                self._begin(live, step)

            self._do_stop(old, "replaced", begin)

    _do_replace = _do_begin

    def _refuse_start(self, old: LiveSession | None, step: Step) -> Outcome | None:
        if self._is_leaving:
            return _leaving()
        if step.number not in (None, 0):
            return Outcome.refused("out_of_order", f"a start has number 0, not {step.number}", expected=0)
        if old is None and not self.is_open:
            return self._overloaded(f"{len(self._live)} sessions are live, as many as this server takes")
        return self._spend(step) if self._spend is not None and step.number is not None else None

    def _begin(self, live: LiveSession, step: Step) -> None:
        session = live.session
        refused = self._write_down(session)
        if refused is not None:
            live.running, live.state = None, State.ABSENT
            if self._live.get(session) is live:
                del self._live[session]
            live.answer_waiters(refused)
            self._next(live)
            return
        self._ended.forget(session)
        live.touched = self._clock()
        self.stats.num_started += 1

        def start() -> Any:
            live.actor = self._make_actor()
            return live.actor.start(session, step.data)

        self._calls.call(session, step, start, functools.partial(self._finish, live, step))

    def _write_down(self, session: Session) -> Outcome | None:
        """That a session begins, so that it is known if it is lost. Returns why it cannot begin, if so."""
        if self._is_leaving:
            return _leaving()
        try:
            if self._journal is not None:
                self._journal.began(session, session.run)
        except OSError as error:
            return self._overloaded(f"the start cannot be written down: {error.strerror}")
        return None

    def _do_started(self, live: LiveSession, step: Step, outcome: Outcome) -> None:
        live.state = _IDLE
        live.expected = 1
        live.touched = self._clock()
        live.answer = outcome if step.number is not None else None
        if self._observer is not None:
            self._observer(step, outcome, live.session)
        live.answer_waiters(outcome)

    # -- end --------------------------------------------------------------------------------------------------------

    def end(self, session: str, reason: str, then: Callable[[], None]) -> None:
        """End a live session as if for this reason; `then` is called when it has ended."""
        self._do_stop(self._live[session], reason, then)

    def _do_stop(self, live: LiveSession, reason: str, then: Callable[[], None] | None = None) -> None:
        """Call the actor's `end` for another reason than the game's asking, once its present step is done."""

        def stop() -> None:
            actor, session = live.actor, live.session
            if session.end_reason or actor is None:  # it has ended since, or it never began
                if then is not None:
                    then()
                return
            session.end_reason = reason
            step = live.running = Step("end", str(session), b"")
            live.state = State.ENDING
            live.then = then
            live.touched = self._clock()
            self._calls.call(
                session, step, lambda: call_end(actor, b"", reason), functools.partial(self._finish, live, step)
            )

        live.stop = stop
        self._next(live)

    def _do_close(self, live: LiveSession, step: Step, outcome: Outcome) -> None:
        reason = live.session.end_reason
        if reason == "asked":
            outcome = self._settle(live, step, outcome)
        else:
            if self._observer is not None:
                self._observer(step, outcome, live.session)
            if not reason:  # its start has failed, so there is nothing to end
                live.actor = None
            self._close(live, reason or "failed", None, None)
        live.answer_waiters(outcome)
        then, live.then = live.then, None
        if then is not None:
            then()

    def _close(self, live: LiveSession, reason: str, number: int | None, answer: Outcome | None) -> None:
        session = live.session
        live.state = State.ENDED
        if self._live.get(session) is live:
            del self._live[session]
            self._ended.add(session, reason, number, answer, until=self._clock() + self._limits.lease_s)
        if self._journal is not None:
            self._journal.ended(session, reason)
        self.stats.ended[reason] += 1
        session.run_done_callbacks()

    def sweep(self, held_up_s: float = 0.0) -> None:
        """End sessions whose lease has run out, and forget those that ended long ago. Called about once a second.

        `held_up_s` is how long the event loop did not turn since the last call. Leases do not run in that time: steps
        that arrived in it are still to be read.
        """
        now, lease_s = self._clock(), self._limits.lease_s
        if held_up_s > 0:
            for live in (*self._live.values(), *self._replaced):
                live.touched = min(now, live.touched + held_up_s)
            self._ended.prolong(held_up_s)
        for live in [live for live in (*self._live.values(), *self._replaced) if live.touched < now - lease_s]:
            max_leases = _MAX_LEASES if live.stop is None else _MAX_LEASES_UNWANTED
            if live.state is _IDLE:
                self._actions[Event.LEASE][live.state](live, "lease")
            elif live.running is not None and now - live.touched >= lease_s * max_leases:
                self._actions[Event.HUNG][live.state](live, live.running, now)
        self._do_forget(now)
        self.looks.sweep(now)

    def _do_forget(self, now: float) -> None:
        self._ended.forget_until(now)

    def _do_cancel(self, live: LiveSession, step: Step, now: float) -> None:
        """Nothing will come of a step that has run for so long."""
        age_s = now - live.touched
        live.touched = now  # one that does not heed it is cancelled again, after a while
        if live.stop is None and step.kind == "tick":
            self._do_stop(live, "lease")
        self._calls.cancel(step, given_up(step, age_s))

    async def leave(self, grace_s: float = 5.0) -> None:
        """Begin no more sessions, and end those that live; steps that are not done within `grace_s` are cancelled."""
        self._is_leaving = True
        for live in list(self._live.values()):
            if live.state in self._actions[Event.LEAVE]:
                self._actions[Event.LEAVE][live.state](live, "shutdown")
        await self._calls.finish_all(grace_s)
        self._stateless.close()


def lost(step: Step) -> Outcome:
    """The process that had the session is gone."""
    detail = f"the process that held session {step.session} died, and its actor with it; begin a new one"
    return Outcome.refused("session_lost", detail)


def _leaving() -> Outcome:
    return Outcome.refused("shutting_down", "no session begins any more", retry_after_s=1)


def _tell(dones: list[Done], outcome: Outcome) -> None:
    for done in dones:
        done(outcome)
