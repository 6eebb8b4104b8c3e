"""The load generator of benchmarks/gateway.py counts right: against a tiny server that keeps books of its own."""

import asyncio
import contextlib
import importlib
import shutil
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ludus.gateway.actor import Actor
from ludus.gateway.gateway import Gateway, GatewayOptions

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
OCTETS = "content-type: application/octet-stream"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the load generator")


def answer(body: bytes, status: str = "200 OK", *extra: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", OCTETS, *extra, f"Content-Length: {len(body)}"])
    return head.encode() + b"\r\n\r\n" + body


class TinyServer:
    """Answers by `reply(headers, body)`: what it sends, in one or several pieces. Books are kept by session."""

    def __init__(self, reply: Callable[[dict[str, str], bytes], list[bytes]]) -> None:
        self._reply = reply
        self.port = 0
        self.steps: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.kinds: Counter[str] = Counter()
        self.num_connections = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.split(": ", 1) for line in lines[1:] if line)
                body = await reader.readexactly(int(headers["content-length"]))
                kind = headers.get("step_kind", "")
                self.kinds[kind] += 1
                self.steps[headers.get("session", "")].append((kind, int(headers.get("step", -1))))
                pieces = self._reply(headers, body)
                for number, piece in enumerate(pieces):
                    if number:
                        await asyncio.sleep(0.002)  # so that it is read apart
                    writer.write(piece)
                if any(b"connection: close" in piece for piece in pieces):
                    break
        writer.close()

    async def _hang_up(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    @contextlib.contextmanager
    def running(self) -> Iterator["TinyServer"]:
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(server.close)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(5.0)
            loop.run_until_complete(self._hang_up())
            loop.close()


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Runs the load generator: `load(port, **options)`."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        generator = importlib.import_module("loadgen.generator").LoadGenerator.build(tmp_path_factory.mktemp("loadgen"))
    finally:
        sys.path.remove(str(BENCHMARKS))

    def run(port: int, **options):
        options = {"seconds": 0.4, "connections": 4, "warmup_s": 0.1, "body_bytes": 64, **options}
        return generator.run("127.0.0.1", port, **options)

    return run


def test_every_session_starts_ticks_in_order_and_ends(load):
    with TinyServer(lambda headers, body: [answer(body)]).running() as server:
        found = load(server.port, connections=5, warmup_s=0.0, expect_echo=True)
    assert server.kinds["start"] == server.kinds["end"] == server.num_connections == 5
    assert len(server.steps) == 5
    for steps in server.steps.values():
        kinds, numbers = zip(*steps, strict=True)
        assert kinds == ("start", *["tick"] * (len(steps) - 2), "end")
        assert numbers == tuple(range(len(steps)))
    assert found["errors"] == found["wrong"] == found["disconnects"] == found["unanswered"] == 0
    # Without a warm-up all ticks count but the last of each connection, which may be answered after the window.
    assert server.kinds["tick"] - 5 <= found["requests"] <= server.kinds["tick"]
    assert found["requests_per_second"] == pytest.approx(found["requests"] / 0.4, rel=1e-3)
    assert 0 < found["p50_us"] <= found["p95_us"] <= found["p99_us"] <= found["max_us"]
    assert found["bytes"] >= found["requests"] * 2 * 64


def test_the_warm_up_does_not_count(load):
    with TinyServer(lambda headers, body: [answer(body)]).running() as server:
        found = load(server.port, seconds=0.2, warmup_s=0.6)
    assert 0 < found["requests"] < 0.6 * server.kinds["tick"]


def test_without_sessions_there_are_ticks_only_and_no_such_headers(load):
    with TinyServer(lambda headers, body: [answer(body)]).running() as server:
        found = load(server.port, sessions=False)
    assert set(server.kinds) == {""}
    assert set(server.steps) == {""}
    assert found["requests"] > 0


def test_answers_other_than_200_are_errors_and_their_step_is_sent_again(load):
    refused = set()

    def reply(headers, body):
        key = (headers["session"], headers["step"])
        if headers["step"] == "3" and key not in refused:
            refused.add(key)
            return [answer(b"", "503 Service Unavailable", "retry-after: 0")]
        return [answer(body)]

    with TinyServer(reply).running() as server:
        found = load(server.port)
    assert found["errors"] == 4
    assert found["statuses"] == {"503": 4}
    for steps in server.steps.values():
        numbers = [number for _, number in steps]
        assert numbers[:5] == [0, 1, 2, 3, 3]
        assert sorted(set(numbers)) == list(range(len(steps) - 1))


def test_an_answer_that_is_not_the_echo_is_wrong(load):
    with TinyServer(lambda headers, body: [answer(body[::-1])]).running() as server:
        assert load(server.port, expect_echo=True)["wrong"] > 0
        assert load(server.port, expect_bytes=64)["wrong"] == 0
        assert load(server.port, expect_bytes=1)["wrong"] > 0


def test_answers_in_pieces_and_in_chunks_are_read_whole(load):
    def reply(headers, body):
        if int(headers["step"]) % 2:
            whole = answer(body)
            return [whole[:10], whole[10:70], whole[70:]]
        head = f"HTTP/1.1 200 OK\r\n{OCTETS}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        middle = len(body) // 2
        chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:middle], body[middle:]) if part]
        return [head, *chunks, b"0\r\n\r\n"]

    with TinyServer(reply).running() as server:
        found = load(server.port, expect_echo=True)
    assert found["requests"] > 8
    assert found["errors"] == found["wrong"] == 0


