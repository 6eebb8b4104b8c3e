"""The clients in Python, C++ and JavaScript, each against the real gateway, with and without a proxy that cuts."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import http.server
import json
import os
import resource
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from lying_server import LIES, LyingServer

from discovery.servers import free_port
from ludus import errors
from ludus.gateway.actor import Actor
from ludus.gateway.client import GameClient, GameError, Place
from ludus.gateway.client.aio import AsyncGameClient
from ludus.gateway.client.protocol import Course
from ludus.gateway.session import current
from ludus.testing.gateways import CountingActor, CuttingProxy, EchoActor, serving

CLIENTS = Path(__file__).parents[2] / "clients"
COMPILE = ("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror")
NUM_TICKS = 40


class SlowActor(Actor):
    """A tick takes as many milliseconds as its body says."""

    async def tick(self, data: bytes) -> bytes:
        await asyncio.sleep(float(data) / 1e3)
        return b"done " + data


class FailingActor(CountingActor):
    """Raises at every second tick."""

    def tick(self, data: bytes) -> bytes:
        answer = super().tick(data)
        if self.num_ticks % 2 == 0:
            raise RuntimeError("every second tick")
        return answer


class VersionedActor(EchoActor):
    def tick(self, data: bytes) -> bytes:
        session = current.get()
        assert session is not None
        session.pin("policy", 7)
        session.pin("critic", 3)
        return data


LOSSES = ["a", "late 1", "b", "lost 2", "c", "late 3", "lost 4", "d", "lost 5", "late 6", "e"]
LOST = [
    "1:a",
    "?",
    "3:b",
    "?",
    "4:c",
    "?",
    "?",
    "6:d",
    "?",
    "?",
    "7:e",
]  # what a CountingActor answers through `losing`


@contextlib.contextmanager
def listening(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that calls `handle` with each connection, in a thread, and then closes it."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                handle(self.request)

        def finish(self) -> None:
            self.request.close()  # at once: what was not read is answered with a reset

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(5.0)


def read_head(connection: socket.socket) -> tuple[bytes, int, bytes]:
    """A message up to its body, the size of that, and what of it has come already; empty when nothing more comes."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return b"", 0, b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    return head + b"\r\n\r\n", int(lines.get(b"content-length", b"0")), body


def read_message(connection: socket.socket) -> tuple[bytes, bytes]:
    head, size, body = read_head(connection)
    while len(body) < size:
        body += connection.recv(65536)
    return head, body


@contextlib.contextmanager
def losing(port: int) -> Iterator[int]:
    """Before the server of that port, one that hangs up on `lost` steps, and instead of the answer to `late` ones.

    Of `held` steps nothing is heard any more.
    """

    def handle(game: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10.0) as server:
            while True:
                head, body = read_message(game)
                if not head or body.startswith(b"lost"):
                    return
                if body.startswith(b"held"):
                    game.recv(1)  # until the game has had enough
                    return
                server.sendall(head + body)
                answer = b"".join(read_message(server))
                if body.startswith(b"late"):
                    return
                game.sendall(answer)

    with listening(handle) as own:
        yield own


@contextlib.contextmanager
def refusing(refused: list[int]) -> Iterator[int]:
    """A server that answers `ok`, but refuses large bodies before it has read them, and hangs up; notes their sizes."""

    def handle(game: socket.socket) -> None:
        while True:
            head, size, body = read_head(game)
            if not head:
                return
            if size > 1000:
                refused.append(size)
                result = b'{"code": "too_large", "detail": "no"}'
                game.sendall(
                    b"HTTP/1.1 413 Too Large\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(result) + result
                )
                return
            while len(body) < size:
                body += game.recv(65536)
            game.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    with listening(handle) as own:
        yield own


# ---- Python


def test_a_session_is_played_from_start_to_end() -> None:
    with serving(CountingActor) as url, GameClient(url, "one") as game:
        assert game.start(b"map") == b"started:map"
        assert [game.tick(b"x") for _ in range(3)] == [b"1:x", b"2:x", b"3:x"]
        assert game.end() == b"3"
        assert game.start(b"again") == b"started:again"
        assert game.tick(b"y") == b"1:y"
        assert game.end() == b"1"


def test_one_connection_carries_all_steps() -> None:
    with serving(EchoActor) as url, GameClient(url) as game:
        game.start()
        for _ in range(10):
            game.tick(b"x")
        game.end()
        assert url.call(url.gateway.stats)["num_accepted"] == 1


def test_a_session_without_an_id_has_another_one_each_time() -> None:
    with serving(EchoActor) as url, GameClient(url) as game:
        game.start()
        first = game.session
        game.end()
        game.start()
        assert game.session != first
        game.end()


@pytest.mark.parametrize("keep", [0, 20])
def test_every_tick_runs_once_though_connections_are_cut(keep: int) -> None:
    with serving(CountingActor) as url, CuttingProxy(url.port, every=3, keep=keep) as proxy:
        with GameClient(proxy.url, "cut") as game:
            game.start()
            assert [game.tick(b"x") for _ in range(NUM_TICKS)] == [b"%d:x" % i for i in range(1, NUM_TICKS + 1)]
            assert game.end() == b"%d" % NUM_TICKS
        assert proxy.num_cuts > NUM_TICKS // 4


