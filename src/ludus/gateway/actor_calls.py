"""Calls of the users' code: actors' methods and coroutines, their deadlines, and ticks without a session."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ludus.errors import InvalidObservation
from ludus.gateway.actor import ActorLike, MakeActor, as_bytes
from ludus.gateway.live_session import Done, LiveSession
from ludus.gateway.session import FOLLOW, LATEST, Session, current
from ludus.gateway.step import Outcome, Step

if TYPE_CHECKING:
    from ludus.gateway.session_core import SessionStats

__all__ = ["ActorCalls", "Deadlines", "Route", "StatelessActor", "done_within", "failure", "given_up"]

_LOG = logging.getLogger(__name__)
_ENDS_WITHIN_S = 1.0
_CANCELLED_WITHIN_S = 0.5
_NEWEST = {"": FOLLOW}

Route = Callable[[], Mapping[str, str]]


class ActorCalls:
    """The coroutines of one event loop, and the steps they belong to."""

    def __init__(self) -> None:
        self.tasks: dict[asyncio.Future[Any], Step] = {}
        self._cancelled: dict[asyncio.Future[Any], Outcome] = {}  # by us, and what their steps get

    def call(self, session: Session, step: Step, make: Callable[[], Any], finish: Done) -> None:
        """Call an actor, and `finish` with the outcome: at once, or, if it is a coroutine, when that is done."""
        token = current.set(session)
        try:
            output = make()
            if isinstance(output, Awaitable):
                self.later(session, step, output, finish)
                return
            outcome = _answered(session, step, output)
        except BaseException as error:  # whatever an actor raises, its step has failed, and no more
            outcome = failure(step, error)
        finally:
            current.reset(token)
        finish(outcome)

    def later(self, session: Session, step: Step, output: Awaitable[Any], finish: Done) -> None:
        """Have `finish` called when the coroutine is done. It runs in the context of the caller."""
        task = asyncio.get_running_loop().create_task(_without_exit(output))
        self.tasks[task] = step

        def on_done(task: asyncio.Future[Any]) -> None:
            del self.tasks[task]
            cancelled = self._cancelled.pop(task, None) if self._cancelled else None
            try:
                outcome = _answered(session, step, task.result())
            except asyncio.CancelledError as error:
                outcome = cancelled or failure(step, error)  # or by the actor itself
            except _Exited as exited:
                outcome = failure(step, exited.error)
            except BaseException as error:
                outcome = failure(step, error)
            finish(outcome)

        task.add_done_callback(on_done)

    def cancel(self, step: Step, outcome: Outcome) -> None:
        """Cancel the coroutine of a step, if it has one; this is its outcome then."""
        for task in [task for task, its_step in self.tasks.items() if its_step is step]:
            self._cancelled[task] = outcome
            task.cancel()

    async def finish_all(self, grace_s: float) -> None:
        """Wait for all, and for what follows them; what is not done within `grace_s` is cancelled.

        A tick that is cancelled makes way for its actor's end, which has time of its own.
        """
        await self._wait(grace_s)
        self._cancel_all(but_ends=True)
        await self._wait(_ENDS_WITHIN_S)
        self._cancel_all()
        await self._wait(_CANCELLED_WITHIN_S)

    async def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self.tasks and (left := until - time.monotonic()) > 0:
            await asyncio.wait(list(self.tasks), timeout=left)

    def _cancel_all(self, *, but_ends: bool = False) -> None:
        for step in list(self.tasks.values()):
            if step.kind != "end" or not but_ends:
                self.cancel(step, Outcome.refused("shutting_down", "the server left before the actor was done"))


def _answered(session: Session, step: Step, output: Any) -> Outcome:
    """Raises `TypeError` for what cannot be sent."""
    is_stateless = step.kind is None
    return Outcome(as_bytes(output, "tick" if is_stateless else str(step.kind)), None if is_stateless else session)


class _Exited(Exception):
    """An actor raised an error that would end the event loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def _without_exit(output: Awaitable[Any]) -> Any:
    """A task that raises one of these two ends the event loop that runs it, and all sessions with it."""
    try:
        return await output
    except (SystemExit, KeyboardInterrupt) as error:
        raise _Exited(error) from error


