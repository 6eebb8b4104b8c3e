"""A game's side of the protocol in Python: blocking, and of the standard library only. docs/protocol.md has the words.

with GameClient("http://127.0.0.1:8000", "session-1") as game:
    game.start(b"map 7")
    action = game.tick(observation)
    game.end(b"won")

Steps are numbered, so one whose connection broke is sent again and never runs twice. If in the end it is not known what
became of it (`OutcomeUnknown`), the next call is a step of its own all the same.
"""

from __future__ import annotations

import functools
import http.client
import io
import json
import select
import socket
import ssl
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ludus import errors
from ludus.gateway.auth import sign

__all__ = [
    "MAX_ANSWER_BYTES",
    "MAX_HEAD_BYTES",
    "Course",
    "GameClient",
    "GameError",
    "Place",
    "Retries",
    "check_header",
    "too_large",
]

_NOT_RUN = ("overloaded", "shutting_down", "timeout", "replayed")  # the step did not run: the same may be sent again
_RAN = ("actor_failed", "invalid_observation", "deadline_exceeded")  # the step has its number, whatever became of it
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_HEAD_BYTES = 64 * 1024
_PIECE = 1 << 16  # of a chunked answer: http.client makes room for as much as a chunk says it has
_SECOND_PAUSE_S = 0.1
_MAX_PAUSE_S = 5.0


class GameError(errors.RpcError):
    """The server answered with a problem. `code` says which, `members` has what else it told."""

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

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}"


class Course:
    """Where one session is: its id, the number of its next step, the headers that a step needs. It sends nothing.

    When a step was not answered, its number may be taken or free. The next step then has the number after it; a server
    that says `out_of_order` tells which was free, and gets the step by that one.
    """

    def __init__(
        self,
        session: str | None,
        *,
        run: str | None = None,
        numbered: bool = True,
        token: str | None = None,
        secret: str | None = None,
        key: str = "game",
    ) -> None:
        for name, value in (("session", session), ("run", run), ("token", token), ("key", key)):
            check_header(name, value)
        self._given = session
        self.session = session or ""
        self.number = 0
        self.doubted: int | None = None  # the first number that may be free though a step was sent by it
        self._is_open = False  # whether `number` itself is such a one: the present step's, or the last one's
        self.numbered = numbered
        self.versions: dict[str, int] = {}
        self._run = run
        self._token = token
        self._secret = secret
        self._key = key
        self._signed_ms = 0

    def begin(self) -> None:
        """A new episode. A session that was given no id has another one each time."""
        self.session = self._given or uuid.uuid4().hex
        self.number = 0
        self.settle()
        self.versions = {}

    def next(self) -> None:
        """Another step than the last: not to be taken for a repetition of it."""
        if self._is_open:
            self.number += 1
            self._is_open = False

    def lose(self, kind: str | None) -> None:
        """The present step was sent, and no answer came."""
        if kind is not None:
            self._is_open = True
            if self.doubted is None:
                self.doubted = self.number

    def settle(self) -> None:
        """The server told which numbers are taken."""
        self.doubted = None
        self._is_open = False

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

    def succeeded(self, kind: str | None, versions: str | None) -> None:
        """The step was answered; `versions` is the answer's header of that name."""
        if kind is not None:
            self.number += 1
            self.settle()
        if versions:
            self.versions = parse_versions(versions)

    def refused(self, kind: str | None, error: GameError) -> bool:
        """The step was answered by a problem. Whether it is to be sent now by the number that turned out to be free."""
        if kind not in ("tick", "end"):
            return False
        if error.code in _RAN:
            self.number += 1
            self.settle()
        elif error.code == "out_of_order" and self.doubted is not None:
            expected = error.members.get("expected")
            if isinstance(expected, int) and self.doubted <= expected < self.number:
                self.number = expected
                self.settle()
                return True
        return False


