"""The gRPC door over real sockets: the same sessions as HTTP's, streams, problems, and what is no message at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discovery.servers import free_port
from ludus import errors
from ludus.errors import InvalidObservation
from ludus.gateway.client import GameClient, GameError
from ludus.gateway.gateway import Gateway, GatewayOptions
from ludus.gateway.grpc import wire
from ludus.gateway.grpc.client import AsyncGrpcGameClient, GrpcGameClient
from ludus.gateway.grpc.fields import METHODS
from ludus.gateway.http.wire import PROBLEMS
from ludus.gateway.ring import owner_of
from ludus.gateway.thread import GatewayThread
from ludus.grpc.inspection import health_of
from ludus.grpc.protos.game_pb2 import END, START, TICK, Signature, StepReply, StepRequest
from ludus.grpc.protos.game_pb2_grpc import GameServiceStub
from ludus.grpc.protos.messages_pb2 import Problem
from ludus.testing.gateways import CountingActor, EchoActor, ServedUrl, serving

ROOT = Path(__file__).parents[2]


class SlowActor(CountingActor):
    """A tick takes until `gate` is set, if it is sent `wait`."""

    gate = threading.Event()

    async def tick(self, data: bytes) -> bytes:  # type: ignore[override]
        while data == b"wait" and not SlowActor.gate.is_set():
            await asyncio.sleep(0.002)
        return CountingActor.tick(self, data)


class WithFallback(SlowActor):
    def fallback(self, data: bytes) -> bytes:
        return b"fallback"


class Failing(CountingActor):
    def tick(self, data: bytes) -> bytes:
        raise {b"wrong": InvalidObservation, b"bug": RuntimeError}[data](f"it is {data.decode()}")


@pytest.fixture(autouse=True)
def _gate() -> Iterator[None]:
    SlowActor.gate.clear()
    yield
    SlowActor.gate.set()


@contextlib.contextmanager
def stub_of(url: ServedUrl | GatewayThread) -> Iterator[Any]:
    where = url.grpc if isinstance(url, ServedUrl) else url.grpc_url
    with grpc.insecure_channel(where.removeprefix("grpc://")) as channel:
        stub = GameServiceStub(channel)
        stub.channel = channel
        yield stub


def step(session: str, number: int | None, data: bytes = b"x", **more: Any) -> Any:
    return StepRequest(session=session, step=number, data=data, **more)


def refused(call: Callable[[], Any]) -> Any:
    """The error that a call ends with, and the problem in its trailing metadata."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    found = {key: value for key, value in caught.value.trailing_metadata() if key.startswith("ludus-")}
    problem = Problem.FromString(found[wire.PROBLEM_KEY])
    assert problem.code == found[wire.CODE_KEY]
    assert caught.value.code() is wire.STATUSES[problem.code]
    return problem


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


# --- the same sessions


def test_a_session_is_played_through_both_doors() -> None:
    with serving(CountingActor, grpc_port=0) as url, stub_of(url) as stub, GameClient(url, "a") as game:
        game.start(b"map")
        assert stub.Tick(step("a", 1)).data == b"1:x"
        (again,) = stub.Play(iter([step("a", 1, kind=TICK)]))
        assert again == StepReply(data=b"1:x", session="a")
        with pytest.raises(GameError, match="out_of_order"):  # HTTP's client counts for itself
            game._course.number = 7
            game.tick(b"y")
        assert stub.End(step("a", 2)).data == b"1"
        assert url.call(url.gateway.stats)["ended"] == {"asked": 1}


def test_a_coroutine_is_waited_for_and_a_repetition_with_it() -> None:
    with serving(SlowActor, grpc_port=0) as url, stub_of(url) as stub:
        stub.Start(step("a", 0))
        calls = [stub.Tick.future(step("a", 1, b"wait")) for _ in range(3)]
        eventually(lambda: url.call(lambda: url.gateway.sessions.stats.num_repeats) == 2)
        SlowActor.gate.set()
        assert [call.result(20).data for call in calls] == [b"1:wait"] * 3


