"""What actors are doing: coroutines that run, answers made of what they return or raise."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any

from ludus.gateway.actor import as_bytes
from ludus.gateway.step import Answer, Step, problem

__all__ = ["Done", "Running", "failure"]

_LOG = logging.getLogger(__name__)

Done = Callable[[Answer], None]


class Running:
    """The coroutines of one event loop."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Future[Any]] = set()

    def call(self, step: Step, make: Callable[[], Any], finish: Done) -> None:
        """Call an actor, and `finish` with the answer: at once, or, if it is a coroutine, when that is done."""
        try:
            output = make()
            if isinstance(output, Awaitable):
                self.later(step, output, finish)
                return
            answer = Answer(200, as_bytes(output, step.kind or "tick"))
        except Exception as error:
            answer = failure(step, error)
        finish(answer)

    def later(self, step: Step, output: Awaitable[Any], finish: Done) -> None:
        """Have `finish` called with the answer when the coroutine is done. It runs in the context of the caller."""
        task: asyncio.Future[Any]
        if type(output) is CoroutineType:
            task = asyncio.get_running_loop().create_task(output)
        else:
            task = asyncio.ensure_future(output)
        self.tasks.add(task)

        def on_done(task: asyncio.Future[Any]) -> None:
            self.tasks.discard(task)
            try:
                answer = Answer(200, as_bytes(task.result(), step.kind or "tick"))
            except asyncio.CancelledError:
                answer = problem("shutting_down", "the server left before the actor was done")
            except Exception as error:
                answer = failure(step, error)
            finish(answer)

        task.add_done_callback(on_done)

    async def finish_all(self, grace_s: float) -> None:
        """Wait for all, and for what follows them; those that are not done within `grace_s` are cancelled."""
        until = time.monotonic() + grace_s
        while self.tasks and time.monotonic() < until:
            await asyncio.wait(list(self.tasks), timeout=until - time.monotonic())
        for _ in range(2):  # a tick that is cancelled makes way for its actor's end
            for task in list(self.tasks):
                task.cancel()
            if self.tasks:
                await asyncio.wait(list(self.tasks), timeout=1.0)


def failure(step: Step, error: BaseException) -> Answer:
    """An actor raised: the game gets an id, under which the log has the traceback."""
    number = uuid.uuid4().hex[:16]
    kind = step.kind or "stateless tick"
    text = "".join(traceback.format_exception(error))
    _LOG.error("%s of session %r failed, id %s:\n%s", kind, step.session, number, text)
    detail = f"{kind} raised {type(error).__name__}; the server's log has more under the id"
    return problem("actor_failed", detail, id=number)
