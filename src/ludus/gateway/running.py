"""What actors are doing: coroutines that run, answers made of what they return or raise."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from ludus.errors import InvalidObservation
from ludus.gateway.actor import as_bytes
from ludus.gateway.step import Answer, Step, problem

__all__ = ["Done", "Running", "failure", "given_up"]

_LOG = logging.getLogger(__name__)
_ENDS_WITHIN_S = 1.0
_CANCELLED_WITHIN_S = 0.5

Done = Callable[[Answer], None]


class Running:
    """The coroutines of one event loop, and the steps they belong to."""

    def __init__(self) -> None:
        self.tasks: dict[asyncio.Future[Any], Step] = {}
        self._cancelled: dict[asyncio.Future[Any], Answer] = {}  # by us, and what is answered then

    def call(self, step: Step, make: Callable[[], Any], finish: Done) -> None:
        """Call an actor, and `finish` with the answer: at once, or, if it is a coroutine, when that is done."""
        try:
            output = make()
            if isinstance(output, Awaitable):
                self.later(step, output, finish)
                return
            answer = Answer(200, as_bytes(output, step.kind or "tick"))
        except BaseException as error:  # whatever an actor raises, its step has failed, and no more
            answer = failure(step, error)
        finish(answer)

    def later(self, step: Step, output: Awaitable[Any], finish: Done) -> None:
        """Have `finish` called with the answer when the coroutine is done. It runs in the context of the caller."""
        task = asyncio.get_running_loop().create_task(_without_exit(output))
        self.tasks[task] = step

        def on_done(task: asyncio.Future[Any]) -> None:
            del self.tasks[task]
            cancelled = self._cancelled.pop(task, None) if self._cancelled else None
            try:
                answer = Answer(200, as_bytes(task.result(), step.kind or "tick"))
            except asyncio.CancelledError as error:
                answer = cancelled or failure(step, error)  # or by the actor itself
            except _Exited as exited:
                answer = failure(step, exited.error)
            except BaseException as error:
                answer = failure(step, error)
            finish(answer)

        task.add_done_callback(on_done)

    def cancel(self, step: Step, answer: Answer) -> None:
        """Cancel the coroutine of a step, if it has one; it is answered by this then."""
        for task in [task for task, its_step in self.tasks.items() if its_step is step]:
            self._cancelled[task] = answer
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
        for task, step in list(self.tasks.items()):
            if step.kind != "end" or not but_ends:
                self._cancelled[task] = problem("shutting_down", "the server left before the actor was done")
                task.cancel()


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


def failure(step: Step, error: BaseException) -> Answer:
    """An actor raised: the game gets an id, under which the log has the traceback; of its own mistake, the sentence."""
    if isinstance(error, InvalidObservation):
        return problem("invalid_observation", f"{step.kind or 'stateless tick'}: {error}")
    text = "".join(traceback.format_exception(error))
    return _failed(step, f"raised {type(error).__name__}; the server's log has more under the id", text)


def given_up(step: Step, after_s: float) -> Answer:
    """An actor was not done for so long that its step is cancelled."""
    return _failed(step, f"was not done after {after_s:.0f} s, and was cancelled", "")


def _failed(step: Step, what: str, text: str) -> Answer:
    number = uuid.uuid4().hex[:16]
    kind = step.kind or "stateless tick"
    _LOG.error("%s of session %r %s, id %s:\n%s", kind, step.session, what.partition(";")[0], number, text)
    return problem("actor_failed", f"{kind} {what}", id=number)
