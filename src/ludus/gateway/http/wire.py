"""Steps and outcomes as HTTP has them: headers, statuses, problem documents, bytes. docs/protocol.md has the words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from ludus.gateway.step import BadStep, Outcome, Step, check_id, show

__all__ = ["PROBLEMS", "RETRY", "Answer", "answer_of", "head_of", "parse_step", "problem", "response"]

PROBLEMS: dict[str, tuple[int, str]] = {
    "bad_request": (400, "the request is malformed"),
    "unauthorised": (401, "the request is not authorised"),
    "replayed": (401, "this signature was used before"),
    "not_found": (404, "there is no such path"),
    "unknown_session": (404, "no such session is live"),
    "method_not_allowed": (405, "the path takes another method"),
    "timeout": (408, "the request did not arrive in time"),
    "already_started": (409, "the session is live already"),
    "out_of_order": (409, "the step's number is not the next one"),
    "session_lost": (410, "the session was lost with its process"),
    "too_large": (413, "the request is larger than the server takes"),
    "invalid_observation": (422, "the actor cannot use what the game sent"),
    "actor_failed": (500, "the actor raised an error"),
    "server_failed": (500, "the server itself failed"),
    "not_implemented": (501, "the request needs something that the server does not have"),
    "overloaded": (503, "the server has no room"),
    "shutting_down": (503, "the server is leaving"),
    "deadline_exceeded": (504, "the actor was not done in time"),
    "version_not_supported": (505, "the server does not speak this version of HTTP"),
}
"""By code: the status and the title. Codes never change their meaning."""

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    410: b"Gone",
    413: b"Content Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}
_NO_HEADERS: Mapping[bytes, bytes] = MappingProxyType({})
RETRY: Mapping[bytes, bytes] = {b"retry-after": b"1"}
_CHALLENGE = {b"www-authenticate": b"Bearer"}
_VERSION = re.compile(rb"[A-Za-z0-9_.-]{1,128}")
_MAX_NUMBER = 2**63 - 1
_MAX_DEADLINE_MS = 600_000
_RARE = frozenset((b"run", b"deadline_ms", b"deadline-ms", b"model", b"version"))
_MAX_IDS = 65536
_ids: dict[bytes, str] = {}  # recently checked
_KINDS = {b"start": "start", b"tick": "tick", b"end": "end", b"stop": "end"}


class Answer:
    """A response, not written out yet. `code` is a problem's; a success has none."""

    __slots__ = ("body", "code", "headers", "status")

    def __init__(self, status: int, body: bytes, code: str = "", headers: Mapping[bytes, bytes] = _NO_HEADERS) -> None:
        self.status = status
        self.body = body
        self.code = code
        self.headers = headers


def problem(code: str, detail: str, *, headers: Mapping[bytes, bytes] = _NO_HEADERS, **members: Any) -> Answer:
    """A problem as RFC 9457 has it, with `members` beside the usual ones."""
    status, title = PROBLEMS[code]
    content = {
        "type": f"urn:ludus:problem:{code}",
        "code": code,
        "title": title,
        "status": status,
        "detail": detail,
        **members,
    }
    return Answer(status, msgspec.json.encode(content), code, headers)


def answer_of(outcome: Outcome) -> Answer:
    """Any outcome. An ordinary answer is written quicker with `head_of`."""
    if outcome.code:
        headers = _CHALLENGE if outcome.code == "unauthorised" else _NO_HEADERS
        if outcome.retry_after_s:
            headers = {b"retry-after": b"%d" % outcome.retry_after_s}
        return problem(outcome.code, outcome.detail, headers=headers, **outcome.members)
    headers = {name.encode(): value.encode() for name, value in _session_headers(outcome).items()}
    return Answer(200, outcome.body, headers=headers)


def _session_headers(outcome: Outcome) -> dict[str, str]:
    headers = {} if outcome.session is None else {"session": outcome.session}
    if outcome.versions:
        headers["version"] = ",".join([f"{model}={number}" for model, number in outcome.versions.items()])
    return headers


