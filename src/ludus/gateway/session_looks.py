"""The sessions that somebody looks at: how long their last step took, and their last steps as they come.

    looks.newest(50)                   # sessions
    looks.steps("game-1", 32)          # of one

A session that is looked at has a stand-in for its actor, which times the actor's methods and keeps summaries, until
nobody has looked for `_FOR_S`. All other sessions are as they were: steps that nobody looks at cost nothing.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from ludus.gateway.actor import ActorLike, Answered, call_end
from ludus.gateway.live_session import LiveSession
from ludus.gateway.session import Session

__all__ = ["SessionLooks"]

_FOR_S = 10.0
_MOST_SESSIONS = 200  # that are looked at, of one worker
_MOST_STEPS = 64  # kept of each
_MOST_CHARACTERS = 160
_MOST_HELD = 4096  # bytes of a body; of a longer one its length is kept


class SessionLooks:
    """Used from the event loop of the sessions. `live`: those of the `SessionCore`, by id."""

    def __init__(self, live: dict[str, LiveSession], clock: Callable[[], float]) -> None:
        self._live = live
        self._clock = clock
        self._looks: dict[LiveSession, _Look] = {}

    def __len__(self) -> int:
        return len(self._looks)

    def newest(self, most: int) -> dict[str, Any]:
        """The newest sessions, at most so many, and how many there are. `last_s` is `None` before its next step."""
        now = self._clock()
        ids = itertools.islice(reversed(self._live), min(most, _MOST_SESSIONS))
        found = [self._live[each] for each in ids]
        return {"num": len(self._live), "sessions": [self._describe(live, now) for live in found]}

    def steps(self, session: str, most: int = _MOST_STEPS) -> dict[str, Any] | None:
        """A session and its last steps since somebody looks at it, the newest first; `None` if it is not live."""
        live = self._live.get(session)
        if live is None:
            return None
        described = self._describe(live, self._clock())
        look = self._looks.get(live)
        if look is None:
            return {**described, "steps": []}
        if look.steps.maxlen != _MOST_STEPS:
            look.steps = deque(look.steps, maxlen=_MOST_STEPS)
        return {**described, "steps": [each.describe() for each in itertools.islice(reversed(look.steps), most)]}

    def sweep(self, now: float) -> None:
        """Give their actors back to sessions that nobody looks at any more."""
        for live, look in list(self._looks.items()):
            if look.until < now or self._live.get(live.session) is not live:
                del self._looks[live]
                if live.actor is look:
                    live.actor = look.actor

    def _describe(self, live: LiveSession, now: float) -> dict[str, Any]:
        look = self._look(live, now)
        return {
            "session": str(live.session),
            "run": live.session.run,
            "state": live.state.value,
            "age_s": now - live.began,
            "idle_s": now - live.touched,
            "step": max(0, live.expected - 1),
            "waiting": len(live.queue),
            "versions": dict(live.session.versions),
            "last_s": look.steps[-1].seconds if look is not None and look.steps else None,
        }

    def _look(self, live: LiveSession, now: float) -> _Look | None:
        look = self._looks.get(live)
        if look is None:
            if live.actor is None or len(self._looks) >= _MOST_SESSIONS:
                return None
            look = self._looks[live] = _Look(live, live.actor)
            live.actor = look
        look.until = now + _FOR_S
        return look


class _Look:
    """Stands in for the actor of a session."""

    def __init__(self, live: LiveSession, actor: ActorLike) -> None:
        self.actor = actor
        self.until = 0.0
        self.steps: deque[_Seen] = deque(maxlen=1)  # more when somebody looks at this one
        self._live = live

    def __getattr__(self, name: str) -> Any:  # its fallback, if it has one
        return getattr(self.actor, name)

    def start(self, session: Session, data: bytes) -> Answered:
        return self.actor.start(session, data)

    def tick(self, data: bytes) -> Answered:
        return self._run("tick", data, self.actor.tick, data)

    def end(self, data: bytes, reason: str = "asked") -> Answered:
        return self._run("end", data, call_end, self.actor, data, reason)

    def _run(self, kind: str, data: bytes, call: Callable[..., Answered], *args: Any) -> Answered:
        number, began = self._live.expected, time.perf_counter()
        try:
            output = call(*args)
        except BaseException as error:
            self._keep(kind, number, data, began, error)
            raise
        if type(output) is not bytes and isinstance(output, Awaitable):
            return self._wait(kind, number, data, began, output)
        self._keep(kind, number, data, began, output)
        return output

    async def _wait(self, kind: str, number: int, data: bytes, began: float, output: Awaitable[Any]) -> Any:
        try:
            answer = await output
        except BaseException as error:
            self._keep(kind, number, data, began, error)
            raise
        self._keep(kind, number, data, began, answer)
        return answer

    def _keep(self, kind: str, number: int, data: object, began: float, answer: object) -> None:
        now = time.perf_counter()
        versions = self._live.session.versions  # replaced, never changed
        self.steps.append(_Seen(time.time(), kind, number, now - began, _hold(data), _hold(answer), versions))


class _Seen(NamedTuple):
    """One step. It is put in words when somebody asks for it, not when it is played."""

    time: float
    kind: str
    number: int
    seconds: float
    request: object
    answer: object
    versions: Mapping[str, int]

    def describe(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "kind": self.kind,
            "step": self.number,
            "seconds": self.seconds,
            "request": _summarise(self.request),
            "answer": _summarise(self.answer),
            "is_failed": isinstance(self.answer, _Raised),
            "versions": dict(self.versions),
        }


class _Raised(str):
    """The kind of error that an actor raised."""

    __slots__ = ()


def _hold(body: object) -> object:
    """What is kept of a body: itself if it is short, or how long it is."""
    if type(body) is bytes and len(body) <= _MOST_HELD:
        return body
    if isinstance(body, BaseException):
        return _Raised(type(body).__name__)
    if isinstance(body, bytes | bytearray | memoryview | str):
        return len(body) if len(body) > _MOST_HELD else body.encode() if isinstance(body, str) else bytes(body)
    return None


def _summarise(held: object) -> str:
    """A few words of what is in a body: JSON as text, of anything else how long it is."""
    if isinstance(held, _Raised):
        return f"raised {held}; the log has more"
    if isinstance(held, int):
        return f"{held:,} bytes"
    if not isinstance(held, bytes) or not held:
        return "empty"
    try:
        text = json.dumps(_shorten(json.loads(held)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return f"{len(held):,} bytes"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _shorten(value: Any) -> Any:
    """Floats with four digits."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case list():
            return [_shorten(each) for each in value[:32]]
        case dict():
            return {key: _shorten(each) for key, each in itertools.islice(value.items(), 32)}
    return value
