"""The server under examination, as the rules see it: steps of sessions, and what is expected of their answers."""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ludus.gateway.auth import sign
from ludus.gateway.client import Place
from ludus.gateway.conformance.wire import Failed, Reply, Wire, request_bytes
from ludus.gateway.http.wire import PROBLEMS

__all__ = ["Play", "Settings", "Subject", "expect"]

EMPTY: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is known of the server. The limits are those of the protocol by default.

    `data` is sent with each step: something that the actor takes. `lease_s`: the server's lease; without it the rule on
    leases is skipped. `slow`: wait until the server cuts off a slow request, after `request_s`.
    """

    token: str | None = None
    secret: str | None = None
    key: str = "conformance"
    data: bytes = b"conformance"
    timeout_s: float = 10.0
    lease_s: float | None = None
    slow: bool = False
    request_s: float = 10.0
    max_header_bytes: int = 16 * 1024
    max_headers: int = 64
    max_body_bytes: int = 16 * 1024 * 1024


class Subject:
    """Makes connections and requests. One of another door makes its own of `reach`, `connect`, `request` and `send`."""

    _place_of: Callable[[str], Any] = Place

    def __init__(self, url: str, settings: Settings, *, context: ssl.SSLContext | None = None) -> None:
        self.place = self._place_of(url)
        self.settings = settings
        self._context = context
        self._signed_ms = 0

    def reach(self) -> None:
        """Raises `OSError` if nothing listens there."""
        self.connect().close()

    def connect(self, *, timeout_s: float | None = None) -> Wire:
        return Wire(self.place, timeout_s=timeout_s or self.settings.timeout_s, context=self._context)

    def play(self, session: str | None = None, *, run: str | None = None) -> Play:
        """A session, not yet started."""
        return Play(self, session or f"conformance-{uuid.uuid4().hex}", run=run)

    def signed(self, headers: dict[str, str], data: bytes, *, time_ms: int | None = None) -> dict[str, str]:
        """The headers with the token, or a signature, that the server wants."""
        settings = self.settings
        if settings.token is not None:
            return {**headers, "authorization": f"Bearer {settings.token}"}
        if settings.secret is None:
            return headers
        return self.with_signature(headers, data, time_ms=time_ms)

    def with_signature(self, headers: dict[str, str], data: bytes, *, time_ms: int | None = None) -> dict[str, str]:
        settings = self.settings
        if time_ms is None:
            time_ms = self._signed_ms = max(int(time.time() * 1e3), self._signed_ms + 1)
        lower = {name.lower().replace("-", "_"): value for name, value in headers.items()}
        token = sign(
            settings.secret or "",
            key=settings.key,
            time_ms=time_ms,
            session=lower.get("session", lower.get("game_id", "")),
            step_kind=lower.get("step_kind", ""),
            step=lower.get("step", ""),
            data=data,
            run=lower.get("run"),
            model=lower.get("model"),
            version=lower.get("version"),
            deadline_ms=lower.get("deadline_ms"),
        )
        return {**headers, "key": settings.key, "time": str(time_ms), "token": token}

    def can_send(self, headers: Mapping[str, str]) -> bool:
        """Whether the protocol has a way to say this, right or wrong."""
        return True

    def request(self, headers: dict[str, str], data: bytes | None = None) -> bytes:
        """A request to `/step`, let in."""
        body = self.settings.data if data is None else data
        return request_bytes(self.place, self.signed(headers, body), body)

    def post(self, headers: dict[str, str], data: bytes | None = None) -> Reply:
        """The same, over a connection of its own."""
        body = self.settings.data if data is None else data
        return self.send(self.signed(headers, body), body)

    def send(self, headers: dict[str, str], data: bytes) -> Reply:
        """A step with these headers and no others."""
        with self.connect() as wire:
            wire.send(request_bytes(self.place, headers, data))
            return wire.read()

    def get(self, path: str, *, method: str = "GET", token: str | None = None) -> Reply:
        given = token if token is not None else self.settings.token
        headers = {"authorization": f"Bearer {given}"} if given else {}
        with self.connect() as wire:
            wire.send(request_bytes(self.place, headers, method=method, path=path))
            return wire.read(is_head=method == "HEAD")

    def check_alive(self) -> None:
        """Whatever was sent, the server goes on."""
        reply = self.get("/healthz")
        if reply.status != 200:
            raise Failed(f"after that, /healthz answers {reply}")


class Play:
    """One session. Each step goes over a connection of its own unless one is given."""

    def __init__(self, subject: Subject, session: str, *, run: str | None = None) -> None:
        self._subject = subject
        self.session = session
        self._run = run

    def headers(self, kind: str, number: int | None = None, extras: Mapping[str, str] = EMPTY) -> dict[str, str]:
        headers = {"session": self.session, "step_kind": kind}
        if number is not None:
            headers["step"] = str(number)
        if kind == "start" and self._run is not None:
            headers["run"] = self._run
        return {**headers, **extras}

    def step(
        self,
        kind: str,
        number: int | None = None,
        extras: Mapping[str, str] = EMPTY,
        *,
        wire: Wire | None = None,
        data: bytes | None = None,
    ) -> Reply:
        headers = self.headers(kind, number, extras)
        if wire is None:
            return self._subject.post(headers, data)
        wire.send(self._subject.request(headers, data))
        return wire.read()

    def start(self, number: int | None = 0, *, wire: Wire | None = None) -> Reply:
        """Begin, and have that succeed."""
        reply = self.step("start", number, wire=wire)
        if reply.status == 500:
            raise Failed(f"the actor does not take what is sent; give data that it takes. It answers {reply}")
        return expect(reply, 200, what="start")

    def end(self, number: int | None = None) -> Reply:
        return self.step("end", number)


def expect(reply: Reply, status: int, code: str | None = None, *, what: str = "it") -> Reply:
    """Raises `Failed` unless the reply has this status and, if it is a problem, is one as it should be."""
    if reply.status != status:
        raise Failed(f"{what} is answered {reply}, not {status}{f' {code}' if code else ''}")
    if status != 200:
        check_problem(reply, code)
    return reply


def check_problem(reply: Reply, code: str | None = None) -> None:
    """The shape of a problem document."""
    if reply.content_type != "application/problem+json":
        raise Failed(f"a problem has the type {reply.content_type!r}, not application/problem+json: {reply}")
    content = reply.json()
    if not isinstance(content, dict):
        raise Failed(f"a problem is no JSON object: {reply}")
    missing = [name for name in ("type", "code", "title", "status", "detail") if name not in content]
    if missing:
        raise Failed(f"a problem has no {', '.join(missing)}: {reply}")
    found = content["code"]
    if code is not None and found != code:
        raise Failed(f"the problem is {found}, not {code}: {reply}")
    if content["type"] != f"urn:ludus:problem:{found}":
        raise Failed(f"a problem's type is {content['type']!r}, not urn:ludus:problem:{found}")
    if content["status"] != reply.status:
        raise Failed(f"a problem says status {content['status']} but is sent as {reply.status}")
    if PROBLEMS.get(found, (reply.status,))[0] != reply.status:
        raise Failed(f"{found} is sent as {reply.status}, not {PROBLEMS[found][0]}")