def test_a_step_without_a_number_is_not_sent_again() -> None:
    with serving(CountingActor) as url, CuttingProxy(url.port, every=2, keep=10) as proxy:
        with GameClient(proxy.url, "unnumbered", numbered=False) as game:
            game.start()
            with pytest.raises(errors.OutcomeUnknown, match="has no number"):
                game.tick(b"x")
        with GameClient(url, "unnumbered", numbered=False) as direct:
            assert direct.tick(b"y") == b"2:y"


def test_a_connection_that_the_server_closed_in_between_is_opened_again_without_a_number() -> None:
    with serving(CountingActor, idle_s=0.2) as url, GameClient(url, "idle", numbered=False) as game:
        game.start()
        for _ in range(200):
            if not url.call(lambda: url.gateway.stats()["num_connections"]):
                break
            threading.Event().wait(0.02)
        assert game.tick(b"x") == b"1:x"


def test_a_server_that_is_not_there_is_reported_as_such() -> None:
    with GameClient(f"http://127.0.0.1:{free_port()}", retries=1) as game, pytest.raises(errors.Unreachable):
        game.start()


def test_a_server_that_comes_late_is_waited_for() -> None:
    port = free_port()
    served = threading.Event()
    done = threading.Event()

    def serve() -> None:
        done.wait(0.15)
        with serving(EchoActor, port=port):
            served.set()
            done.wait(10.0)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        with GameClient(f"http://127.0.0.1:{port}", retries=8) as game:
            assert game.start(b"hello") == b"hello"
        assert served.is_set()
    finally:
        done.set()
        thread.join(10.0)


def test_problems_are_raised_with_their_code_and_members() -> None:
    with serving(EchoActor) as url, GameClient(url, "never") as game:
        with pytest.raises(GameError) as raised:
            game.tick(b"x")
        assert (raised.value.code, raised.value.status) == ("unknown_session", 404)
        game.start()
        game._course.number = 9
        with pytest.raises(GameError) as raised:
            game.tick(b"x")
        assert (raised.value.code, raised.value.members) == ("out_of_order", {"expected": 1})


def test_a_failed_tick_has_its_number_and_the_session_goes_on() -> None:
    with serving(FailingActor) as url, GameClient(url, "fails") as game:
        game.start()
        assert game.tick(b"x") == b"1:x"
        with pytest.raises(GameError) as raised:
            game.tick(b"x")
        assert raised.value.code == "actor_failed"
        assert raised.value.members["id"]
        assert game.tick(b"x") == b"3:x"
        assert game.end() == b"3"


def test_a_missed_deadline_is_reported_and_the_next_tick_follows_it() -> None:
    with serving(SlowActor) as url, GameClient(url, "slow") as game:
        game.start()
        with pytest.raises(GameError) as raised:
            game.tick(b"300", deadline_ms=20)
        assert raised.value.code == "deadline_exceeded"
        assert game.tick(b"1") == b"done 1"
        game.end()


def test_a_full_server_is_asked_again_after_the_time_it_gives() -> None:
    with (
        serving(EchoActor, max_sessions=1) as url,
        GameClient(url, "first") as first,
        GameClient(url, "second") as game,
    ):
        first.start()
        pauses: list[float] = []

        def leave(seconds: float) -> None:
            pauses.append(seconds)
            first.end()

        game._sleep = leave
        assert game.start(b"in") == b"in"
        assert pauses == [1.0]


def test_a_server_that_stays_full_is_given_up() -> None:
    with serving(EchoActor, max_sessions=1) as url, GameClient(url, "first") as first:
        first.start()
        with GameClient(url, "second", retries=2) as game:
            game._sleep = lambda _seconds: None
            with pytest.raises(GameError) as raised:
                game.start()
        assert raised.value.code == "overloaded"


def fail_at(url: Any, number: int, *, has_run: bool) -> None:
    """The gateway itself fails at the first step of this number, before it runs or after it."""
    step_of_gateway, failed = url.gateway.step, []

    def step(step: Any, done: Any) -> None:
        if step.number != number or failed:
            step_of_gateway(step, done)
            return
        failed.append(step)
        if has_run:
            step_of_gateway(step, lambda outcome: None)
        raise RuntimeError("as the test wants it")

    url.call(lambda: setattr(url.gateway, "step", step))


@pytest.mark.parametrize(("has_run", "following"), [(False, b"2:y"), (True, b"3:y")])
def test_after_a_failure_of_the_server_itself_the_number_is_found_out(has_run: bool, following: bytes) -> None:
    with serving(CountingActor) as url, GameClient(url) as game:
        fail_at(url, 2, has_run=has_run)
        game.start()
        assert game.tick(b"x") == b"1:x"
        with pytest.raises(GameError) as raised:
            game.tick(b"x")
        assert (raised.value.code, raised.value.status) == ("server_failed", 500)
        assert game.tick(b"y") == following


@pytest.mark.parametrize(("has_run", "following"), [(False, b"2:y"), (True, b"3:y")])
def test_after_a_failure_of_the_server_itself_an_event_loop_finds_out_the_number(
    has_run: bool, following: bytes
) -> None:
    async def play(url: str) -> bytes:
        game = AsyncGameClient(url)
        await game.start()
        await game.tick(b"x")
        with pytest.raises(GameError, match="server_failed"):
            await game.tick(b"x")
        answer = await game.tick(b"y")
        game.close()
        return answer

    with serving(CountingActor) as url:
        fail_at(url, 2, has_run=has_run)
        assert asyncio.run(play(url)) == following