class Retries:
    """How often one step is sent again, and how long to wait before it is."""

    def __init__(self, num: int, *, may_repeat: bool) -> None:
        self._left = num
        self._may_repeat = may_repeat
        self._may_have_run = False
        self._pause_s = 0.0  # the first time at once: a connection that was idle for too long is nobody's fault

    def after_problem(self, error: GameError, retry_after: str | None) -> float:
        """Seconds to wait before the same is sent again. Raises the problem if that is not to be."""
        if error.code not in _NOT_RUN or self._left <= 0:
            raise error
        pause_s = self._next()
        return min(max(pause_s, _seconds(retry_after)), _MAX_PAUSE_S)

    def after_break(self, error: Exception, place: Place, *, was_sent: bool) -> float:
        """The same, after a connection that broke or could not be made. Raises what is known of the step."""
        self._may_have_run |= was_sent
        if was_sent and not self._may_repeat:
            raise errors.OutcomeUnknown(
                f"the connection to {place} broke before the answer: {_why(error)}. The step may have run, and was not "
                "sent again because it has no number; number the steps (numbered=True) to have that done"
            ) from error
        if self._left <= 0:
            kind = errors.OutcomeUnknown if self._may_have_run else errors.Unreachable
            raise kind(f"{place} does not answer: {_why(error)}. Is the server up, and is this its port?") from error
        return self._next()

    def _next(self) -> float:
        self._left -= 1
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2 or _SECOND_PAUSE_S, 1.0)
        return pause_s


