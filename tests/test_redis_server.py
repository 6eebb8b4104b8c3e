"""The door of `redis`: URLs, passwords, deadlines. What a server does is tested with the pools and the names in it."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from ludus import errors
from ludus.redis_server import RedisServer, password_of, with_password, without_password


def test_a_url_is_shown_and_written_without_its_password() -> None:
    for url, shown, password in (
        ("redis://:p%40ss%2Fword@host:6379/2", "redis://host:6379/2", "p@ss/word"),
        (
            "rediss://me:secret@[::1]:6379/0?ssl_ca_certs=ca.pem",
            "rediss://me@[::1]:6379/0?ssl_ca_certs=ca.pem",
            "secret",
        ),
        ("redis://host", "redis://host", None),
    ):
        assert (without_password(url), password_of(url)) == (shown, password)
        if password is not None:
            assert password_of(with_password(shown, password)) == password
            assert without_password(with_password(shown, password)) == shown
            assert password not in repr(RedisServer(url))


@pytest.mark.parametrize("url", ["http://:secret@host", "redis://:secret@", "redis://:secret@host:notaport", "here"])
def test_what_is_no_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(errors.ConfigError, match="must be redis://HOST:PORT") as raised:
        RedisServer(url)
    assert "secret" not in str(raised.value)


def test_options_of_a_url_and_deadlines_are_checked() -> None:
    with pytest.raises(errors.ConfigError, match="must be above 0"):
        RedisServer("redis://host", timeout_s=0.0)
    with pytest.raises(errors.ConfigError, match="options of 'redis://host"):
        RedisServer("redis://host?socket_timeout=soon")


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = RedisServer(f"redis://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.3, answer_s=0.1)
        began = time.monotonic()
        with pytest.raises(errors.Unreachable, match=r"gave no answer within 0\.3 s"):
            server.run(lambda client: client.ping())
        assert time.monotonic() - began < 5.0
        server.close()


def test_what_answers_with_something_else_is_not_taken_for_redis() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        server = RedisServer(f"redis://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.3, answer_s=0.1)
        with pytest.raises(errors.Unreachable, match="is something else"):
            server.run(lambda client: client.ping())
        server.close()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10.0)
