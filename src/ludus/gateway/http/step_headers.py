"""A step as HTTP has it: the headers of `POST /step`. docs/protocol.md, *Request*."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ludus.gateway.step import BadStep, Step, check_id, show

__all__ = ["parse_step"]

_VERSION = re.compile(rb"[A-Za-z0-9_.-]{1,128}")
_MAX_NUMBER = 2**63 - 1
_MAX_DEADLINE_MS = 600_000
_RARE = frozenset((b"run", b"deadline_ms", b"deadline-ms", b"model", b"version"))
_MAX_IDS = 65536
_ids: dict[bytes, str] = {}  # recently checked
_KINDS = {b"start": "start", b"tick": "tick", b"end": "end", b"stop": "end"}


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
