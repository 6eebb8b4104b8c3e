"""One step of a session, and its answer: what the protocol's requests become inside. docs/protocol.md has the words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

__all__ = ["EMPTY", "PROBLEMS", "Answer", "BadStep", "Step", "check_id", "problem", "success"]

_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,128}")
_VERSION = re.compile(rb"[A-Za-z0-9_.-]{1,128}")
_MAX_NUMBER = 2**63 - 1
_MAX_DEADLINE_MS = 600_000
_RARE = frozenset((b"run", b"deadline_ms", b"deadline-ms", b"model", b"version"))
_MAX_IDS = 65536
_ids: dict[bytes, str] = {}  # those that were found good lately
_KINDS = {b"start": "start", b"tick": "tick", b"end": "end", b"stop": "end"}

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
    "not_implemented": (501, "the request needs something that the server does not have"),
    "overloaded": (503, "the server has no room"),
    "shutting_down": (503, "the server is leaving"),
    "deadline_exceeded": (504, "the actor was not done in time"),
    "version_not_supported": (505, "the server does not speak this version of HTTP"),
}
"""By code: the status and the title. Codes never change their meaning."""

EMPTY: Mapping[bytes, bytes] = MappingProxyType({})
NOTHING: Mapping[str, str] = MappingProxyType({})


class BadStep(ValueError):
    """A header is malformed or missing; the text tells which."""


class Step:
    """A request to `/step`. An ordinary class: one is made for every request, and dataclasses take twice as long."""

    __slots__ = ("data", "deadline_s", "kind", "missed", "number", "run", "session", "signature", "wants")

    def __init__(
        self,
        kind: str | None,
        session: str,
        data: bytes,
        number: int | None = None,
        run: str = "",
        deadline_s: float | None = None,
        wants: Mapping[str, str] = NOTHING,
        signature: str = "",
    ) -> None:
        self.kind = kind  # start, tick, end; `None`: a stateless tick
        self.session = session
        self.data = data
        self.number = number
        self.run = run
        self.deadline_s = deadline_s
        self.wants = wants  # what a start or a stateless tick plays, by model; "" stands for all models
        self.signature = signature  # its time and its token, once they were found good
        self.missed: Answer | None = None  # what was answered when its deadline passed

    @property
    def signed_ms(self) -> int:
        """When it was signed, by the clock of who signed it; 0 if it was not."""
        return int(self.signature.partition(" ")[0]) if self.signature else 0

    @classmethod
    def parse(cls, headers: Mapping[bytes, bytes], data: bytes) -> Step:
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
                raise BadStep(f"step_kind {_show(word)} is none of start, tick, end, stop")
            if name is None:
                raise BadStep(f"a {kind} needs the header session")
        session = ""
        if name is not None:
            session = _ids.get(name) or _remember_id(name)
        number = None if digits is None else _integer(digits, "step", 0, _MAX_NUMBER)
        step = cls(kind, session, data, number)
        if not is_usual and not _RARE.isdisjoint(headers):
            step._parse_rare(headers)
        return step

    def _parse_rare(self, headers: Mapping[bytes, bytes]) -> None:
        get = headers.get
        run = get(b"run")
        if run is not None:
            self.run = check_id(run, "run")
        deadline = _either(headers, b"deadline_ms", b"deadline-ms")
        if deadline is not None:
            self.deadline_s = _integer(deadline, "deadline_ms", 1, _MAX_DEADLINE_MS) / 1e3
        model = get(b"model")
        name = check_id(model, "model") if model is not None else ""
        version = get(b"version")
        if version is not None:
            if not _VERSION.fullmatch(version):
                raise BadStep(f"version {_show(version)} is no number, tag, latest or follow")
            self.wants = {name: version.decode()}


class Answer:
    """What the game gets. `code` is a problem's; a success has none."""

    __slots__ = ("body", "code", "head", "headers", "status")

    def __init__(
        self, status: int, body: bytes, code: str = "", headers: Mapping[bytes, bytes] = EMPTY, head: bytes = b""
    ) -> None:
        self.status = status
        self.body = body
        self.code = code
        self.headers = headers
        self.head = head  # of a success, if its session has it ready: the response up to the number of its bytes


def success(body: bytes) -> Answer:
    return Answer(200, body)


def problem(code: str, detail: str, *, headers: Mapping[bytes, bytes] = EMPTY, **members: Any) -> Answer:
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


def _remember_id(name: bytes) -> str:
    if len(_ids) >= _MAX_IDS:
        _ids.clear()
    session = _ids[name] = check_id(name, "session")
    return session


def _older_names(headers: Mapping[bytes, bytes]) -> tuple[bytes | None, bytes | None]:
    """`session` and `step_kind`, whichever of their names they have."""
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


def check_id(value: bytes, what: str) -> str:
    """An id as text. Raises `BadStep`."""
    if not _ID.fullmatch(value):
        raise BadStep(f"{what} {_show(value)} is not 1 to 128 characters of A-Z a-z 0-9 _ . : -")
    return value.decode()


def _integer(value: bytes, what: str, least: int, most: int) -> int:
    number = int(value) if value.isdigit() and len(value) <= 19 else -1
    if not least <= number <= most:
        raise BadStep(f"{what} {_show(value)} is not a whole number from {least} to {most}")
    return number


def _show(value: bytes) -> str:
    text = value[:64].decode("ascii", "backslashreplace")
    return repr(text + ("…" if len(value) > 64 else ""))