def test_versions_are_read_from_the_answer() -> None:
    with serving(VersionedActor) as url, GameClient(url) as game:
        game.start()
        assert game.versions == {}
        game.tick(b"x")
        assert game.versions == {"policy": 7, "critic": 3}
        game.end()


def test_stateless_ticks_need_no_session() -> None:
    with serving(CountingActor) as url, GameClient(url) as game:
        assert [game.stateless(b"a"), game.stateless(b"b")] == [b"1:a", b"2:b"]


def test_a_game_that_came_back_with_another_run_gets_a_new_session() -> None:
    with serving(CountingActor) as url:
        with GameClient(url, "game", run="1") as game:
            game.start()
            game.tick(b"x")
        with GameClient(url, "game", run="1") as same, pytest.raises(GameError, match="already_started"):
            same.start()
        with GameClient(url, "game", run="2") as back:
            back.start()
            assert back.tick(b"x") == b"1:x"
            back.end()


@pytest.mark.parametrize("wanted", [{"token": "T"}, {"secret": "S" * 80}])
def test_a_token_or_a_signature_lets_in_and_a_wrong_one_does_not(wanted: dict[str, str]) -> None:
    with serving(EchoActor, **wanted) as url:
        with GameClient(url, "good", **wanted) as game:
            game.start()
            assert game.tick(b"x") == b"x"
            assert game.stateless(b"y") == b"y"
            assert game.stateless(b"y") == b"y"
            game.end()
        for wrong in ({}, dict.fromkeys(wanted, "wrong")):
            with GameClient(url, "bad", **wrong) as game, pytest.raises(GameError) as raised:
                game.start()
            assert (raised.value.code, raised.value.status) == ("unauthorised", 401)


def test_tls_is_spoken_to_an_https_url(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with serving(EchoActor, tls_cert=str(cert), tls_key=str(key)) as url:
        assert url.startswith("https://")
        with GameClient(url, "tls", context=context) as game:
            game.start()
            assert game.tick(b"secret") == b"secret"
            game.end()

        async def play() -> bytes:
            client = AsyncGameClient(url, "tls", context=context)
            await client.start()
            answer = await client.tick(b"too")
            client.close()
            return answer

        assert asyncio.run(play()) == b"too"


def test_a_server_of_another_kind_is_reported_by_what_it_answers() -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(418)
            self.send_header("content-length", "6")
            self.end_headers()
            self.wfile.write(b"teapot")

        def log_message(self, *_args: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            with GameClient(f"http://127.0.0.1:{server.server_port}") as game, pytest.raises(GameError) as raised:
                game.start()
        finally:
            server.shutdown()
            thread.join(5.0)
    assert (raised.value.code, raised.value.status, raised.value.detail) == ("http", 418, "teapot")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "", "http://h:99999", "http://h:x", "http://[::1"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"like http://127\.0\.0\.1:8000"):
        Place(url)


@pytest.mark.parametrize("option", [{"token": "schlüssel"}, {"token": "a\r\nb: c"}, {"run": " 2"}, {"session": "é"}])
def test_what_cannot_be_a_header_is_refused_before_anything_is_sent(option: dict[str, str]) -> None:
    with pytest.raises(errors.ConfigError, match="printable ASCII"):
        GameClient("http://127.0.0.1:1", **option)
    with pytest.raises(errors.ConfigError, match="printable ASCII"):
        AsyncGameClient("http://127.0.0.1:1", **option)


def test_a_step_after_a_lost_one_is_not_taken_for_its_repetition() -> None:
    with serving(CountingActor) as url, losing(url.port) as port, GameClient(f"127.0.0.1:{port}", retries=0) as game:
        game.start()
        assert [_outcome(game, data) for data in LOSSES] == LOST
        assert game.end() == b"7"


def test_a_tick_after_a_start_that_was_answered_to_nobody_is_the_first() -> None:
    with serving(CountingActor) as url, losing(url.port) as port, GameClient(f"127.0.0.1:{port}", retries=0) as game:
        with pytest.raises(errors.OutcomeUnknown):
            game.start(b"late")
        assert game.tick(b"x") == b"1:x"


def test_a_step_that_was_sent_once_is_not_reported_as_unreachable_later() -> None:
    with listening(lambda game: game.settimeout(read_message(game) and None)) as port:
        game = GameClient(f"127.0.0.1:{port}", retries=1)
        game._sleep = lambda _seconds: setattr(game._place, "port", free_port())
        with game, pytest.raises(errors.OutcomeUnknown):
            game.start()


def test_an_interrupted_step_is_not_mistaken_for_the_next() -> None:
    with serving(CountingActor) as url, GameClient(url, "interrupted") as game:
        game.start()
        connection = game._connect()
        read = connection.getresponse

        def interrupt() -> Any:
            raise KeyboardInterrupt

        connection.getresponse = interrupt  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            game.tick(b"x")
        connection.getresponse = read  # type: ignore[method-assign]
        assert game.tick(b"y") in (b"1:y", b"2:y")  # whether the first was read before its connection was closed


def test_a_body_that_is_too_large_is_reported_as_such_and_not_sent_again() -> None:
    refused: list[int] = []
    with refusing(refused) as port, GameClient(f"127.0.0.1:{port}") as game:
        game.start()
        with pytest.raises(GameError, match="too_large"):
            game.tick(bytes(20_000_000))
        assert game.tick(b"x") == b"ok"
    assert refused == [20_000_000]


def test_a_process_with_many_files_can_play() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this user may not open so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        with serving(CountingActor) as url, GameClient(url, "high", numbered=False) as game:
            game.start()
            connection = game._connect()
            assert connection.sock is not None
            with connection.sock as low:
                connection.sock = socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, 1500))
                connection.sock.settimeout(10.0)
                assert game.tick(b"x") == b"1:x"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _outcome(game: GameClient, data: str) -> str:
    try:
        return game.tick(data.encode()).decode()
    except errors.OutcomeUnknown:
        return "?"


