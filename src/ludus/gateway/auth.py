"""Who may call: a bearer token, or a signature made with a secret. docs/protocol.md, *Signatures*."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ludus.gateway.step import BadStep, Outcome, Step, check_id
from ludus.gateway.used_signatures import UsedSignatures

__all__ = ["Auth", "sign"]

_CLOCK_WINDOW_S = 30.0
_TOKEN = re.compile(rb"[0-9A-Fa-f]{64}")


def sign(
    secret: str,
    *,
    key: str,
    time_ms: int,
    session: str,
    step_kind: str,
    step: str,
    data: bytes,
    run: str | None = None,
    model: str | None = None,
    version: str | None = None,
    deadline_ms: str | None = None,
) -> str:
    """The `token` of a request. The last four are headers that are signed if they are there; `None`: they are not."""
    digest = hashlib.sha256(data).hexdigest()
    lines = [key, str(time_ms), session, step_kind, step, digest]
    more = {"run": run, "model": model, "version": version, "deadline_ms": deadline_ms}
    lines += [f"{name}:{value}" for name, value in more.items() if value is not None]
    return hmac.new(secret.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()


class Auth:
    """Checks requests. With both a token and a secret, either lets one in; with neither, everybody is.

    Headers are given by their names in lower case; a door whose protocol has none gives what stands for them.

    `path` is where it keeps the signatures of starts, `others` are the files of other workers. Without a path, those
    that a predecessor of this process has seen are good again.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        secret: str | None = None,
        now: Callable[[], float] = time.time,
        path: Path | None = None,
        others: Iterable[Path] = (),
    ) -> None:
        self._token = token.encode() if token else None
        self._secret = secret
        self._now = now
        self._began_ms = int(now() * 1e3)
        self._seen = UsedSignatures(2 * _CLOCK_WINDOW_S, now=now)
        self._starts = UsedSignatures(2 * _CLOCK_WINDOW_S, now=now, path=path if secret else None, others=others)

    @property
    def is_on(self) -> bool:
        return self._token is not None or self._secret is not None

    @property
    def has_token(self) -> bool:
        return self._token is not None

    @property
    def has_secret(self) -> bool:
        return self._secret is not None

    def check_token(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether the bearer token is right."""
        if self._token is None:
            return False
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        return hmac.compare_digest(token.strip(), self._token) and kind.lower() == b"bearer"

    def check_head(self, headers: Mapping[bytes, bytes]) -> Outcome | None:
        """Why a request is refused whatever its body is, or `None`. A signature covers the body: see `check`."""
        if self.check_token(headers):
            return None
        if self._secret is None:
            return Outcome.refused("unauthorised", "a bearer token is needed, and the right one")
        try:
            check_id(headers.get(b"key", b""), "key")
            time_ms = _digits(headers.get(b"time", b""))
        except BadStep:
            return Outcome.refused("unauthorised", "key, time and token are needed")
        if not _TOKEN.fullmatch(headers.get(b"token", b"")):
            return Outcome.refused("unauthorised", "key, time and token are needed")
        off = abs(self._now() - time_ms / 1e3)
        if off > _CLOCK_WINDOW_S:
            return Outcome.refused("unauthorised", f"its time is {off:.0f} s off this server's")
        return None

    def check(self, headers: Mapping[bytes, bytes], step: Step) -> Outcome | None:
        """Why the request is refused, or `None`. A good signature is noted in the step; `use` then spends it."""
        refused = self.check_head(headers)
        if refused is not None or self._secret is None or self.check_token(headers):
            return refused
        key = check_id(headers[b"key"], "key")
        time_ms = _digits(headers[b"time"])

        def sent(*names: bytes) -> str | None:
            return next((headers[name].decode("latin-1") for name in names if name in headers), None)

        right = sign(
            self._secret,
            key=key,
            time_ms=time_ms,
            session=step.session,
            step_kind=sent(b"step_kind", b"step-kind") or "",
            step=sent(b"step") or "",
            data=step.data,
            run=sent(b"run"),
            model=sent(b"model"),
            version=sent(b"version"),
            deadline_ms=sent(b"deadline_ms", b"deadline-ms"),
        )
        if not hmac.compare_digest(right.encode(), headers.get(b"token", b"").lower()):
            return Outcome.refused("unauthorised", "the signature is not right")
        step.signature = f"{time_ms} {right}"
        return None

    def use(self, step: Step) -> Outcome | None:
        """Spend the signature of a step, where its session lives. Numbered steps may be repeated as they are.

        A numbered start that begins a session is spent then, by `spend_start`; its later steps must not be signed
        before it. What a predecessor of this process has seen of others is not known, so what was signed before this
        one began is not taken.
        """
        if not step.signature or (step.number is not None and step.kind is not None):
            return None
        if step.signed_ms < self._began_ms:
            detail = "it was signed before this server began, and may have been used; sign it again, with a new time"
            return Outcome.refused("replayed", detail)
        if step.signature in self._seen:
            return Outcome.refused("replayed", "sign each request again: another time gives another token")
        self._seen.add(step.signature)
        return None

    def spend_start(self, step: Step) -> Outcome | None:
        """Spend the signature of a numbered start that is about to begin a session. Returns why it must not, if so."""
        if not step.signature:
            return None
        if step.signature in self._starts:
            return Outcome.refused("replayed", "it has started a session before; sign the start again, with a new time")
        try:
            self._starts.add(step.signature)
        except OSError as error:
            detail = f"the start cannot be written down: {error.strerror}"
            return Outcome.refused("overloaded", detail, retry_after_s=1)
        return None

    def close(self) -> None:
        self._starts.close()


def _digits(value: bytes) -> int:
    """A time in milliseconds. Raises `BadStep`."""
    if not value.isdigit() or len(value) > 19:
        raise BadStep(f"time {value[:32]!r} is not a number of milliseconds")
    return int(value)