def test_a_call_that_is_given_up_runs_all_the_same_and_is_answered_when_it_is_repeated() -> None:
    with serving(SlowActor, grpc_port=0) as url, stub_of(url) as stub:
        stub.Start(step("a", 0))
        call = stub.Tick.future(step("a", 1, b"wait"))
        eventually(lambda: url.call(lambda: url.gateway.sessions.num_waiting) == 1)
        call.cancel()
        with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
            stub.Tick(step("a", 1, b"wait"), timeout=0.05)
        SlowActor.gate.set()
        assert stub.Tick(step("a", 1, b"wait")).data == b"1:wait"
        assert stub.Tick(step("a", 2)).data == b"2:x"


def test_deadlines_bring_the_fallback_or_the_problem() -> None:
    with serving(WithFallback, grpc_port=0) as url, stub_of(url) as stub:
        stub.Start(step("a", 0))
        assert stub.Tick(step("a", 1, b"wait", deadline_ms=20)).data == b"fallback"
        SlowActor.gate.set()
        assert stub.Tick(step("a", 1, b"wait")).data == b"fallback"
    SlowActor.gate.clear()
    with serving(SlowActor, grpc_port=0) as url, stub_of(url) as stub:
        stub.Start(step("a", 0))
        assert refused(lambda: stub.Tick(step("a", 1, b"wait", deadline_ms=20))).code == "deadline_exceeded"
        SlowActor.gate.set()


def test_versions_are_asked_for_by_fields_and_are_in_the_reply() -> None:
    class Pinning(EchoActor):
        def start(self, session: Any, data: bytes) -> bytes:
            session.pin("policy", int(session.wanted("policy")))
            session.pin("critic", 3)
            return str(session.wanted("critic")).encode()

    with serving(Pinning, grpc_port=0) as url, stub_of(url) as stub:
        reply = stub.Start(step("a", 0, model="policy", version="7"))
        assert dict(reply.versions) == {"policy": 7, "critic": 3}
        assert reply.data == b"latest"
        with GrpcGameClient(url.grpc) as game:
            game.start(model="policy", version=5)
            assert game.versions == {"policy": 5, "critic": 3}


def test_two_workers_share_a_port_and_each_reaches_the_sessions_of_both(tmp_path: Path) -> None:
    options = GatewayOptions(port=free_port(), grpc_port=free_port(), folder=tmp_path)
    workers = [GatewayThread(CountingActor, options, index=index, size=2) for index in range(2)]
    with workers[0], workers[1]:
        sessions = [next(f"s{n}" for n in range(100) if owner_of(f"s{n}", 2) == index) for index in (0, 1)]
        for _ in range(8):  # connections, each taken by either
            with stub_of(workers[0]) as stub:
                for session in sessions:
                    stub.Start(step(session, None))
                    assert stub.Tick(step(session, None)).data == b"1:x"
                    stub.End(step(session, None))
        stats = [worker.call(worker.gateway.stats) for worker in workers]
    assert [each["num_started"] for each in stats] == [8, 8]
    assert sum(each["num_forwarded"] for each in stats) == 24
    with pytest.raises(errors.ConfigError, match="share one gRPC port"):
        Gateway(CountingActor, GatewayOptions(port=1, grpc_port=0, folder=tmp_path), size=2)


# --- problems


def test_problems_have_their_status_and_say_the_rest_in_the_trailing_metadata() -> None:
    with serving(Failing, grpc_port=0, max_sessions=1) as url, stub_of(url) as stub:
        assert refused(lambda: stub.Tick(step("a", 1))).code == "unknown_session"
        stub.Start(step("a", 0))
        assert refused(lambda: stub.Start(step("a", None))).code == "already_started"
        assert refused(lambda: stub.Start(step("b", 0))).retry_after_s == 1
        problem = refused(lambda: stub.Tick(step("a", 5)))
        assert (problem.code, problem.expected) == ("out_of_order", 1)
        assert refused(lambda: stub.Tick(step("a", 1, b"wrong"))).detail == "tick: it is wrong"
        problem = refused(lambda: stub.Tick(step("a", 2, b"bug")))
        assert (problem.code, len(problem.id)) == ("actor_failed", 16)
        again = refused(lambda: stub.Tick(step("a", 2, b"bug")))
        assert again == problem, "a repetition gets the same"


def test_a_long_detail_is_cut_so_that_a_client_takes_the_metadata() -> None:
    class Verbose(EchoActor):
        def tick(self, data: bytes) -> bytes:
            raise InvalidObservation("ü" * 100_000)

    with serving(Verbose, grpc_port=0) as url, stub_of(url) as stub:
        stub.Start(step("a", 0))
        assert refused(lambda: stub.Tick(step("a", 1))).detail.startswith("tick: üüü")