def test_what_a_start_and_a_deadline_ask_for_is_signed_too() -> None:
    async def play(url: str) -> bytes:
        client = AsyncGameClient(url, secret="S", run="2")
        await client.start(model="policy", version=7)
        answer = await client.tick(b"1", deadline_ms=5000)
        client.close()
        return answer

    with serving(SlowActor, secret="S") as url:
        with GameClient(url, secret="S", run="1") as game:
            game.start(model="policy", version="latest")
            assert game.tick(b"1", deadline_ms=5000) == b"done 1"
            assert game.stateless(b"1", deadline_ms=5000) == b"done 1"
        assert asyncio.run(play(url)) == b"done 1"


def test_two_signatures_of_the_same_are_never_alike() -> None:
    course = Course(None, secret="S")
    times = [int(course.headers(None, b"x")["time"]) for _ in range(100)]
    assert times == sorted(set(times))


# ---- Python, for an event loop


@pytest.mark.parametrize("access", [{}, {"token": "T"}, {"secret": "S"}])
@pytest.mark.parametrize("numbered", [True, False])
def test_many_sessions_play_at_once_on_an_event_loop(access: dict[str, str], numbered: bool) -> None:
    with serving(CountingActor, **access) as url:

        async def play() -> list[bytes]:
            client = AsyncGameClient(url, numbered=numbered, **access)
            await client.start(b"s")
            for _ in range(5):
                await client.tick(b"x" * 100_000)
            ended = await client.end()
            client.close()
            return [ended]

        async def main() -> list[list[bytes]]:
            return await asyncio.gather(*(play() for _ in range(10)))

        assert asyncio.run(main()) == [[b"5"]] * 10


def test_every_tick_runs_once_on_an_event_loop_though_connections_are_cut() -> None:
    with serving(CountingActor) as url, CuttingProxy(url.port, every=3, keep=15) as proxy:

        async def play() -> tuple[bytes, int]:
            client = AsyncGameClient(proxy.url, "cut")
            await client.start()
            for i in range(NUM_TICKS):
                assert await client.tick(b"x") == b"%d:x" % (i + 1)
            ended = await client.end()
            client.close()
            return ended, client.num_retries

        ended, num_retries = asyncio.run(play())
        assert ended == b"%d" % NUM_TICKS
        assert num_retries == proxy.num_cuts > 0


def test_an_answer_that_does_not_come_is_asked_for_again() -> None:
    with serving(SlowActor) as url:

        async def play() -> tuple[bytes, int]:
            client = AsyncGameClient(url, timeout_s=0.1)
            await client.start()
            answer = await client.tick(b"250")
            client.close()
            return answer, client.num_retries

        answer, num_retries = asyncio.run(play())
        assert answer == b"done 250"
        assert num_retries >= 1


def test_a_problem_and_a_missing_server_are_raised_on_an_event_loop() -> None:
    with serving(EchoActor) as url, pytest.raises(GameError, match="unknown_session"):
        asyncio.run(AsyncGameClient(url, "never").tick(b"x"))
    with pytest.raises(errors.Unreachable):
        asyncio.run(AsyncGameClient(f"http://127.0.0.1:{free_port()}", retries=0).start())


@pytest.mark.parametrize("numbered", [True, False])
def test_the_answer_to_a_cancelled_step_is_nobodys(numbered: bool) -> None:
    with serving(SlowActor) as url:

        async def play() -> list[bytes]:
            client = AsyncGameClient(url, numbered=numbered)
            await client.start()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.tick(b"150"), 0.05)
            answers = [await client.tick(b"%d" % i) for i in range(4)]
            client.close()
            return answers

        assert asyncio.run(play()) == [b"done %d" % i for i in range(4)]


def test_a_step_after_a_lost_one_is_not_taken_for_its_repetition_on_an_event_loop() -> None:
    async def play(port: int) -> list[str]:
        client = AsyncGameClient(f"127.0.0.1:{port}", retries=0)
        await client.start()
        answers = []
        for data in LOSSES:
            try:
                answers.append((await client.tick(data.encode())).decode())
            except errors.OutcomeUnknown:
                answers.append("?")
        client.close()
        return answers

    with serving(CountingActor) as url, losing(url.port) as port:
        assert asyncio.run(play(port)) == LOST


def test_what_nobody_asked_for_is_no_answer() -> None:
    def handle(game: socket.socket) -> None:
        for answer in (b"start", b"tick"):
            if not read_message(game)[0]:
                return
            game.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
            if answer == b"start":
                game.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong")

    async def play(port: int) -> bytes:
        client = AsyncGameClient(f"127.0.0.1:{port}")
        await client.start()
        wire = client._wire
        while wire is not None and wire.is_open:  # until what is wrong has come
            await asyncio.sleep(0.01)
        answer = await client.tick(b"x")
        client.close()
        return answer

    with listening(handle) as port:
        assert asyncio.run(asyncio.wait_for(play(port), 10.0)) == b"start"