def failure(step: Step, error: BaseException) -> Outcome:
    """An actor raised: the game gets an id, under which the log has the traceback; of its own mistake, the sentence."""
    if isinstance(error, InvalidObservation):
        return Outcome.refused("invalid_observation", f"{step.kind or 'stateless tick'}: {error}")
    text = "".join(traceback.format_exception(error))
    return _failed(step, f"raised {type(error).__name__}; the server's log has more under the id", text)


def given_up(step: Step, after_s: float) -> Outcome:
    """An actor was not done for so long that its step is cancelled."""
    return _failed(step, f"was not done after {after_s:.0f} s, and was cancelled", "")


def _failed(step: Step, what: str, text: str) -> Outcome:
    number = uuid.uuid4().hex[:16]
    kind = step.kind or "stateless tick"
    _LOG.error("%s of session %r %s, id %s:\n%s", kind, step.session, what.partition(";")[0], number, text)
    return Outcome.refused("actor_failed", f"{kind} {what}", id=number)


class StatelessActor:
    """Runs ticks without a session, on one actor that all of them share.

    Each tick is run under a `Session` of its own, so that models play what `route` says, and report what that was.
    """

    def __init__(self, make_actor: MakeActor, calls: ActorCalls, route: Route | None) -> None:
        self._make_actor = make_actor
        self._calls = calls
        self._route = route
        self._last: Session | None = None
        self.actor: ActorLike | None = None

    def tick(self, step: Step, finish: Callable[[Outcome, Session], None]) -> None:
        session = Session(step.session, wants=self._wants(step))

        def tick() -> Any:
            if self.actor is None:
                self.actor = self._make_actor()
            return self.actor.tick(step.data)

        def done(outcome: Outcome) -> None:
            last, self._last = self._last, session  # what the next one needs, too, is held until it has it
            if last is not None:
                last.run_done_callbacks()
            finish(outcome, session)

        self._calls.call(session, step, tick, done)

    def _wants(self, step: Step) -> Mapping[str, str]:
        if self._route is None and not step.wants:
            return _NEWEST
        wants = step.wants if "" in step.wants or self._route is None else {**self._route(), **step.wants}
        follows = {model: FOLLOW if want == LATEST else want for model, want in wants.items()}  # that is the same here
        return {**_NEWEST, **follows}

    def close(self) -> None:
        """No tick comes any more."""
        if self._last is not None:
            self._last.run_done_callbacks()
            self._last = None


class Deadlines:
    """What games get that do not wait any longer: of steps of `live` sessions, and of stateless ticks."""

    def __init__(self, live: Mapping[str, LiveSession], stateless: StatelessActor, stats: SessionStats) -> None:
        self._live = live
        self._stateless = stateless
        self._stats = stats

    def timely(self, step: Step, done: Done) -> Done:
        """A `done` that does not wait for the actor longer than the game does."""
        assert step.deadline_s is not None
        return done_within(step.deadline_s, done, lambda: self._missed(step))

    def _missed(self, step: Step) -> Outcome:
        """In place of an answer that is late: the actor's fallback, or a refusal.

        A fallback is the answer to its number from then on; so the repetition of a step speaks for the step itself.
        """
        live = self._live.get(step.session) if step.kind is not None else None
        running = live.running if live is not None and step.number is not None else None
        missing = running if running is not None and running.number == step.number else step
        if missing.missed is not None and not missing.missed.code:
            return missing.missed
        missing.missed = outcome = self._fall_back(missing, live, step.deadline_s or 0.0)
        return outcome

    def _fall_back(self, step: Step, live: LiveSession | None, after_s: float) -> Outcome:
        actor = self._stateless.actor if step.kind is None else live.actor if live is not None else None
        fallback = getattr(actor, "fallback", None) if step.kind in ("tick", None) else None
        if fallback is None:
            return Outcome.refused("deadline_exceeded", f"the actor was not done in {after_s * 1e3:.0f} ms; it goes on")
        try:
            outcome = Outcome(as_bytes(fallback(step.data), "fallback"), live.session if live is not None else None)
        except BaseException as error:
            return failure(step, error)
        self._stats.num_fallbacks += 1
        return outcome


def done_within(seconds: float, done: Done, missed: Callable[[], Outcome]) -> Done:
    """A `done` that is called by a timer, with what `missed` makes, if it was not called before."""
    is_late = False

    def miss() -> None:
        nonlocal is_late
        is_late = True
        done(missed())

    timer = asyncio.get_running_loop().call_later(seconds, miss)

    def once(outcome: Outcome) -> None:
        timer.cancel()
        if not is_late:
            done(outcome)

    return once
