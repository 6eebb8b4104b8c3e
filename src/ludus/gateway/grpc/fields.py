"""Headers of docs/protocol.md as fields of messages: for clients, which make headers, and for conformance rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ludus.gateway.client import GameError
from ludus.gateway.grpc.wire import PROBLEM_KEY
from ludus.gateway.http.wire import PROBLEMS
from ludus.grpc.library import DecodeError
from ludus.grpc.protos.game_pb2 import END, START, STATELESS, TICK, Signature, StepRequest
from ludus.grpc.protos.messages_pb2 import Problem

__all__ = ["METHODS", "Inexpressible", "error_of", "problem_in", "request_of"]

METHODS = {STATELESS: "Stateless", START: "Start", TICK: "Tick", END: "End"}
_KINDS = {None: STATELESS, "start": START, "tick": TICK, "end": END}
_TEXTS = ("session", "run", "model", "version")
_WHOLE = {"step": 2**64, "deadline_ms": 2**32}
_MAX_TIME = 2**64
_OTHERS = ("step_kind", "authorization", "key", "time", "token")


class Inexpressible(ValueError):
    """A header has a value that its field cannot have."""


def request_of(headers: Mapping[str, str], data: bytes) -> Any:
    """A `StepRequest`. A bearer token is none of its fields but metadata of the call. Raises `Inexpressible`."""
    kind = headers.get("step_kind")
    if kind not in _KINDS or not set(headers) <= {*_TEXTS, *_WHOLE, *_OTHERS}:
        raise Inexpressible(f"no message has these headers: {dict(headers)}")
    request = StepRequest(kind=_KINDS[kind], data=data)
    for name in _TEXTS:
        if name in headers:
            setattr(request, name, headers[name])
    for name, bound in _WHOLE.items():
        if name in headers:
            setattr(request, name, _whole(headers[name], bound))
    if not {"key", "time", "token"}.isdisjoint(headers):
        request.signature.CopyFrom(
            Signature(
                key=headers.get("key", ""),
                time_ms=_whole(headers.get("time", "0"), _MAX_TIME),
                token=headers.get("token", ""),
            )
        )
    return request


def _whole(text: str, bound: int) -> int:
    if not text.isdecimal() or int(text) >= bound:
        raise Inexpressible(f"{text!r} is no number that the field can have")
    return int(text)


def problem_in(metadata: Iterable[tuple[str, Any]]) -> Any:
    """The `Problem` that a call has ended with; `None` if there is none."""
    for key, value in metadata:
        if key == PROBLEM_KEY:
            try:
                return Problem.FromString(value)
            except DecodeError:  # of a server that is not Ludus's: its status has to do
                return None
    return None


def error_of(problem: Any) -> GameError:
    """As the HTTP client would raise it; the status is HTTP's."""
    members: dict[str, Any] = {"expected": problem.expected} if problem.HasField("expected") else {}
    if problem.id:
        members["id"] = problem.id
    return GameError(problem.code, PROBLEMS.get(problem.code, (500, ""))[0], problem.detail, members)