def test_a_body_that_is_too_large_is_reported_as_such_on_an_event_loop() -> None:
    async def play(port: int) -> bytes:
        client = AsyncGameClient(f"127.0.0.1:{port}")
        await client.start()
        with pytest.raises(GameError, match="too_large"):
            await client.tick(bytes(20_000_000))
        answer = await client.tick(b"x")
        client.close()
        return answer

    refused: list[int] = []
    with refusing(refused) as port:
        assert asyncio.run(play(port)) == b"ok"
    assert refused == [20_000_000]


# ---- a server that lies


UNHARMED = {"a bomb"}  # by those who do not unpack: it is bytes to them
MOST_SENT = 1_000_000 + 16_000_000  # the limit of an answer, and what fits into the sockets between


def survived(lie: str, server: LyingServer, codes: list[str]) -> None:
    """A client passed on this lie, or detected it, and got the truth after it; it took no more than it may."""
    outcome, truth = codes
    assert truth == "ok"
    assert outcome in ("not_http", "answer_too_large", "outcome_unknown", "http") or (
        lie in UNHARMED and "bytes" in outcome
    )
    assert server.num_sent < MOST_SENT


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_costs_no_more_than_the_limits(lie: str) -> None:
    with LyingServer(lie) as server:
        game = GameClient(f"127.0.0.1:{server.port}", timeout_s=1.0, retries=0, max_answer_bytes=1_100_000)
        began = time.monotonic()
        try:
            outcome = f"{len(game.stateless(b'x'))} bytes"
        except GameError as error:
            outcome = error.code
        except errors.OutcomeUnknown:
            outcome = "outcome_unknown"
        assert time.monotonic() - began < 15.0
        survived(lie, server, [outcome, game.stateless(b"x").decode()])
        game.close()


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_costs_no_more_than_the_limits_on_an_event_loop(lie: str) -> None:
    async def play(port: int) -> list[str]:
        game = AsyncGameClient(f"127.0.0.1:{port}", timeout_s=1.0, retries=0, max_answer_bytes=1_100_000)
        try:
            outcome = f"{len(await game.stateless(b'x'))} bytes"
        except GameError as error:
            outcome = error.code
        except errors.OutcomeUnknown:
            outcome = "outcome_unknown"
        truth = (await game.stateless(b"x")).decode()
        game.close()
        return [outcome, truth]

    with LyingServer(lie) as server:
        survived(lie, server, asyncio.run(asyncio.wait_for(play(server.port), 60.0)))


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_costs_the_cpp_client_no_more_than_the_limits(compiled: Path, lie: str) -> None:
    with LyingServer(lie) as server:
        survived(lie, server, _drive(compiled, "lied to", str(server.port)))


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_a_server_that_lies_costs_the_js_client_no_more_than_the_limits(tmp_path: Path) -> None:
    script = tmp_path / "victim.mjs"
    script.write_text(
        f"""import {{ readFileSync }} from "node:fs";
import {{ Game, text }} from "{CLIENTS / "js" / "ludus.mjs"}";
for (const [lie, port] of process.argv.slice(2).map((word) => word.split(","))) {{
  const options = {{ timeoutMs: 1000, retries: 0, maxAnswerBytes: 1_000_000 }};
  const game = new Game(`http://127.0.0.1:${{port}}`, "driven", options);
  const outcome = await game.stateless("x").then((answer) => `${{answer.length}} bytes`, (error) => error.code);
  console.log(JSON.stringify([lie, outcome, text(await game.stateless("x"))]));
}}
// Not resourceUsage().maxRSS: that begins with what the parent process had.
console.log(readFileSync("/proc/self/status", "utf8").match(/VmHWM:\\s+(\\d+) kB/)[1]);
process.exit(0);
"""
    )
    with ExitStack() as stack:
        servers = {lie: stack.enter_context(LyingServer(lie)) for lie in LIES}
        words = [f"{lie},{server.port}" for lie, server in servers.items()]
        done = subprocess.run(["node", str(script), *words], capture_output=True, text=True, timeout=300, check=False)
        assert done.stderr == ""
        *lines, most_kb = done.stdout.splitlines()
        for lie, *codes in map(json.loads, lines):
            survived(lie, servers[lie], codes)
            assert "bytes" not in codes[0], lie
    assert len(lines) == len(LIES)
    assert int(most_kb) < 400_000


@pytest.mark.parametrize("make", [GameClient, AsyncGameClient])
def test_a_deadline_is_kept_also_if_the_server_does_not_answer_at_all(make: Any) -> None:
    async def play(game: Any) -> Any:
        async def wait(output: Any) -> Any:
            return await output if asyncio.iscoroutine(output) else output

        await wait(game.start())
        with pytest.raises(GameError, match=r"did not answer in 100 ms.*may run") as caught:
            await wait(game.tick(b"held", deadline_ms=100))
        assert caught.value.code == "deadline_exceeded"
        answer = await wait(game.tick(b"x"))
        game.close()
        return answer

    with serving(CountingActor) as url, losing(url.port) as port:
        game = make(f"http://127.0.0.1:{port}", timeout_s=1000.0)
        assert asyncio.run(play(game)) == b"1:x"  # its number was free


