"""Steps and outcomes as gRPC has them: messages, statuses, trailing metadata. docs/protocol.md has the words."""

from __future__ import annotations

import re
from typing import Any

from ludus.gateway.step import BadStep, Outcome, Step, check_id, show
from ludus.grpc.library import StatusCode
from ludus.grpc.protos.game_pb2 import END, START, STATELESS, TICK, StepReply
from ludus.grpc.protos.messages_pb2 import Problem
from ludus.grpc.status import clip

__all__ = [
    "CODE_KEY",
    "PROBLEM_KEY",
    "SERVICE",
    "STATUSES",
    "parse_step",
    "problem_of",
    "reply_of",
    "signed_fields",
    "status_of",
]

SERVICE = "ludus.game.GameService"
CODE_KEY = "ludus-code"
PROBLEM_KEY = "ludus-problem-bin"
STATUSES = {
    "bad_request": StatusCode.INVALID_ARGUMENT,
    "unauthorised": StatusCode.UNAUTHENTICATED,
    "replayed": StatusCode.UNAUTHENTICATED,
    "unknown_session": StatusCode.NOT_FOUND,
    "already_started": StatusCode.ALREADY_EXISTS,
    "out_of_order": StatusCode.FAILED_PRECONDITION,
    "session_lost": StatusCode.ABORTED,
    "invalid_observation": StatusCode.INVALID_ARGUMENT,
    "actor_failed": StatusCode.UNKNOWN,
    "server_failed": StatusCode.INTERNAL,
    "overloaded": StatusCode.RESOURCE_EXHAUSTED,
    "shutting_down": StatusCode.UNAVAILABLE,
    "deadline_exceeded": StatusCode.DEADLINE_EXCEEDED,
}
"""By code. The codes of docs/protocol.md that are of HTTP itself have none here: gRPC says those in its own way."""

_KINDS: dict[int, str | None] = {STATELESS: None, START: "start", TICK: "tick", END: "end"}
_VERSION = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_MAX_NUMBER = 2**63 - 1
_MAX_DEADLINE_MS = 600_000
_MAX_IDS = 65536
_ids: set[str] = set()  # recently checked
_DETAIL_BYTES = 1500  # of a problem in metadata, which a client takes 8 KiB of


def parse_step(request: Any, kind: int | None) -> Step:
    """The step of a `StepRequest`; `kind` is that of the method, if that has one. Raises `BadStep`."""
    if kind is None:
        kind = request.kind
        if kind not in _KINDS:
            raise BadStep(f"kind {kind} is none of STATELESS, START, TICK, END")
    elif request.kind and request.kind != kind:
        raise BadStep("the field kind is another than that of the method")
    word, name = _KINDS[kind], request.session
    if name not in _ids and (name or word is not None):
        _remember_id(name)
    number = request.step if request.HasField("step") else None
    if number is not None and number > _MAX_NUMBER:
        raise BadStep(f"step {number} is not a whole number from 0 to {_MAX_NUMBER}")
    step = Step(word, name, request.data, number)
    if request.HasField("run"):
        step.run = check_id(request.run.encode(), "run")
    if request.HasField("deadline_ms"):
        if not 1 <= request.deadline_ms <= _MAX_DEADLINE_MS:
            raise BadStep(f"deadline_ms {request.deadline_ms} is not a whole number from 1 to {_MAX_DEADLINE_MS}")
        step.deadline_s = request.deadline_ms / 1e3
    model = check_id(request.model.encode(), "model") if request.HasField("model") else ""
    if request.HasField("version"):
        version = request.version
        if not _VERSION.fullmatch(version):
            raise BadStep(f"version {show(version.encode())} is no number, tag, latest or follow")
        step.wants = {model: version}
    return step


def _remember_id(name: str) -> None:
    check_id(name.encode(), "session")
    if len(_ids) >= _MAX_IDS:
        _ids.clear()
    _ids.add(name)


def signed_fields(request: Any, step: Step) -> dict[bytes, bytes]:
    """What stands for the headers that a signature is made of, and that it is itself."""
    fields = {b"step_kind": (step.kind or "").encode()}
    for name in ("step", "run", "model", "version", "deadline_ms"):
        if request.HasField(name):
            fields[name.encode()] = str(getattr(request, name)).encode()
    if request.HasField("signature"):
        signature = request.signature
        fields[b"key"], fields[b"token"] = signature.key.encode(), signature.token.encode()
        fields[b"time"] = str(signature.time_ms).encode()
    return fields


def reply_of(outcome: Outcome) -> bytes:
    """Of an answered step, or of a refused one in a stream."""
    if outcome.code:
        reply = StepReply(problem=problem_of(outcome))
    else:
        reply = StepReply(data=outcome.body, session=outcome.session)
        if outcome.versions:  # an empty map costs as much as the rest of the reply
            reply.versions.update(outcome.versions)
    data: bytes = reply.SerializeToString()
    return data


def problem_of(outcome: Outcome) -> Any:
    members = outcome.members
    return Problem(
        code=outcome.code,
        detail=clip(outcome.detail, _DETAIL_BYTES),
        retry_after_s=outcome.retry_after_s,
        expected=members.get("expected"),
        id=members.get("id", ""),
    )


def status_of(outcome: Outcome) -> tuple[StatusCode, str, tuple[tuple[str, Any], ...]]:
    """How a unary call ends that is refused: its status, details and trailing metadata."""
    trailing = ((CODE_KEY, outcome.code), (PROBLEM_KEY, problem_of(outcome).SerializeToString()))
    return STATUSES[outcome.code], clip(outcome.detail), trailing
