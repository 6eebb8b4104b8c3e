"""Ticks without a session, on an actor that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus.gateway.actor import ActorLike, MakeActor
from ludus.gateway.running import Running
from ludus.gateway.session import FOLLOW, LATEST, Session, current
from ludus.gateway.step import Answer, Step

__all__ = ["Stateless"]

_NEWEST = {"": FOLLOW}


class Stateless:
    """Each tick is run under a `Session` of its own, so that models play what `route` says, and tell what that was."""

    def __init__(self, make_actor: MakeActor, running: Running, route: Callable[[], Mapping[str, str]] | None) -> None:
        self._make_actor = make_actor
        self._running = running
        self._route = route
        self._last: Session | None = None
        self.actor: ActorLike | None = None

    def tick(self, step: Step, finish: Callable[[Answer, Session], None]) -> None:
        session = Session(step.session, wants=self._wants(step))

        def tick() -> Any:
            if self.actor is None:
                self.actor = self._make_actor()
            return self.actor.tick(step.data)

        def done(answer: Answer) -> None:
            last, self._last = self._last, session  # what the next one needs, too, is held until it has it
            if last is not None:
                last.run_done_callbacks()
            finish(answer, session)

        token = current.set(session)
        try:
            self._running.call(step, tick, done)
        finally:
            current.reset(token)

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
