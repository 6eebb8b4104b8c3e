"""The actor: what a user writes, one object for each session.

    class Echo(Actor):
        def start(self, session, data): ...
        async def tick(self, data): return data
        def end(self, data): ...

Each method may be a coroutine. What it returns is sent to the game: bytes, a str, or nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ludus.gateway.session import Session

__all__ = ["Actor", "ActorLike", "MakeActor", "Output", "as_bytes", "call_end"]

Output = bytes | bytearray | memoryview | str | None
Answered = Output | Awaitable[Output]


class ActorLike(Protocol):
    """What an actor must have. It need not derive from `Actor`, and may also have `fallback(data)`."""

    def start(self, session: Session, data: bytes) -> Answered: ...

    def tick(self, data: bytes) -> Answered: ...

    def end(self, data: bytes) -> Answered: ...


MakeActor = Callable[[], ActorLike]


class Actor:
    """A base for actors: `start` and `end` that do nothing.

    Constructed with what `serve` was given, once for each session, before its `start`. One step runs at a time. What
    is not a coroutine holds up all other sessions of its process while it runs, so it should take microseconds.
    `fallback(data)`, if there is one, answers in place of a tick that missed its deadline; it is not a coroutine.
    """

    def start(self, session: Session, data: bytes) -> Answered:
        """The session begins. `session` is its id, a str; it also has `run`, `versions` and `end_reason`."""
        return b""

    def tick(self, data: bytes) -> Answered:
        """One step."""
        raise NotImplementedError(f"{type(self).__name__} must define tick")

    def end(self, data: bytes) -> Answered:
        """The session is over: the game said so, with `data`, or one of the other reasons holds and there is no data.

        Why is in `session.end_reason`; an `end(self, data, reason)` is given it, by its name or by its place.
        """
        return b""


def call_end(actor: ActorLike, data: bytes, reason: str) -> Any:
    """Call `end`, with the reason if it takes one."""
    end: Any = actor.end
    way = _ways.get(type(actor))
    if way is None:
        way = _ways[type(actor)] = _way_of_reason(end)
    if way == "named":
        return end(data, reason=reason)
    return end(data, reason) if way == "second" else end(data)


_ways: dict[type, str] = {}  # by class: how its `end` takes the reason


def _way_of_reason(end: Any) -> str:
    """`named`, `second` (by its place, after the data) or `none`."""
    try:
        parameters = list(inspect.signature(end).parameters.values())
    except ValueError:  # compiled, and it does not tell
        return "none"
    if any(each.kind is each.VAR_KEYWORD or (each.name == "reason" and _can_be_named(each)) for each in parameters):
        return "named"
    second = parameters[1] if len(parameters) > 1 else None
    if second is None or second.kind is second.KEYWORD_ONLY:
        return "none"
    return "second" if second.name == "reason" or second.default is second.empty else "none"


def _can_be_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def as_bytes(output: Any, what: str) -> bytes:
    """What is sent to the game. Raises `TypeError` for anything that is neither bytes nor text."""
    if type(output) is bytes:
        return output
    if output is None:
        return b""
    if isinstance(output, str):
        return output.encode()
    if isinstance(output, bytes | bytearray | memoryview):
        return bytes(output)
    raise TypeError(f"{what} returned a {type(output).__name__}; bytes or a str can be sent to the game")
