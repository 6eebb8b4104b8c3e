"""A Redis server, by its URL: the one door of the library `redis`.

    server = RedisServer("redis://:password@host:6379/0")    # rediss:// for TLS; nothing is opened yet
    server.run(lambda client: client.get(key))               # connects, and again when the connection was lost

The password may be in the URL, or in $LUDUS_REDIS_PASSWORD or the file that $LUDUS_REDIS_PASSWORD_FILE names. Messages
and reprs show the URL without it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ludus import errors, secret

try:
    import redis
    import redis.backoff
    import redis.exceptions
    import redis.retry
except ImportError:
    raise errors.MissingExtra("redis", extra="redis") from None

__all__ = [
    "RedisError",
    "RedisServer",
    "ScriptError",
    "connect",
    "password_of",
    "text_of",
    "with_password",
    "without_password",
]

T = TypeVar("T")

RedisError: Any = redis.exceptions.RedisError
"""The root of what the library raises."""

ScriptError: Any = redis.exceptions.ResponseError
"""What a command or a script answered instead of a value."""

_SECRET = "redis password"
_LOST = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, redis.exceptions.BusyLoadingError)
_DENIED = (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError)
_DENIED_CODE = re.compile(r"(NOAUTH|WRONGPASS|NOPERM)\b|invalid (username-)?password")
_FULL_CODE = re.compile(r"OOM\b|.*maxmemory")
_READ_SIZE = 1 << 20  # one read of the socket; the library's 64 KB makes large values twice as slow
_FIRST_RETRY_S, _LAST_RETRY_S = 0.02, 0.5


def connect(url: str, *, timeout_s: float, retries: int = 1) -> Any:
    """A client that waits so long for one answer, and tries again, at once, when its connection was lost."""
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        socket_read_size=_READ_SIZE,
        # Once more: the connection at hand may be one that a restarted server has forgotten.
        retry=redis.retry.Retry(redis.backoff.NoBackoff(), retries),
        retry_on_error=[redis.exceptions.ConnectionError],
    )


def text_of(error: Exception) -> str:
    """What the server said, without the command that the library quotes."""
    return str(error).rpartition("of pipeline caused error: ")[2]


def password_of(url: str) -> str | None:
    """The password in a URL; `None` if it has none."""
    password = urlsplit(url).password
    return None if password is None else unquote(password)


def without_password(url: str) -> str:
    """The URL as it can be shown and written."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user = f"{parts.username}@" if parts.username else ""
    return urlunsplit(parts._replace(netloc=user + parts.netloc.rpartition("@")[2]))


def with_password(url: str, password: str) -> str:
    """The URL with this password in place of any other."""
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:{quote(password, safe='')}@{where}"))


def _checked(url: str) -> str:
    """Raises `ConfigError` for what is no URL of a Redis server; adds the password of the environment."""
    parts = urlsplit(url)
    try:
        is_valid = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port
        is_valid = False
    if not is_valid:
        raise errors.ConfigError(
            f"{without_password(url)!r} is no URL of a Redis server: it must be redis://HOST:PORT or "
            "redis://:PASSWORD@HOST:PORT/DATABASE, with rediss:// for TLS"
        )
    if parts.password is None and (password := secret.find(_SECRET)) is not None:
        return with_password(url, password)
    return url


class RedisServer:
    """Calls to one server, repeated until they succeed or `timeout_s` is over. Safe to share between threads.

    `answer_s`: a server that takes longer for one answer counts as lost.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0, answer_s: float = 5.0) -> None:
        if timeout_s <= 0 or answer_s <= 0:
            raise errors.ConfigError(f"timeout_s={timeout_s} and answer_s={answer_s} must be above 0")
        self.url = without_password(url)
        self._timeout_s = timeout_s
        try:
            self._client = connect(_checked(url), timeout_s=min(answer_s, timeout_s), retries=0)
        except ValueError as error:
            raise errors.ConfigError(f"the options of {self.url!r} are invalid: {error}") from None

    def run(self, call: Callable[[Any], T]) -> T:
        """The result of a call, which must do no harm when it is made twice.

        Raises `Unreachable` when the server is gone, `Unauthorised`, `Overloaded` when its memory is full, and
        `ScriptError` for any other answer that is an error.
        """
        until, wait_s = time.monotonic() + self._timeout_s, _FIRST_RETRY_S
        while True:
            try:
                return call(self._client)
            except _DENIED as error:
                raise self._denied(error) from None
            except _LOST as error:
                if time.monotonic() + wait_s >= until:
                    raise errors.Unreachable(
                        f"Redis at {self.url} gave no answer within {self._timeout_s:g} s: {str(error).rstrip('.')}. "
                        "Start it again, or check the URL; nothing was changed that is not whole."
                    ) from None
            except redis.exceptions.InvalidResponse as error:
                raise errors.Unreachable(
                    f"what answers as Redis at {self.url} is something else ({error}): check the host and the port"
                ) from None
            except redis.exceptions.ResponseError as error:
                text = text_of(error)
                if _DENIED_CODE.match(text):
                    raise self._denied(error) from None
                if isinstance(error, redis.exceptions.OutOfMemoryError) or _FULL_CODE.match(text):
                    raise errors.Overloaded(
                        f"Redis at {self.url} has no memory left ({text}). Nothing was stored; raise its maxmemory, "
                        "or remove what is not needed."
                    ) from None
                raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LAST_RETRY_S)

    def once(self, call: Callable[[Any], T]) -> T:
        """The result of a call, or what the library raises."""
        return call(self._client)

    def _denied(self, error: Exception) -> errors.Unauthorised:
        return errors.Unauthorised(
            f"Redis at {self.url} refuses: {text_of(error)}. Give the password as redis://:PASSWORD@HOST:PORT or in "
            "LUDUS_REDIS_PASSWORD."
        )

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._client.close()

    def __repr__(self) -> str:
        return f"RedisServer({self.url!r})"
