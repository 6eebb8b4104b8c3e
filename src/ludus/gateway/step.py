"""One step of a session, and its outcome: what the requests of every protocol become inside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ludus.gateway.session import Session

__all__ = ["BadStep", "Outcome", "Step", "check_id", "show"]

_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,128}")
_NONE: Mapping[str, Any] = MappingProxyType({})


class BadStep(ValueError):
    """A request is no step: something is malformed or missing; the text says what."""


class Step:
    """One request of a game. An ordinary class: one is made for every request, and dataclasses take twice as long."""

    __slots__ = ("data", "deadline_s", "kind", "missed", "number", "run", "session", "signature", "wants")

    def __init__(
        self,
        kind: str | None,
        session: str,
        data: bytes,
        number: int | None = None,
        run: str = "",
        deadline_s: float | None = None,
        wants: Mapping[str, str] = _NONE,
        signature: str = "",
    ) -> None:
        self.kind = kind  # start, tick, end; `None`: a stateless tick
        self.session = session
        self.data = data
        self.number = number
        self.run = run
        self.deadline_s = deadline_s
        self.wants = wants  # what a start or a stateless tick plays, by model; "" stands for all models
        self.signature = signature  # its time and its token, once verified
        self.missed: Outcome | None = None  # what the game got when the deadline passed

    @property
    def signed_ms(self) -> int:
        """When it was signed, by the signer's clock; 0 if it was not."""
        return int(self.signature.partition(" ")[0]) if self.signature else 0


class Outcome:
    """What became of a step: the actor's answer, or a `code` that says why there is none.

    A door makes its protocol's bytes of it. The same outcome gives the same bytes, so nothing in it is changed later:
    `versions` is the mapping that the session had at the time, and `Session.pin` makes a new one.
    """

    __slots__ = ("body", "code", "detail", "members", "retry_after_s", "session", "versions")

    def __init__(self, body: bytes, session: Session | None = None) -> None:
        self.body = body
        self.code = ""  # of docs/protocol.md; empty: answered
        self.detail = ""
        self.members: Mapping[str, Any] = _NONE  # what else a refusal says: `expected`, `id`
        self.retry_after_s = 0  # when the same step may be sent again; 0: not said
        self.session: str | None = session  # `None`: of a stateless tick, or refused
        self.versions: Mapping[str, int] = _NONE if session is None else session.versions

    @classmethod
    def refused(cls, code: str, detail: str, *, retry_after_s: int = 0, **members: Any) -> Outcome:
        """There is no answer, for the reason `code`; `members` are for programs, `detail` is for people."""
        self = cls(b"")
        self.code, self.detail, self.retry_after_s, self.members = code, detail, retry_after_s, members
        return self

    def to_message(self) -> tuple[Any, ...]:
        """As plain data, for another worker."""
        said = self.body, self.code, self.detail, self.retry_after_s, dict(self.members)
        return *said, None if self.session is None else str(self.session), dict(self.versions)

    @classmethod
    def from_message(cls, message: tuple[Any, ...]) -> Outcome:
        body, code, detail, retry_after_s, members, session, versions = message
        self = cls.refused(code, detail, retry_after_s=retry_after_s, **members)
        self.body, self.session, self.versions = body, session, versions
        return self


def check_id(value: bytes, what: str) -> str:
    """An id as text. Raises `BadStep`."""
    if not _ID.fullmatch(value):
        raise BadStep(f"{what} {show(value)} is not 1 to 128 characters of A-Z a-z 0-9 _ . : -")
    return value.decode()


def show(value: bytes) -> str:
    """For messages: what a game sent, shortened."""
    text = value[:64].decode("ascii", "backslashreplace")
    return repr(text + ("…" if len(value) > 64 else ""))