def test_a_deadline_is_kept_also_if_no_server_takes_the_connection() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        game = GameClient(f"http://127.0.0.1:{port}", timeout_s=1000.0)
        with pytest.raises(GameError) as caught:
            game.stateless(b"x", deadline_ms=100)
        assert caught.value.code == "deadline_exceeded"
        for each in waiting:
            each.close()


# ---- C++ and JavaScript


DRIVER = r"""
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "ludus.hpp"

int main(int, char** argv) {
    const std::string mode = argv[1];
    if (mode == "sha") {
        const std::string data((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
        std::cout << ludus::detail::hex(ludus::detail::sha256(data)) << "\n";
        return 0;
    }
    ludus::Options options;
    options.retries = 1;
    options.numbered = mode != "unnumbered";
    if (mode == "held") options.timeout_ms = 1'000'000;
    if (mode == "signed") {
        options.secret = "S";
        options.run = "2";
    }
    ludus::Game game("127.0.0.1", std::atoi(argv[2]), "driven", options);
    try {
        if (mode == "lied to") {
            options.timeout_ms = 1000;
            options.retries = 0;
            options.max_answer_bytes = 1'000'000;
            ludus::Game victim("127.0.0.1", std::atoi(argv[2]), "driven", options);
            try { std::cout << victim.stateless("x").size() << " bytes\n"; } catch (const ludus::Error& error) {
                std::cout << error.code << "\n";
            }
            std::cout << victim.stateless("x") << "\n";
            return 0;
        }
        if (mode == "stateless") {
            std::cout << game.stateless("a") << " " << game.stateless("b") << "\n";
            return 0;
        }
        mode == "signed" ? game.start("", "policy", "7") : game.start();
        std::cout << "started\n";
        if (mode == "deadline") {
            try { game.tick("300", 20); } catch (const ludus::Error& error) { std::cout << error.code << "\n"; }
            std::cout << game.tick("1") << "\n";
        } else if (mode == "failing") {
            std::cout << game.tick("x") << "\n";
            try { game.tick("x"); } catch (const ludus::Error& error) {
                std::cout << error.code << " " << error.members.at("id").size() << "\n";
            }
            std::cout << game.tick("x") << "\n";
        } else if (mode == "losses") {
            for (const char* data : {%s}) {
                try { std::cout << game.tick(data) << "\n"; } catch (const ludus::Error& error) {
                    std::cout << (error.code == "outcome_unknown" ? "?" : error.code) << "\n";
                }
            }
        } else if (mode == "held") {
            try { game.tick("held", 100); } catch (const ludus::Error& error) { std::cout << error.code << "\n"; }
            std::cout << game.tick("x") << "\n";
        } else if (mode == "signed") {
            std::cout << game.tick("1", 5000) << "\n";
        } else if (mode == "large") {
            try { game.tick(std::string(20'000'000, 'x')); } catch (const ludus::Error& error) {
                std::cout << error.code << " " << error.status << "\n";
            }
            std::cout << game.tick("x") << "\n";
        } else if (mode == "versions") {
            game.tick("x");
            for (const auto& [model, number] : game.versions()) std::cout << model << "=" << number << "\n";
        } else {
            std::cout << game.tick("x") << "\n";
        }
        game.end();
    } catch (const ludus::Error& error) {
        std::cout << error.code << " " << error.status << "\n";
    }
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example and the driver as programs."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ here")
    folder = tmp_path_factory.mktemp("cpp")
    (folder / "driver.cpp").write_text(DRIVER.replace("%s", json.dumps(LOSSES)[1:-1]))
    include = ("-I", str(CLIENTS / "cpp"), "-pthread")
    compiling = [
        subprocess.Popen(
            [*COMPILE, "-O2", str(CLIENTS / "cpp" / "example.cpp"), *include, "-o", str(folder / "example")]
        ),
        subprocess.Popen([*COMPILE, "-O0", str(folder / "driver.cpp"), *include, "-o", str(folder / "driver")]),
    ]
    assert [each.wait(100) for each in compiling] == [0, 0]
    return folder


class Program:
    """The example of a language: a whole session, one line for each answer."""

    def __init__(self, language: str, compiled: Path | None) -> None:
        self.language = language
        self._compiled = compiled

    def play(self, port: int, session: str, ticks: int, *access: str, **variables: str) -> list[str]:
        done = self.run(port, session, ticks, *access, **variables)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout.splitlines()

    def run(
        self, port: int, session: str, ticks: int, *access: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        if self.language == "js":
            head = ["node", str(CLIENTS / "js" / "example.mjs"), f"http://127.0.0.1:{port}"]
        else:
            head = [str(self._compiled / "example"), "127.0.0.1", str(port)]
        words = [*head, session, str(ticks), *access]
        env = {**os.environ, **variables}
        return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=env)


@pytest.fixture(params=["cpp", "js"])
def program(request: pytest.FixtureRequest) -> Program:
    if request.param == "js":
        if shutil.which("node") is None:
            pytest.skip("there is no node here")
        return Program("js", None)
    return Program("cpp", request.getfixturevalue("compiled"))


def expected(num_ticks: int) -> list[str]:
    ticks = [f"tick {i + 1}:[0.01, -0.02, 0.03, {i}]" for i in range(num_ticks)]
    return ["start started:", *ticks, f"end {num_ticks}"]


def test_a_program_of_another_language_plays_a_session_over_one_connection(program: Program) -> None:
    with serving(CountingActor) as url:
        assert program.play(url.port, "other", 20) == expected(20)
        stats = url.call(url.gateway.stats)
    assert stats["num_steps"] == 21  # the start is not counted as a step
    assert stats["num_accepted"] <= 2


@pytest.mark.parametrize("keep", [0, 30])
def test_every_tick_of_another_language_runs_once_though_connections_are_cut(program: Program, keep: int) -> None:
    with serving(CountingActor) as url, CuttingProxy(url.port, every=3, keep=keep) as proxy:
        assert program.play(proxy.port, "cut", NUM_TICKS) == expected(NUM_TICKS)
        assert proxy.num_cuts > NUM_TICKS // 4
        stats = url.call(url.gateway.stats)
    assert stats["num_steps"] == NUM_TICKS + 1
    assert stats["num_repeats"] >= proxy.num_cuts - 1


@pytest.mark.parametrize("access", [{"token": "T"}, {"secret": "S" * 70}])
def test_another_language_sends_tokens_and_signs(program: Program, access: dict[str, str]) -> None:
    with serving(CountingActor, **access) as url:
        words = ["T"] if "token" in access else ["", "S" * 70]
        assert program.play(url.port, "signed", 5, *words) == expected(5)
        assert program.play(url.port, "signed", 5, *(word and "wrong" for word in words)) == ["error unauthorised 401"]


@pytest.mark.parametrize("access", [{"token": "T"}, {"secret": "S" * 70}])
def test_another_language_takes_tokens_and_secrets_from_the_environment_or_a_file(
    program: Program, access: dict[str, str], tmp_path: Path
) -> None:
    ((name, value),) = access.items()
    variable, file = f"LUDUS_{name.upper()}", tmp_path / name
    file.write_text(f"{value}\n")
    named = {f"{variable}_FILE": str(file)}
    with serving(CountingActor, **access) as url:
        assert program.play(url.port, "a", 2, **{variable: value}) == expected(2)
        assert program.play(url.port, "b", 2, **named) == expected(2)
        both = program.run(url.port, "c", 2, **{variable: value}, **named)
        file.write_text("\n")
        none = program.run(url.port, "c", 2, **named)
    assert (both.returncode, both.stdout) == (none.returncode, none.stdout) == (2, "")
    assert f"both {variable} and {variable}_FILE are set" in both.stderr
    assert f"{file} must have one line" in none.stderr


def test_another_language_tells_a_server_that_is_not_there(program: Program) -> None:
    assert program.play(free_port(), "nobody", 1) == ["error unreachable 0"]


@pytest.mark.parametrize(
    ("mode", "actor", "lines"),
    [
        ("stateless", CountingActor, ["1:a 2:b"]),
        ("deadline", SlowActor, ["started", "deadline_exceeded", "done 1"]),
        ("failing", FailingActor, ["started", "1:x", "actor_failed 16", "3:x"]),
        ("versions", VersionedActor, ["started", "critic=3", "policy=7"]),
    ],
)
def test_the_cpp_client_knows_the_rest_of_the_protocol(
    compiled: Path, mode: str, actor: type[Actor], lines: list[str]
) -> None:
    with serving(actor) as url:
        assert _drive(compiled, mode, str(url.port)) == lines


@pytest.mark.parametrize(("has_run", "following"), [(False, "2:x"), (True, "3:x")])
def test_the_cpp_client_finds_out_the_number_after_a_failure_of_the_server_itself(
    compiled: Path, has_run: bool, following: str
) -> None:
    with serving(CountingActor) as url:
        fail_at(url, 2, has_run=has_run)
        assert _drive(compiled, "failing", str(url.port)) == ["started", "1:x", "server_failed 16", following]


def test_the_cpp_client_does_not_repeat_a_step_without_a_number(compiled: Path) -> None:
    with serving(CountingActor) as url, CuttingProxy(url.port, every=2, keep=10) as proxy:
        assert _drive(compiled, "unnumbered", str(proxy.port)) == ["started", "outcome_unknown 0"]
        assert url.call(url.gateway.stats)["num_steps"] == 1


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 1000])
def test_the_cpp_client_hashes_as_everybody_does(compiled: Path, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    assert _drive(compiled, "sha", data=data) == [hashlib.sha256(data).hexdigest()]


def test_the_cpp_client_keeps_a_deadline_that_its_server_does_not(compiled: Path) -> None:
    with serving(CountingActor) as url, losing(url.port) as port:
        assert _drive(compiled, "held", str(port)) == ["started", "deadline_exceeded", "1:x"]


def test_the_cpp_client_signs_what_a_start_and_a_deadline_ask_for(compiled: Path) -> None:
    with serving(SlowActor, secret="S") as url:
        assert _drive(compiled, "signed", str(url.port)) == ["started", "done 1"]


def test_a_step_of_the_cpp_client_after_a_lost_one_is_not_taken_for_its_repetition(compiled: Path) -> None:
    with serving(CountingActor) as url, losing(url.port) as port:
        assert _drive(compiled, "losses", str(port)) == ["started", *LOST]


def test_the_cpp_client_tells_that_a_body_is_too_large_and_does_not_send_it_again(compiled: Path) -> None:
    refused: list[int] = []
    with refusing(refused) as port:
        assert _drive(compiled, "large", str(port)) == ["started", "too_large 413", "ok"]
    assert refused == [20_000_000]


def test_another_language_refuses_a_token_that_cannot_be_a_header(program: Program) -> None:
    for token in ("schlüssel", "a\r\nb: c"):
        assert program.play(1, "one", 1, token) == ["error bad_request 0"]


def _drive(compiled: Path, *words: str, data: bytes = b"") -> list[str]:
    done = subprocess.run([str(compiled / "driver"), *words], input=data, capture_output=True, timeout=300, check=True)
    return done.stdout.decode().splitlines()


NODE_DRIVER = """
import { Game, GameError, text } from "%s";
const done = async (step) => { try { return text(await step); } catch (error) {
  if (!(error instanceof GameError)) throw error; return `${error.code} ${error.status}`; } };
