"""The game's side of the protocol without any input or output: numbers, retries, what an answer means, limits.

`sync.py` and `aio.py` send what a `Course` says and tell it what came back:

    course.step("tick")
    while True:
        send course.headers("tick", data)
        pause_s = course.answered(status, body, header)     # or course.broke(error, …); both may raise
        if pause_s is None: the body is the actor's answer
        else: wait, and send again
"""

from __future__ import annotations

import json
import math
import ssl
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ludus import errors
from ludus.gateway.auth import sign

__all__ = ["MAX_HEAD_BYTES", "BaseGameClient", "Course", "GameError", "Place", "check_header", "too_large"]

_NOT_RUN = ("overloaded", "shutting_down", "timeout", "replayed")  # the step did not run: the same may be sent again
_RAN = ("actor_failed", "invalid_observation", "deadline_exceeded")  # the step has its number, whatever became of it
_UNKNOWN = ("server_failed",)  # it may have run
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_HEAD_BYTES = 64 * 1024
_SECOND_PAUSE_S = 0.1
_AFTER_DEADLINE_S = 0.25  # the server keeps deadlines itself, and has the actor's fallback; after this it is hung
_MAX_PAUSE_S = 5.0


class GameError(errors.RpcError):
    """The server answered with a problem. `code` says which, `members` has what else it said."""

    def __init__(self, code: str, status: int, detail: str, members: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{code} ({status}): {detail}")
        self.code = code
        self.status = status
        self.detail = detail
        self.members = dict(members or {})

    @classmethod
    def from_answer(cls, status: int, body: bytes) -> GameError:
        """From a problem document; anything else has the code `http`."""
        try:
            content = json.loads(body)
            code, detail = content.pop("code"), content.pop("detail")
        except (ValueError, KeyError, AttributeError, TypeError):
            return cls("http", status, body[:200].decode("utf-8", "replace"))
        members = {key: value for key, value in content.items() if key not in ("type", "title", "status")}
        return cls(str(code), status, str(detail), members)


class Place:
    """Where a server is: a url, taken apart."""

    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port
        except ValueError as error:
            raise errors.ConfigError(f"{url!r} is no url: {error}. It is like http://127.0.0.1:8000") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise errors.ConfigError(f"{url!r} is no url of a gateway; it is like http://127.0.0.1:8000")
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port or (443 if self.is_tls else 80)
        self.path = parts.path.rstrip("/") + ("" if parts.path.rstrip("/").endswith("/step") else "/step")

    @property
    def authority(self) -> str:
        """For the header `host`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def line(self) -> str:
        """What a request begins with."""
        return f"POST {self.path} HTTP/1.1\r\nhost: {self.authority}\r\n"

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}"


class Course:
    """Where one session is: its id, the number of its next step, and how often the present one is sent again.

    When a step was not answered, its number may be taken or free. The next step then has the number after it; a server
    that says `out_of_order` tells which was free, and gets the step by that one.
    """

    def __init__(
        self,
        session: str | None,
        *,
        run: str | None = None,
        numbered: bool = True,
        retries: int = 5,
        token: str | None = None,
        secret: str | None = None,
        key: str = "game",
    ) -> None:
        for name, value in (("session", session), ("run", run), ("token", token), ("key", key)):
            check_header(name, value)
        self._given = session
        self.session = session or ""
        self.number = 0
        self.numbered = numbered
        self.versions: dict[str, int] = {}
        self.num_retries = 0  # of all steps
        self._doubted: int | None = None  # the first number that may be free though a step was sent by it
        self._is_open = False  # whether `number` itself is such a one: the present step's, or the last one's
        self._kind: str | None = None  # of the present step
        self._retries = retries
        self._left = retries
        self._pause_s = 0.0
        self._may_have_run = False
        self._deadline_ms: int | None = None
        self._until = math.inf
        self._run = run
        self._token = token
        self._secret = secret
        self._key = key
        self._signed_ms = 0

    def begin(self) -> None:
        """A new episode. A session that was given no id has another one each time."""
        self.session = self._given or uuid.uuid4().hex
        self.number = 0
        self._settle()
        self.versions = {}

    def step(self, kind: str | None, deadline_ms: int | None = None) -> None:
        """Another step than the last: not to be taken for a repetition of it. `None`: a stateless tick."""
        self._kind = kind
        self._deadline_ms = deadline_ms
        if deadline_ms is not None:
            self._until = time.monotonic() + deadline_ms / 1e3 + _AFTER_DEADLINE_S
        else:
            self._until = math.inf
        self._left = self._retries
        self._pause_s = 0.0  # the first time at once: a connection that was idle for too long is nobody's fault
        self._may_have_run = False
        if self._is_open and kind is not None:
            self.number += 1
            self._is_open = False

    @property
    def may_repeat(self) -> bool:
        """Whether the present step may be sent again if it may have run."""
        return self.numbered and self._kind is not None

    def time_for(self, timeout_s: float | None) -> float | None:
        """How long connecting, or sending with its answer, may take now, where `timeout_s` is the usual limit."""
        if self._deadline_ms is None:
            return timeout_s
        return min(math.inf if timeout_s is None else timeout_s, max(1e-3, self._until - time.monotonic()))

    @property
    def common_head(self) -> str:
        """The lines that all ticks of a session begin with; none if each is signed."""
        if self._secret is not None:
            return ""
        authorization = f"authorization: Bearer {self._token}\r\n" if self._token is not None else ""
        return f"{authorization}session: {self.session}\r\nstep_kind: tick\r\n"

    def headers(
        self,
        kind: str | None,
        data: bytes,
        *,
        deadline_ms: int | None = None,
        model: str | None = None,
        version: int | str | None = None,
    ) -> dict[str, str]:
        """Those of the next step, signed now if there is a secret."""
        headers: dict[str, str] = {}
        step = ""
        if kind is not None:
            headers = {"session": self.session, "step_kind": kind}
            if self.numbered:
                step = headers["step"] = str(self.number)
            if kind == "start":
                if self._run is not None:
                    headers["run"] = self._run
                if model is not None:
                    headers["model"] = check_header("model", model)
                if version is not None:
                    headers["version"] = check_header("version", str(version))
        if deadline_ms is not None:
            headers["deadline_ms"] = str(deadline_ms)
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        if self._secret is not None:
            now = self._signed_ms = max(int(time.time() * 1e3), self._signed_ms + 1)
            headers["key"] = self._key
            headers["time"] = str(now)
            headers["token"] = sign(
                self._secret, key=self._key, time_ms=now, session=headers.get("session", ""),
                step_kind=kind or "", step=step, data=data, run=headers.get("run"), model=headers.get("model"),
                version=headers.get("version"), deadline_ms=headers.get("deadline_ms"),
            )  # fmt: skip
        return headers

    def answered(self, status: int, body: bytes, header: Callable[[str], str | None]) -> float | None:
        """An answer came. `None`: the step is done. Else it is to be sent again after so many seconds.

        Raises the problem that it is, if that is all there is to know. `header(name)` looks into the answer.
        """
        if status == 200:
            versions = header("version")
            self.done(_parse_versions(versions) if versions else {})
            return None
        return self.refused(GameError.from_answer(status, body), _seconds(header("retry-after")))

    def done(self, versions: Mapping[str, int]) -> None:
        """The step was answered; these versions were played, if any are given."""
        if self._kind is not None:
            self.number += 1
            self._settle()
        if versions:
            self.versions = dict(versions)

    def refused(self, error: GameError, retry_after_s: float) -> float:
        """The step got a problem for an answer: seconds until it is to be sent again, or raises the problem."""
        kind = self._kind
        if kind in ("tick", "end") and error.code in _RAN:
            self.number += 1
            self._settle()
        elif error.code in _UNKNOWN:
            self.lose()
        elif error.code == "out_of_order" and self._finds(error.members.get("expected")):
            return 0.0
        if error.code not in _NOT_RUN or self._left <= 0:
            raise error
        pause_s = min(max(self._next_pause(), retry_after_s), _MAX_PAUSE_S)
        if time.monotonic() + pause_s >= self._until:
            raise error
        return pause_s

    def _finds(self, expected: Any) -> bool:
        """Whether the server says which of the doubted numbers was free; the step takes that one."""
        if self._kind not in ("tick", "end") or self._doubted is None or not isinstance(expected, int):
            return False
        if not self._doubted <= expected < self.number:
            return False
        self.number = expected
        self._settle()
        return True

    def broke(self, error: Exception, place: object, *, was_sent: bool) -> float:
        """The connection broke, or could not be made. Seconds to wait before the same is sent again.

        Raises what is known of the step, if that is not to be. `lose` was called if it was sent.
        """
        self._may_have_run |= was_sent
        if time.monotonic() + self._pause_s >= self._until:
            detail = f"{place} did not answer in {self._deadline_ms} ms: {_why(error)}"
            raise GameError("deadline_exceeded", 504, f"{detail}; the step may run" if was_sent else detail) from error
        if was_sent and not self.may_repeat:
            raise errors.OutcomeUnknown(
                f"the connection to {place} broke before the answer: {_why(error)}. The step may have run, and was not "
                "sent again because it has no number; number the steps (numbered=True) to have that done"
            ) from error
        if self._left <= 0:
            kind = errors.OutcomeUnknown if self._may_have_run else errors.Unreachable
            raise kind(f"{place} does not answer: {_why(error)}. Is the server up, and is this its port?") from error
        return self._next_pause()

    def lose(self) -> None:
        """The present step was sent, and it is not known whether it ran."""
        if self._kind is not None:
            self._is_open = True
            if self._doubted is None:
                self._doubted = self.number

    def _settle(self) -> None:
        """It is known which numbers are taken."""
        self._doubted = None
        self._is_open = False

    def _next_pause(self) -> float:
        self._left -= 1
        self.num_retries += 1
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2 or _SECOND_PAUSE_S, 1.0)
        return pause_s


class BaseGameClient:
    """What clients have in common, with and without an event loop. They differ in how they send and wait.

    Without a `session` each episode has an id of its own. `run` names this life of the game: if it crashes and comes
    back with another one, its old session is ended. Steps are `numbered` by default; only then may one whose connection
    broke be sent again, up to `retries` times. `timeout_s` is how long one sending may take with its answer (`None`: as
    long as it takes), and `max_answer_bytes` how large that may be. A `deadline_ms` is kept here, too: the step ends in
    `deadline_exceeded` soon after it, whether or not the server answers. Problems raise `GameError`; a server that is
    not there `Unreachable`.
    """

    _place_of: Callable[[str], Any] = Place

    def __init__(
        self,
        url: str,
        session: str | None = None,
        *,
        run: str | None = None,
        numbered: bool = True,
        timeout_s: float | None = 10.0,
        retries: int = 5,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        token: str | None = None,
        secret: str | None = None,
        key: str = "game",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._place = self._place_of(url)
        self._course = Course(session, run=run, numbered=numbered, retries=retries, token=token, secret=secret, key=key)
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._context = context

    @property
    def session(self) -> str:
        """The id of the present session; empty before the first, unless it was given."""
        return self._course.session

    @property
    def versions(self) -> dict[str, int]:
        """The model versions that the session plays, as the last answer said."""
        return dict(self._course.versions)

    @property
    def num_retries(self) -> int:
        """How often steps were sent again."""
        return self._course.num_retries


def too_large(max_bytes: int, status: int) -> GameError:
    return GameError(
        "answer_too_large", status, f"the answer has more than {max_bytes} bytes; max_answer_bytes is the limit"
    )


def _parse_versions(text: str) -> dict[str, int]:
    """`MODEL=NUMBER[,…]`."""
    pairs: Iterable[tuple[str, str, str]] = (part.strip().rpartition("=") for part in text.split(","))
    return {model: int(number) for model, _, number in pairs if model and number.isdigit()}


def check_header(name: str, value: str | None) -> str:
    """The value, if it can be that of a header: printable ASCII without blanks around it. Else raises `ConfigError`."""
    if value and not (value.isascii() and value.isprintable() and value == value.strip()):
        raise errors.ConfigError(
            f"this {name} cannot be sent: a header is printable ASCII without blanks around it; choose another {name}"
        )
    return value or ""


def _seconds(retry_after: str | None) -> float:
    return float(retry_after) if retry_after is not None and retry_after.isdigit() else 0.0


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
