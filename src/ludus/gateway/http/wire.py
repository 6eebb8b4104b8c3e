"""Outcomes as HTTP: statuses, headers, problem documents, bytes. Nothing else of the gateway knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from ludus.gateway.step import Outcome

__all__ = ["PROBLEMS", "RETRY", "Answer", "answer_of", "head_of", "problem", "response"]

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
    return Answer(200, outcome.body, headers=_session_headers(outcome.session, outcome.versions))


def _session_headers(session: str | None, versions: Mapping[str, int]) -> Mapping[bytes, bytes]:
    if session is None:
        return _NO_HEADERS
    headers = {b"session": session.encode()}
    if versions:
        headers[b"version"] = ",".join(f"{model}={number}" for model, number in versions.items()).encode()
    return headers


def head_of(outcome: Outcome) -> bytes:
    """The response of an answered step up to the number of its bytes: the same as long as the versions are."""
    data = response(Answer(200, b"", headers=_session_headers(outcome.session, outcome.versions)), b"")
    return data.removesuffix(b"0\r\n\r\n")


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