const plays = {
  stateless: async (game) => [await done(game.stateless("a")), await done(game.stateless("b"))],
  deadline: async (game) => [await done(game.tick("300", { deadlineMs: 20 })), await done(game.tick("1"))],
  failing: async (game) => [await done(game.tick("x")), await done(game.tick("x")), await done(game.tick("x"))],
  server_failing: async (game) => [await done(game.tick("x")), await done(game.tick("x")), await done(game.tick("x"))],
  versions: async (game) => { await game.tick("x"); return game.versions; },
  unnumbered: async (game) => [await done(game.tick("x"))],
  losses: async (game) => { const all = []; for (const data of %s) all.push(await done(game.tick(data))); return all; },
  held: async (game) => [await done(game.tick("held", { deadlineMs: 100 })), await done(game.tick("x"))],
  signed: async (game) => [await done(game.tick("1", { deadlineMs: 5000 }))],
  large: async (game) => [await done(game.tick(new Uint8Array(20_000_000))), await done(game.tick("x"))],
  bytes: async (game) => {
    const floats = new Float32Array([9, 0.5, -2]), all = [];
    const shared = new Uint8Array(new SharedArrayBuffer(2)).fill(7);
    const whole = [floats.buffer.slice(4), new Int16Array([300, -1]), shared];
    for (const data of [floats.subarray(1), new DataView(floats.buffer, 4), ...whole]) {
      all.push(Buffer.from(await game.tick(data)).toString("hex"));
    }
    for (const data of [5, [1, 2], {}, null, undefined]) {
      all.push(await game.tick(data).then(() => "sent", (error) => error.constructor.name));
    }
    return all;
  },
};
for (const [mode, url] of process.argv.slice(2).map((word) => word.split(","))) {
  const more = mode === "signed" ? { secret: "S", run: "2" } : mode === "held" ? { timeoutMs: 1_000_000 } : {};
  const game = new Game(url, "driven", { retries: 1, numbered: mode !== "unnumbered", ...more });
  const wanted = mode === "signed" ? { model: "policy", version: 7 } : {};
  if (mode !== "stateless") await game.start(new Uint8Array([109, 97, 112]), wanted);
  console.log(mode, JSON.stringify(await plays[mode](game)));
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_the_js_client_knows_the_rest_of_the_protocol(tmp_path: Path) -> None:
    script = tmp_path / "driver.mjs"
    script.write_text(NODE_DRIVER % (CLIENTS / "js" / "ludus.mjs", json.dumps(LOSSES)))
    actors = {
        "stateless": CountingActor,
        "deadline": SlowActor,
        "failing": FailingActor,
        "versions": VersionedActor,
        "bytes": EchoActor,
    }
    with ExitStack() as stack:
        words = [f"{mode},{stack.enter_context(serving(actor))}" for mode, actor in actors.items()]
        counting = stack.enter_context(serving(CountingActor))
        proxy = stack.enter_context(CuttingProxy(counting.port, every=2, keep=10))
        words.append(f"unnumbered,{proxy.url}")
        failing = stack.enter_context(serving(CountingActor))
        fail_at(failing, 2, has_run=False)
        words.append(f"server_failing,{failing}")
        words.append(f"signed,{stack.enter_context(serving(SlowActor, secret='S'))}")
        words.append(f"large,{stack.enter_context(serving(CountingActor, max_body_bytes=1000))}")
        lossy = stack.enter_context(losing(stack.enter_context(serving(CountingActor)).port))
        words.append(f"losses,http://127.0.0.1:{lossy}")
        holding = stack.enter_context(losing(stack.enter_context(serving(CountingActor)).port))
        words.append(f"held,http://127.0.0.1:{holding}")
        done = subprocess.run(["node", str(script), *words], capture_output=True, text=True, timeout=300, check=False)
        num_steps = counting.call(counting.gateway.stats)["num_steps"]
    assert done.stderr == ""
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert {mode: json.loads(result) for mode, result in lines.items()} == {
        "stateless": ["1:a", "2:b"],
        "deadline": ["deadline_exceeded 504", "done 1"],
        "failing": ["1:x", "actor_failed 500", "3:x"],
        "server_failing": ["1:x", "server_failed 500", "2:x"],
        "versions": {"policy": 7, "critic": 3},
        "unnumbered": ["outcome_unknown 0"],
        "losses": [each.replace("?", "outcome_unknown 0") for each in LOST],
        "held": ["deadline_exceeded 504", "1:x"],
        "signed": ["done 1"],
        "large": ["too_large 413", "1:x"],
        "bytes": [*["0000003f000000c0"] * 3, "2c01ffff", "0707", *["TypeError"] * 5],
    }
    assert num_steps == 1
