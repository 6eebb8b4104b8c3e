"""A session as its actor sees it: an id, a life of the game, the model versions it plays, and why it ended."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Mapping

__all__ = ["FOLLOW", "LATEST", "Session", "current"]

_LOG = logging.getLogger(__name__)
FOLLOW = "follow"
LATEST = "latest"

current: contextvars.ContextVar[Session | None] = contextvars.ContextVar("ludus_session", default=None)
"""The session whose actor runs; models pin their versions to it. A stateless tick has one of its own, without an id.
`None` outside of actors."""


class Session(str):
    """The id itself, a str, with what belongs to it.

    `versions` are those that it plays, by the model's name. A model asks `wanted(name)` what to play, and reports by
    `pin` what that was.
    """

    __slots__ = ("_callbacks", "_wants", "end_reason", "run", "versions")

    run: str  # which life of the game; empty if it does not say
    versions: Mapping[str, int]  # replaced, never changed: an outcome keeps the mapping of its time
    end_reason: str  # empty while it lives
    _wants: Mapping[str, str]
    _callbacks: list[Callable[[], None]]

    def __new__(cls, session: str, *, run: str = "", wants: Mapping[str, str] | None = None) -> Session:
        self = super().__new__(cls, session)
        self.run = run
        self.versions = {}
        self.end_reason = ""
        self._wants = wants or {}
        self._callbacks = []
        return self

    def wanted(self, model: str) -> str | int:
        """What the game asked for: a number, a tag, "latest" or "follow"."""
        want = self._wants.get(model) or self._wants.get("", LATEST)
        return int(want) if want.isdigit() else want

    def play(self, versions: Mapping[str, int]) -> None:
        """Have it want these versions from now on, whatever it plays: for recordings that are played again."""
        self._wants = {**self._wants, **{model: str(number) for model, number in versions.items()}}
        kept = {model: number for model, number in self.versions.items() if versions.get(model, number) == number}
        self.versions = kept  # of the others it pins what it wants when they are used next

    def pin(self, model: str, number: int) -> None:
        """It plays this version of the model from now on."""
        if self.versions.get(model) != number:
            self.versions = {**self.versions, model: number}

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Have it called when the session has ended and its actor with it."""
        self._callbacks.append(callback)

    def run_done_callbacks(self) -> None:
        """For the gateway, once."""
        if not self._callbacks:
            return
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except BaseException:
                _LOG.exception("what was to be done after session %r failed", str(self))