def head_of(outcome: Outcome) -> bytes:
    """The response of an answered step up to the number of its bytes: the same as long as the versions are."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in _session_headers(outcome).items()])
    return f"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n{lines}content-length: ".encode()


def response(answer: Answer, persistence: bytes) -> bytes:
    """Written out. `persistence` is the header `connection`, if it is not empty."""
    kind = answer.headers.get(b"content-type") or (
        b"application/problem+json" if answer.code else b"application/octet-stream"
    )
    lines = [b"HTTP/1.1 %d %b" % (answer.status, _REASONS.get(answer.status, b"")), b"content-type: " + kind]
    lines += [b"%b: %b" % item for item in answer.headers.items() if item[0] != b"content-type"]
    lines.append(b"content-length: %d" % len(answer.body))
    if persistence:
        lines.append(b"connection: " + persistence)
    return b"\r\n".join(lines) + b"\r\n\r\n" + answer.body


def parse_step(headers: Mapping[bytes, bytes], data: bytes) -> Step:
    """From headers in lower case. Raises `BadStep`."""
    get = headers.get
    name, word, digits = get(b"session"), get(b"step_kind"), get(b"step")
    usual = (name is not None) + (word is not None) + (digits is not None)
    usual += (b"host" in headers) + (b"content-length" in headers)
    is_usual = usual == len(headers)  # there is nothing else to look for
    if not is_usual:
        name, word = _older_names(headers)
    kind: str | None = None
    if word is not None:
        kind = _KINDS.get(word)
        if kind is None:
            raise BadStep(f"step_kind {show(word)} is none of start, tick, end, stop")
        if name is None:
            raise BadStep(f"a {kind} needs the header session")
    session = ""
    if name is not None:
        session = _ids.get(name) or _remember_id(name)
    number = None if digits is None else _integer(digits, "step", 0, _MAX_NUMBER)
    step = Step(kind, session, data, number)
    if not is_usual and not _RARE.isdisjoint(headers):
        _parse_rare(step, headers)
    return step


def _parse_rare(step: Step, headers: Mapping[bytes, bytes]) -> None:
    run = headers.get(b"run")
    if run is not None:
        step.run = check_id(run, "run")
    deadline = _either(headers, b"deadline_ms", b"deadline-ms")
    if deadline is not None:
        step.deadline_s = _integer(deadline, "deadline_ms", 1, _MAX_DEADLINE_MS) / 1e3
    model = headers.get(b"model")
    name = check_id(model, "model") if model is not None else ""
    version = headers.get(b"version")
    if version is not None:
        if not _VERSION.fullmatch(version):
            raise BadStep(f"version {show(version)} is no number, tag, latest or follow")
        step.wants = {name: version.decode()}


def _remember_id(name: bytes) -> str:
    if len(_ids) >= _MAX_IDS:
        _ids.clear()
    session = _ids[name] = check_id(name, "session")
    return session


def _older_names(headers: Mapping[bytes, bytes]) -> tuple[bytes | None, bytes | None]:
    """`session` and `step_kind`, under whichever of their names they are there."""
    session = headers.get(b"session")
    older = _either(headers, b"game_id", b"game-id")
    if older is not None:
        if session is not None and session != older:
            raise BadStep("session and game_id differ; give one of them")
        session = older
    return session, _either(headers, b"step_kind", b"step-kind")


def _either(headers: Mapping[bytes, bytes], name: bytes, other: bytes) -> bytes | None:
    value = headers.get(name)
    return headers.get(other) if value is None else value


def _integer(value: bytes, what: str, least: int, most: int) -> int:
    number = int(value) if value.isdigit() and len(value) <= 19 else -1
    if not least <= number <= most:
        raise BadStep(f"{what} {show(value)} is not a whole number from {least} to {most}")
    return number