class GameClient:
    """Calls one actor at a time: `start`, `tick` …, `end`, and again. Not to be shared between threads.

    Without a `session` each episode has an id of its own. `run` names this life of the game: if it crashes and comes
    back with another one, its old session is ended. Steps are `numbered` unless told otherwise; only then may one whose
    connection broke be sent again, up to `retries` times. `timeout_s` is how long one sending may take with its answer,
    and `max_answer_bytes` how large that may be. Problems raise `GameError`; a server that is not there `Unreachable`.
    """

    def __init__(
        self,
        url: str,
        session: str | None = None,
        *,
        run: str | None = None,
        numbered: bool = True,
        timeout_s: float = 10.0,
        retries: int = 5,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        token: str | None = None,
        secret: str | None = None,
        key: str = "game",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._place = Place(url)
        self._course = Course(session, run=run, numbered=numbered, token=token, secret=secret, key=key)
        self._timeout_s = timeout_s
        self._retries = retries
        self._limits = _Limits(timeout_s, max_answer_bytes)
        self._context = context
        self._connection: http.client.HTTPConnection | None = None
        self._sleep: Callable[[float], None] = time.sleep

    @property
    def session(self) -> str:
        """The id of the present session; empty before the first, unless it was given."""
        return self._course.session

    @property
    def versions(self) -> dict[str, int]:
        """The model versions that the session plays, as the last answer told."""
        return dict(self._course.versions)

    def start(self, data: bytes = b"", model: str | None = None, version: int | str | None = None) -> bytes:
        """Begin a session; `version` says what to play: a number, a tag, `latest` or `follow`."""
        self._course.begin()
        return self._step("start", data, model=model, version=version)

    def tick(self, data: bytes, deadline_ms: int | None = None) -> bytes:
        """One step: what the actor answers."""
        return self._step("tick", data, deadline_ms=deadline_ms)

    def end(self, data: bytes = b"") -> bytes:
        """The session is over."""
        return self._step("end", data)

    def stateless(self, data: bytes, deadline_ms: int | None = None) -> bytes:
        """A tick of no session, on the actor that all such ticks share."""
        return self._step(None, data, deadline_ms=deadline_ms)

    def close(self) -> None:
        """Hang up. The session stays; its lease runs out if no more steps come."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> GameClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _step(self, kind: str | None, data: bytes, **extras: Any) -> bytes:
        course = self._course
        may_repeat = course.numbered and kind is not None
        retries = Retries(self._retries, may_repeat=may_repeat)
        if not may_repeat and self._connection is not None and _is_readable(self._connection.sock):
            self.close()
        if kind is not None:
            course.next()
        while True:
            was_sent = False
            try:
                connection = self._connect()
                headers = course.headers(kind, data, **extras)
                was_sent = True
                response, body = self._exchange(connection, headers, data)
            except BaseException as error:
                self.close()  # an answer that is still to come is none to the next step
                if was_sent:
                    course.lose(kind)
                if not isinstance(error, (OSError, http.client.HTTPException)):
                    raise
                self._sleep(retries.after_break(error, self._place, was_sent=was_sent))
                continue
            if response.will_close:
                self.close()
            if response.status == 200:
                course.succeeded(kind, response.getheader("version"))
                return body
            problem = GameError.from_answer(response.status, body)
            if not course.refused(kind, problem):
                self._sleep(retries.after_problem(problem, response.getheader("retry-after")))

    def _exchange(
        self, connection: http.client.HTTPConnection, headers: Mapping[str, str], data: bytes
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a step and read its answer, which may come before all is sent: then the server wants no more of it."""
        was_cut = None
        self._limits.begin(connection.sock)
        try:
            connection.request("POST", self._place.path, data, headers)
        except OSError as error:
            if connection.sock is None or not _is_readable(connection.sock):
                raise
            was_cut = error
        try:
            response = connection.getresponse()
            if response.length is None and not response.chunked:  # headers that were cut off are none to http.client
                raise http.client.IncompleteRead(b"")
            if (response.length or 0) > self._limits.max_bytes:
                raise too_large(self._limits.max_bytes, response.status)
            body = b"".join(iter(lambda: response.read(_PIECE), b"")) if response.chunked else response.read()
        except ValueError as error:  # http.client does not check all that it reads
            raise http.client.HTTPException(f"the answer is not HTTP: {error}") from error
        except (OSError, http.client.HTTPException):
            if was_cut is not None:
                raise was_cut from None
            raise
        if was_cut is not None:
            self.close()
        return response, body

    def _connect(self) -> http.client.HTTPConnection:
        """The connection, opened now if it is not open."""
        if self._connection is None:
            place = self._place
            if place.is_tls:
                self._connection = http.client.HTTPSConnection(
                    place.host, place.port, timeout=self._timeout_s, context=self._context
                )
            else:
                self._connection = http.client.HTTPConnection(place.host, place.port, timeout=self._timeout_s)
            self._connection.connect()
            make = functools.partial(_Answer, limits=self._limits)
            self._connection.response_class = make  # type: ignore[assignment]
        return self._connection


class _Limits:
    """What one answer may take: time and bytes, however slowly or for however long a server sends."""

    def __init__(self, timeout_s: float, max_bytes: int) -> None:
        self._timeout_s = timeout_s
        self.max_bytes = max_bytes
        self._until = 0.0
        self._num_bytes = 0

    def begin(self, connection: socket.socket | None) -> None:
        self._until = time.monotonic() + self._timeout_s
        self._num_bytes = 0
        if connection is not None and connection.gettimeout() != self._timeout_s:
            connection.settimeout(self._timeout_s)

    def before_read(self, connection: socket.socket) -> None:
        """Raise `TimeoutError` if time is up. The socket's own timeout is as good while most of it is left."""
        left_s = self._until - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError(f"the answer was not whole after {self._timeout_s:g} s")
        if left_s < 0.9 * self._timeout_s:
            connection.settimeout(left_s)

    def after_read(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        if self._num_bytes > self.max_bytes + MAX_HEAD_BYTES:
            raise too_large(self.max_bytes, 0)


class _Answer(http.client.HTTPResponse):
    """A response that is read within limits."""

    def __init__(self, sock: socket.socket, *args: Any, limits: _Limits, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_LimitedReader(self.fp.detach(), sock, limits))


class _LimitedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, connection: socket.socket, limits: _Limits) -> None:
        self._raw = raw
        self._connection = connection
        self._limits = limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._limits.before_read(self._connection)
        num_bytes: int | None = self._raw.readinto(buffer)
        self._limits.after_read(num_bytes or 0)
        return num_bytes

    def close(self) -> None:
        self._raw.close()
        super().close()


def too_large(max_bytes: int, status: int) -> GameError:
    return GameError(
        "answer_too_large", status, f"the answer has more than {max_bytes} bytes; max_answer_bytes is the limit"
    )


def parse_versions(text: str) -> dict[str, int]:
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


def _is_readable(connection: socket.socket | None) -> bool:
    """Whether something came, or the server hung up: between two answers nothing else happens."""
    if connection is None:
        return True
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _seconds(retry_after: str | None) -> float:
    return float(retry_after) if retry_after is not None and retry_after.isdigit() else 0.0


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