def test_bodies_larger_than_a_socket_takes_at_once_arrive_in_turn(load, tmp_path):
    size = 3_000_000
    bodies = [bytes([number]) * size for number in range(3)]
    (tmp_path / "bodies").write_bytes(b"".join(bodies))
    seen = set()

    def reply(headers, body):
        if body:
            assert body == bodies[body[0]]
            seen.add(body[0])
        return [answer(body)]

    with TinyServer(reply).running() as server:
        for _ in range(50):  # a slow machine gets few of them across in one go
            found = load(server.port, body_bytes=size, body_file=tmp_path / "bodies", expect_echo=True, connections=2)
            assert found["requests"] > 0
            assert found["wrong"] == found["errors"] == 0
            if seen == {0, 1, 2}:
                break
    assert seen == {0, 1, 2}


def test_a_server_that_hangs_up_is_called_again_with_the_same_step(load):
    with TinyServer(
        lambda headers, body: [answer(body, "200 OK", *["connection: close"] * (headers["step"] == "2"))]
    ).running() as server:
        found = load(server.port)
    assert server.num_connections == 8
    assert found["errors"] == 0
    assert all([number for _, number in steps] == list(range(len(steps))) for steps in server.steps.values())


def test_an_open_loop_sends_at_its_rate(load):
    with TinyServer(lambda headers, body: [answer(body)]).running() as server:
        found = load(server.port, rate=500.0, seconds=0.6)
    assert found["requests"] == pytest.approx(300, abs=1)
    assert server.kinds["tick"] == pytest.approx(350, abs=2)
    assert found["p50_us"] < 100_000


def test_an_open_loop_charges_a_stall_to_all_that_should_have_been_sent(load):
    ticks = []

    def reply(headers, body):
        if headers["step_kind"] == "tick":
            ticks.append(headers["step"])
            if len(ticks) == 100:
                time.sleep(0.4)
        return [answer(body)]

    with TinyServer(reply).running() as server:
        found = load(server.port, rate=400.0, seconds=1.0, warmup_s=0.0)
    assert found["requests"] == pytest.approx(400, abs=1)  # nobody is left out
    # 0.4 s × 400/s: 160 of 400 waited for 0.2 s on average. A generator that waits with its server would see only four.
    assert found["p95_us"] > 250_000
    assert found["p50_us"] < 150_000
    assert found["wait_p50_us"] < found["p50_us"] + 1.0
    # Each of the four connections had one tick outstanding in the stall: that many of 400 were waited for so long.
    assert found["wait_p95_us"] < 150_000 < found["wait_max_us"]


def test_it_cannot_run_where_nobody_listens(load):
    with TinyServer(lambda headers, body: [answer(body)]).running() as server:
        port = server.port
    with pytest.raises(Exception, match="cannot connect"):
        load(port)


def test_the_gateway_answers_it_without_an_error(load, tmp_path):
    class Echo(Actor):
        def tick(self, data):
            return data

    loop = asyncio.new_event_loop()
    gateway = Gateway(Echo, GatewayOptions(folder=tmp_path))
    loop.run_until_complete(gateway.start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        found = load(gateway.port, connections=16, body_bytes=1024, expect_echo=True)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5.0)
        loop.run_until_complete(gateway.stop())
        loop.close()
    assert found["requests"] > 100
    assert found["errors"] == found["wrong"] == found["disconnects"] == 0
    assert gateway.stats()["num_started"] == gateway.stats()["ended"]["asked"] == 16