def test_every_code_has_the_status_that_the_page_says() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\w+|–) \|", (ROOT / "docs" / "protocol.md").read_text(), re.MULTILINE)
    assert {code for code, _, _ in rows} == set(PROBLEMS)
    assert {code: status for code, _, status in rows if status != "–"} == {
        code: status.name for code, status in wire.STATUSES.items()
    }


def test_what_the_gateway_itself_raises_is_server_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("as asked")

    with serving(EchoActor, grpc_port=0) as url, stub_of(url) as stub:
        monkeypatch.setattr(url.gateway, "step", fail)
        assert refused(lambda: stub.Start(step("a", 0))).code == "server_failed"


# --- streams


def test_a_stream_answers_in_order_and_goes_on_after_a_problem() -> None:
    with serving(SlowActor, grpc_port=0) as url, stub_of(url) as stub:
        SlowActor.gate.set()
        steps = [
            step("a", 0, kind=START), step("b", 0, kind=START), step("a", 1, b"wait", kind=TICK),
            step("b", 7, kind=TICK), step("b", 1, kind=TICK), step("", None, b"y"), step("a b", 0, kind=START),
            step("a", 2, kind=END), step("b", 2, kind=9),
        ]  # fmt: skip
        replies = list(stub.Play(iter(steps)))
        found = [reply.problem.code or f"{reply.session}:{reply.data.decode()}" for reply in replies]
        assert found == [
            "a:started:x", "b:started:x", "a:1:wait", "out_of_order", "b:1:x", ":1:y", "bad_request",
            "a:1", "bad_request",
        ]  # fmt: skip


def test_a_stream_without_steps_is_ended_and_one_with_a_step_under_way_is_not() -> None:
    with serving(SlowActor, grpc_port=0, idle_s=0.3) as url, stub_of(url) as stub:
        stub.Start(step("a", 0))
        held = threading.Event()

        def one_and_wait(request: Any) -> Iterator[Any]:
            yield request
            held.wait(30)

        busy = stub.Play(one_and_wait(step("a", 1, b"wait", kind=TICK)))
        idle = stub.Play(one_and_wait(step("", None)))
        next(idle)
        with pytest.raises(grpc.RpcError, match=r"there was no step for 0\.3 s") as caught:
            next(idle)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        SlowActor.gate.set()
        assert next(busy).data == b"1:wait"
        held.set()


def test_a_server_that_leaves_ends_sessions_and_streams_without_delay() -> None:
    ends: list[str] = []

    class Noting(EchoActor):
        def end(self, data: bytes, reason: str = "") -> bytes:
            ends.append(reason)
            return b""

    held = threading.Event()
    with serving(Noting, grpc_port=0) as url, stub_of(url) as stub:
        stream = stub.Play(iter(lambda: held.wait(30) and None, None))
        stub.Start(step("a", 0))
    with pytest.raises(grpc.RpcError):
        next(stream)
    held.set()
    assert ends == ["shutdown"]


# --- who may call, and what is no message


def test_tls_and_a_token_let_a_game_in(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    options = {"tls_cert": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem"), "token": "T"}
    with serving(EchoActor, grpc_port=0, **options) as url:
        assert url.grpc.startswith("grpcs://")
        with GrpcGameClient(url.grpc, token="T", ca=tmp_path / "ca.pem") as game:
            assert game.start(b"x") == b"x"
        with GrpcGameClient(url.grpc, token="F", ca=tmp_path / "ca.pem") as game, pytest.raises(GameError, match="401"):
            game.start()


def test_health_says_whether_a_session_could_begin() -> None:
    with serving(EchoActor, grpc_port=0, max_sessions=1, token="T") as url, stub_of(url) as stub:
        assert health_of(stub.channel, wire.SERVICE, timeout_s=10) == "SERVING"
        with GrpcGameClient(url.grpc, token="T") as game:
            game.start()
            eventually(lambda: health_of(stub.channel, wire.SERVICE, timeout_s=10) == "NOT_SERVING")
            game.end()
            eventually(lambda: health_of(stub.channel, wire.SERVICE, timeout_s=10) == "SERVING")


def test_calls_and_streams_are_counted() -> None:
    with serving(EchoActor, grpc_port=0) as url, stub_of(url) as stub:
        stub.Start(step("a", 0))
        refused(lambda: stub.Tick(step("a", 9)))
        stats = url.call(url.gateway.stats)
    assert stats["num_grpc_calls"] == 2
    assert stats["num_grpc_streams"] == 0
    assert sorted(stats["steps"]["counts"]) == [["start", "", 1], ["tick", "out_of_order", 1]]


def messages() -> st.SearchStrategy[bytes]:
    """Messages with any values in their fields, such with changed bytes, and any bytes at all."""
    text = st.text(max_size=20) | st.sampled_from(["live", "x" * 129, "é"])
    fields = {
        "session": text, "kind": st.integers(0, 2**31 - 1), "step": st.integers(0, 2**64 - 1),
        "data": st.binary(max_size=50), "run": text, "model": text, "version": text,
        "deadline_ms": st.integers(0, 2**32 - 1),
        "signature": st.builds(Signature, key=text, time_ms=st.integers(0, 2**64 - 1), token=text),
    }  # fmt: skip
    whole = st.fixed_dictionaries({}, optional=fields).map(lambda given: StepRequest(**given).SerializeToString())
    changed = st.tuples(whole, st.integers(0, 200), st.binary(min_size=1, max_size=3)).map(
        lambda it: it[0][: it[1] % (len(it[0]) + 1)] + it[2] + it[0][it[1] % (len(it[0]) + 1) :]
    )
    return whole | changed | st.binary(max_size=60)


_POSSIBLE = {grpc.StatusCode.OK, *wire.STATUSES.values()} - {grpc.StatusCode.INTERNAL}


def status(call: Callable[[], Any]) -> Any:
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("access", [{}, {"secret": "S"}])
def test_whatever_bytes_come_are_answered_or_refused_and_nothing_is_lost(access: dict[str, str]) -> None:
    with serving(CountingActor, grpc_port=0, **access) as url, GrpcGameClient(url.grpc, "safe", **access) as game:
        game.start()
        with grpc.insecure_channel(url.grpc.removeprefix("grpc://")) as channel:

            @given(st.lists(messages(), min_size=1, max_size=4), st.sampled_from(sorted(METHODS.values())))
            @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            def send(batch: list[bytes], method: str) -> None:
                found = status(lambda: channel.unary_unary(f"/{wire.SERVICE}/{method}")(batch[0], timeout=20))
                assert found in _POSSIBLE
                found = status(
                    lambda: list(channel.stream_stream(f"/{wire.SERVICE}/Play")(iter(batch), timeout=20)),
                )
                assert found in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT)

            send()
            for method in ("Pause", "../Start", "", "Start/"):
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary(f"/{wire.SERVICE}/{method}")(b"", timeout=20)
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert game.tick(b"x") == b"1:x"
        assert game.end() == b"1"


def test_bytes_that_are_not_even_http_2_cost_a_connection_and_no_more() -> None:
    with serving(CountingActor, grpc_port=0) as url, GrpcGameClient(url.grpc) as game:
        game.start()
        port = int(url.grpc.rpartition(":")[2])
        for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                connection.sendall(data)
                with contextlib.suppress(ConnectionError):
                    while connection.recv(4096):
                        pass
        assert game.tick(b"x") == b"1:x"


# --- clients


class Cutting:
    """A TCP proxy that cuts each connection after so many bytes from the server."""

    def __init__(self, port: int, *, after: int) -> None:
        self._to, self._after = port, after
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._server.getsockname()[1]}"
        self.num_cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                game, _ = self._server.accept()
                threading.Thread(target=self._pass, args=(game,), daemon=True).start()

    def _pass(self, game: socket.socket) -> None:
        left = self._after
        with game, socket.create_connection(("127.0.0.1", self._to)) as server:
            threading.Thread(target=self._forward, args=(game, server), daemon=True).start()
            with contextlib.suppress(OSError):
                while data := server.recv(4096):
                    game.sendall(data[:left])
                    left -= len(data)
                    if left <= 0:
                        self.num_cuts += 1
                        break
            for each in (game, server):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _forward(game: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := game.recv(4096):
                server.sendall(data)

    def __enter__(self) -> Cutting:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_every_tick_runs_once_though_connections_are_cut(is_async: bool) -> None:
    with serving(CountingActor, grpc_port=0) as url, Cutting(int(url.grpc.rpartition(":")[2]), after=900) as proxy:
        if is_async:

            async def play() -> list[bytes]:
                async with AsyncGrpcGameClient(proxy.url, "cut", retries=30) as game:
                    return [await game.start(), *[await game.tick(b"x") for _ in range(30)], await game.end()]

            answers = asyncio.run(play())
        else:
            with GrpcGameClient(proxy.url, "cut", retries=30) as game:
                answers = [game.start(), *[game.tick(b"x") for _ in range(30)], game.end()]
        assert proxy.num_cuts > 1
    assert answers == [b"started:", *[b"%d:x" % n for n in range(1, 31)], b"30"]


def test_a_step_without_a_number_is_not_sent_again() -> None:
    with serving(SlowActor, grpc_port=0) as url, GrpcGameClient(url.grpc, numbered=False, timeout_s=0.2) as game:
        game.start()
        with pytest.raises(errors.OutcomeUnknown, match="number the steps"):
            game.tick(b"wait")
        SlowActor.gate.set()


def test_a_client_keeps_deadlines_and_reports_problems_as_that_of_http_does() -> None:
    with serving(SlowActor, grpc_port=0) as url, GrpcGameClient(url.grpc, "a") as game:
        with pytest.raises(GameError) as caught:
            game.tick(b"x")
        assert (caught.value.code, caught.value.status) == ("unknown_session", 404)
        game.start()
        with pytest.raises(GameError, match="deadline_exceeded"):
            game.tick(b"wait", deadline_ms=20)
        SlowActor.gate.set()
        assert game.tick(b"x") == b"2:x"
        assert game.stateless(b"s") == b"1:s"
    with pytest.raises(errors.Unreachable, match="Is the server up"), GrpcGameClient(url.grpc, retries=1) as game:
        game.start()


# --- another language


class Balancing(EchoActor):
    """Answers CartPole as `ludus serve` does, by the rule that pushes to where the pole falls."""

    def start(self, session: Any, data: bytes) -> bytes:
        return b""

    def tick(self, data: bytes) -> bytes:
        _, _, angle, turn = json.loads(data)
        return json.dumps({"action": int(angle + turn > 0)}).encode()


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client of clients/js-grpc with its libraries: those of `make js`, or its own."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("there is no npm; it installs what the JavaScript client needs")
    folder = tmp_path_factory.mktemp("js") / "client"
    shutil.copytree(ROOT / "clients" / "js-grpc", folder)
    made = ROOT / ".js-grpc" / "node_modules"
    if made.is_dir():
        (folder / "node_modules").symlink_to(made)
        return folder
    words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install what the JavaScript client needs: {done.stderr[-500:]}")
    return folder


def play_cartpole(folder: Path, where: str, *words: str, token: str = "") -> subprocess.CompletedProcess[str]:
    command = ["node", "cartpole.mjs", where.removeprefix("grpc://"), "pole", *(words or ("300",)), str(ROOT / "src")]
    env = {**os.environ, "LUDUS_TOKEN": token}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_a_client_in_javascript_plays_cartpole_though_its_connection_is_cut(javascript: Path) -> None:
    with serving(Balancing, grpc_port=0, token="T") as url:
        with Cutting(int(url.grpc.rpartition(":")[2]), after=4000) as proxy:
            done = play_cartpole(javascript, proxy.url, token="T")
            assert (done.stdout, done.stderr) == ("balanced for 300 steps\n", "")
            assert proxy.num_cuts > 1
        stats = url.call(url.gateway.stats)
        assert (stats["ended"], stats["num_steps"]) == ({"asked": 1}, 301)
        refused = play_cartpole(javascript, url.grpc, token="wrong")
        assert (refused.stdout, refused.returncode) == ("error unauthorised\n", 1)


def test_a_gateway_without_the_door_does_not_import_grpc() -> None:
    code = "import sys, ludus.gateway.service, ludus.launch.template; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0


def test_without_a_grpc_port_there_is_no_door() -> None:
    with serving(EchoActor) as url, pytest.raises(errors.ConfigError, match="give a grpc_port"):
        _ = url.grpc
