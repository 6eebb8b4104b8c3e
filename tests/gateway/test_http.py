"""The gateway over real sockets: what is read, what is refused, what is answered in which order."""

import asyncio
import contextlib
import gc
import json
import logging
import socket
import ssl
import time
import weakref

import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

from ludus import errors
from ludus.gateway.actor import Actor
from ludus.gateway.auth import sign
from ludus.gateway.gateway import Gateway, GatewayOptions
from ludus.gateway.http.limits import HttpLimits
from ludus.gateway.session_core import SessionLimits
from ludus.gateway.thread import GatewayThread


class Echo(Actor):
    def start(self, session, data):
        self.num_ticks = 0
        return data

    def tick(self, data):
        self.num_ticks = getattr(self, "num_ticks", 0) + 1
        return data + b"/%d" % self.num_ticks

    def end(self, data):
        return b"%d" % self.num_ticks


class Sleeper(Echo):
    async def tick(self, data):
        await asyncio.sleep(float(data or b"0.05"))
        return Echo.tick(self, data)


class Client:
    """A keep-alive connection, by hand."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def write(self, kind=None, session=None, data=b"", path="/step", method="POST", **headers):
        lines = [f"{method} {path} HTTP/1.1", "host: x", f"content-length: {len(data)}"]
        lines += [f"session: {session}"] if session else []
        lines += [f"step_kind: {kind}"] if kind else []
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    async def read(self):
        status = int((await self.reader.readline()).split()[1])
        headers = {}
        while (line := (await self.reader.readline()).strip()) != b"":
            name, _, value = line.partition(b": ")
            headers[name.decode()] = value.decode()
        return status, headers, await self.reader.readexactly(int(headers["content-length"]))

    async def ask(self, *args, **kwargs):
        self.write(*args, **kwargs)
        return await asyncio.wait_for(self.read(), 10)

    async def code(self, *args, **kwargs):
        status, headers, body = await self.ask(*args, **kwargs)
        assert headers["content-type"] == "application/problem+json"
        report = json.loads(body)
        assert report["status"] == status
        return report["code"]


@contextlib.asynccontextmanager
async def serving(cls=Echo, **options):
    gateway = Gateway(cls, GatewayOptions(**options))
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop(1.0)


_connected: list[Client] = []  # by the test that runs; closed at its end


async def connect(gateway, **kwargs):
    client = Client(*await asyncio.open_connection("127.0.0.1", gateway.port, **kwargs))
    _connected.append(client)
    return client


def run_closing(test, limit_s=60):
    """Run a test and close its clients."""

    async def closing():
        try:
            await asyncio.wait_for(test(), limit_s)
        finally:
            while _connected:
                writer = _connected.pop().writer
                writer.close()
                with contextlib.suppress(OSError):  # the gateway may have hung up before
                    await writer.wait_closed()

    asyncio.run(closing())


def run(test):
    def wrapped():
        run_closing(test)

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@run
async def test_a_game_over_one_connection_and_over_many():
    async with serving() as gateway:
        one = await connect(gateway)
        assert (await one.ask("start", "a", b"hi"))[2] == b"hi"
        assert (await one.ask("tick", "a", b"x", step=1))[2] == b"x/1"
        other = await connect(gateway)
        status, headers, body = await other.ask("tick", "a", b"x", step=1)
        assert (status, body, headers["session"]) == (200, b"x/1", "a")
        assert (await other.ask("tick", "a", b"y", step=2))[2] == b"y/2"
        assert (await one.ask("end", "a", step=3))[2] == b"2"
        assert await one.code("tick", "a") == "unknown_session"


@run
async def test_older_names_and_spellings_are_understood():
    async with serving() as gateway:
        client = await connect(gateway)
        assert (await client.ask(**{"Game_Id": "g", "STEP_KIND": "start"}))[0] == 200
        assert (await client.ask(**{"game-id": "g", "step-kind": "tick", "Step": "1"}))[0] == 200
        assert (await client.ask(**{"game_id": "g", "session": "g", "step_kind": "stop"}))[2] == b"1"
        assert await client.code(**{"game_id": "g", "session": "h", "step_kind": "tick"}) == "bad_request"


@run
async def test_a_request_without_a_kind_is_stateless():
    async with serving() as gateway:
        client = await connect(gateway)
        assert [(await client.ask(data=b"z"))[2] for _ in range(2)] == [b"z/1", b"z/2"]


@pytest.mark.parametrize(
    "headers",
    [
        {"step_kind": "begin", "session": "a"},
        {"step_kind": "tick"},
        {"step_kind": "tick", "session": "a b"},
        {"step_kind": "tick", "session": "x" * 129},
        {"step_kind": "tick", "session": ""},
        {"step_kind": "tick", "session": "a", "step": "-1"},
        {"step_kind": "tick", "session": "a", "step": "1.5"},
        {"step_kind": "tick", "session": "a", "step": "9" * 30},
        {"step_kind": "tick", "session": "a", "deadline_ms": "0"},
        {"step_kind": "tick", "session": "a", "deadline_ms": "soon"},
        {"step_kind": "start", "session": "a", "run": "é"},
        {"step_kind": "start", "session": "a", "version": "a/b"},
    ],
)
def test_malformed_headers_are_named_and_the_connection_goes_on(headers):
    async def test():
        async with serving() as gateway:
            client = await connect(gateway)
            assert await client.code(**headers) == "bad_request"
            assert (await client.ask("start", "a"))[0] == 200

    run_closing(test)


@run
async def test_paths_and_methods():
    async with serving() as gateway:
        client = await connect(gateway)
        assert await client.code(path="/nowhere") == "not_found"
        assert await client.code(method="GET") == "method_not_allowed"
        assert await client.code(path="/metrics") == "method_not_allowed"
        for path in ("/healthz", "/readyz"):
            assert (await client.ask(path=path, method="GET"))[0] == 200


@run
async def test_pipelined_requests_are_answered_in_order_even_if_later_ones_are_quicker():
    async with serving(Sleeper) as gateway:
        client = await connect(gateway)
        await client.ask("start", "a")
        await client.ask("start", "b")
        client.write("tick", "a", b"0.2")
        client.write("tick", "b", b"0.0")
        client.write(path="/healthz", method="GET")
        assert (await client.read())[2] == b"0.2/1"
        assert (await client.read())[2] == b"0.0/1"
        assert (await client.read())[2] == b"alive\n"


@run
async def test_chunked_bodies_and_split_packets_are_read_whole():
    async with serving() as gateway:
        client = await connect(gateway)
        await client.ask("start", "a")
        head = b"POST /step HTTP/1.1\r\nhost: x\r\nsession: a\r\nstep_kind: tick\r\ntransfer-encoding: chunked\r\n\r\n"
        for byte in head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert (await client.read())[2] == b"abcde/1"


@run
async def test_what_is_too_large_is_refused_and_the_connection_closed():
    async with serving(http=HttpLimits(max_body_bytes=1000, max_header_bytes=2000, max_headers=20)) as gateway:
        for write in (
            lambda client: client.write("start", "a", b"x" * 1001),
            lambda client: client.write("start", "a", **{f"h{n}": "1" for n in range(30)}),
            lambda client: client.writer.write(b"POST /step HTTP/1.1\r\nlong: " + b"x" * 5000),
            lambda client: client.writer.write(
                b"POST /step HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000 + b"\r\n"
            ),
        ):
            client = await connect(gateway)
            write(client)
            status, headers, body = await client.read()
            assert (status, json.loads(body)["code"], headers["connection"]) == (413, "too_large", "close")
            assert await client.reader.read() == b""


@pytest.mark.parametrize(
    "junk", [b"\0\1\2\3\r\n\r\n", b"GET\r\n\r\n", b"POST /step HTTP/1.1\r\ncontent-length: x\r\n\r\n"]
)
def test_what_is_not_http_is_refused_and_the_connection_closed(junk):
    async def test():
        async with serving() as gateway:
            client = await connect(gateway)
            client.writer.write(junk)
            status, _headers, body = await client.read()
            assert (status, json.loads(body)["code"]) == (400, "bad_request")
            assert await client.reader.read() == b""

    run_closing(test)


@run
async def test_slow_and_idle_clients_are_cut_off():
    async with serving(http=HttpLimits(request_s=0.5, idle_s=0.8)) as gateway:
        slow, idle = await connect(gateway), await connect(gateway)
        began = time.monotonic()
        slow.writer.write(b"POST /step HTTP/1.1\r\n")

        async def drip():
            with contextlib.suppress(ConnectionError):
                while True:
                    slow.writer.write(b"x: 1\r\n")
                    await asyncio.sleep(0.05)

        dripping = asyncio.ensure_future(drip())
        status, _headers, body = await slow.read()
        assert (status, json.loads(body)["code"]) == (408, "timeout")
        assert time.monotonic() - began < 30
        dripping.cancel()
        assert await idle.reader.read() == b"", "closed without a word"


@run
async def test_more_connections_than_allowed_are_turned_away():
    async with serving(http=HttpLimits(max_connections=2)) as gateway:
        kept = [await connect(gateway) for _ in range(2)]
        for client in kept:
            await client.ask(path="/healthz", method="GET")
        extra = await connect(gateway)
        assert (await extra.read())[0] == 503
        kept[0].writer.close()
        await asyncio.sleep(0.05)
        assert (await (await connect(gateway)).ask(path="/healthz", method="GET"))[0] == 200


@run
async def test_a_full_gateway_answers_503_with_retry_after():
    async with serving(sessions=SessionLimits(max_sessions=1)) as gateway:
        client = await connect(gateway)
        await client.ask("start", "a")
        status, headers, body = await client.ask("start", "b")
        assert (status, headers["retry-after"], json.loads(body)["code"]) == (503, "1", "overloaded")
        assert (await client.ask(path="/readyz", method="GET"))[0] == 503


@run
async def test_a_bearer_token_is_asked_for():
    async with serving(token="open sesame") as gateway:
        client = await connect(gateway)
        assert await client.code("start", "a") == "unauthorised"
        assert await client.code("start", "a", authorization="Bearer open barley") == "unauthorised"
        assert (await client.ask("start", "a", authorization="Bearer open sesame"))[0] == 200
        for path in ("/sessions", "/metrics", "/sessions?x", "http://x/metrics"):
            assert await client.code(path=path, method="GET") == "unauthorised"
        assert (await client.ask(path="/healthz", method="GET"))[0] == 200
        client.write(path="/metrics", method="HEAD")
        assert (await client.reader.readline()).split()[1] == b"401"


def signed(secret, kind, session, data, step="", off_s=0.0):
    now = int((time.time() + off_s) * 1e3)
    token = sign(secret, key="k1", time_ms=now, session=session, step_kind=kind, step=step, data=data)
    more = {"step": step} if step else {}
    return {"kind": kind, "session": session, "data": data, "key": "k1", "time": now, "token": token, **more}


@run
async def test_signatures_are_checked_and_good_once():
    async with serving(secret="s3cret") as gateway:
        client = await connect(gateway)
        start = signed("s3cret", "start", "a", b"hi")
        assert (await client.ask(**start))[0] == 200
        assert await client.code(**signed("wrong", "tick", "a", b"x")) == "unauthorised"
        assert await client.code(**{**signed("s3cret", "tick", "a", b"x"), "data": b"y"}) == "unauthorised"
        assert await client.code(**signed("s3cret", "tick", "a", b"x", off_s=-60)) == "unauthorised"
        assert await client.code("tick", "a", b"x") == "unauthorised"
        tick = signed("s3cret", "tick", "a", b"x")
        assert (await client.ask(**tick))[2] == b"x/1"
        assert await client.code(**tick) == "replayed"
        numbered = signed("s3cret", "tick", "a", b"z", step="2")
        assert (await client.ask(**numbered))[2] == b"z/2"
        assert (await client.ask(**numbered))[2] == b"z/2", "a numbered step may be repeated as it is"
        assert await client.code(path="/sessions", method="GET") == "unauthorised"
        page = {**signed("s3cret", "", "", b""), "path": "/sessions", "method": "GET"}
        assert (await client.ask(**page))[0] == 200


def test_beyond_loopback_a_token_is_needed():
    with pytest.raises(errors.Unauthorised, match="token"):
        GatewayOptions(host="0.0.0.0")


@run
async def test_tls():
    authority = trustme.CA()
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        cert = authority.issue_cert("localhost")
        cert.private_key_pem.write_to_path(f"{folder}/key.pem")
        cert.cert_chain_pems[0].write_to_path(f"{folder}/cert.pem")
        async with serving(tls_cert=f"{folder}/cert.pem", tls_key=f"{folder}/key.pem") as gateway:
            trusting = ssl.create_default_context()
            authority.configure_trust(trusting)
            client = await connect(gateway, ssl=trusting, server_hostname="localhost")
            assert (await client.ask("start", "a", b"hi"))[2] == b"hi"


@run
async def test_metrics_are_prometheus_and_sessions_are_listed():
    async with serving() as gateway:
        client = await connect(gateway)
        await client.ask("start", "a")
        await client.ask("tick", "a", step=1)
        await client.code("tick", "nobody")
        text = (await client.ask(path="/metrics", method="GET"))[2].decode()
        found = {
            (sample.name, sample.labels.get("kind"), sample.labels.get("code")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert found["ludus_steps_total", "tick", "ok"] == 1
        assert found["ludus_steps_total", "tick", "unknown_session"] == 1
        assert found["ludus_sessions", None, None] == 1
        report = json.loads((await client.ask(path="/sessions", method="GET"))[2])
        assert report["num_sessions"] == 1
        assert (report["sessions"][0]["session"], report["sessions"][0]["step"]) == ("a", 1)


@contextlib.asynccontextmanager
async def ring(tmp_path, size=3, cls=Echo, **options):
    """Several workers on one port, here in one process."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = []
    for index in range(size):
        made.append(Gateway(cls, GatewayOptions(port=port, folder=tmp_path, **options), index=index, size=size))
        await made[-1].start()
    try:
        yield made
    finally:
        for gateway in made:
            await gateway.stop(1.0)


def test_any_connection_carries_any_session_whichever_worker_has_it(tmp_path):
    async def test():
        async with ring(tmp_path) as workers:
            clients = [await connect(workers[0]) for _ in range(12)]
            for number in range(24):
                assert (await clients[number % 12].ask("start", f"s{number}"))[0] == 200
            for step in range(1, 4):
                for number in range(24):
                    client = clients[(number * 5 + step) % 12]
                    assert (await client.ask("tick", f"s{number}", b"x", step=step))[2] == b"x/%d" % step
            report = json.loads((await clients[0].ask(path="/sessions", method="GET"))[2])
            assert report["num_sessions"] == 24
            assert {each["worker"] for each in report["sessions"]} == {0, 1, 2}
            assert sum(worker.stats()["num_forwarded"] for worker in workers) > 24
            for number in range(24):
                assert (await clients[0].ask("end", f"s{number}"))[2] == b"3"

    run_closing(test)


@run
async def test_an_offer_of_another_protocol_is_declined_and_the_request_read_whole():
    async with serving() as gateway:
        client = await connect(gateway)
        offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAAB"}
        assert (await client.ask("start", "a", b"map 7", **offer))[2] == b"map 7"
        client.write("tick", "a", b"x", **offer)
        client.write("tick", "a", b"y")
        assert [(await client.read())[2] for _ in range(2)] == [b"x/1", b"y/2"]
        for piece in (
            b"POST /step HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-le",
            b"ngth: 2\r\n\r\nz",
            b"z",
        ):
            client.writer.write(piece)
            await asyncio.sleep(0.02)
        assert (await client.read())[2] == b"zz/1"
        assert await client.code(method="CONNECT") == "bad_request"
        assert await client.reader.read() == b""


@run
async def test_what_comes_behind_a_body_in_chunks_is_no_header_and_limited():
    async with serving() as gateway:
        client = await connect(gateway)
        await client.ask("start", "a")
        await client.ask("start", "b")
        chunks = b"1\r\nx\r\n0\r\nsession: b\r\nstep_kind: end\r\nx: 1\r\nx: 2\r\n\r\n"
        head = b"POST /step HTTP/1.1\r\nhost: x\r\nsession: a\r\nstep_kind: tick\r\ntransfer-encoding: chunked\r\n\r\n"
        client.writer.write(head + chunks)
        status, headers, body = await client.read()
        assert (status, headers["session"], body) == (200, "a", b"x/1")
        assert (await client.ask("tick", "b", b"y"))[2] == b"y/1"
        client.writer.write(head + b"1\r\nx\r\n0\r\n")
        for number in range(100):
            client.writer.write(b"x-%d: %b\r\n" % (number, b"v" * 1000))
            await asyncio.sleep(0.001)
        assert (await client.read())[0] == 413


@run
async def test_a_refusal_waits_for_the_answers_to_what_was_asked_before():
    async with serving(Sleeper) as gateway:
        client = await connect(gateway)
        await client.ask("start", "a")
        client.write("tick", "a", b"0.1")
        client.write("tick", "a", b"0.01")
        client.writer.write(b"nonsense\r\n\r\n")
        assert [(await client.read())[2] for _ in range(2)] == [b"0.1/1", b"0.01/2"]
        assert (await client.read())[0] == 400
        assert await client.reader.read() == b""


@run
async def test_a_game_that_is_refused_while_it_sends_gets_to_read_why():
    def send_too_much():
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as game:
            game.sendall(b"POST /step HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n")
            for _ in range(3):
                game.sendall(bytes(1_000_000))
                time.sleep(0.05)
            return game.recv(1000)

    async with serving(http=HttpLimits(max_body_bytes=1000)) as gateway:
        assert (await asyncio.to_thread(send_too_much)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("turn_s", [0.0, 0.001])
def test_all_answers_reach_a_game_that_sends_nothing_more(turn_s, monkeypatch):
    """Also those to what is parsed in later turns, the last of which may be that in which the game's end is read."""
    monkeypatch.setattr("ludus.gateway.http.connection._TURN_S", turn_s)
    asked = b"POST /step HTTP/1.1\r\nhost: x\r\ncontent-length: 3000\r\n\r\n" + b"x" * 3000
    with GatewayThread(Echo) as gateway:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as game:
                game.sendall(asked * 10)
                game.shutdown(socket.SHUT_WR)
                received = b"".join(iter(lambda game=game: game.recv(65536), b""))
                assert received.count(b"HTTP/1.1 200 OK") == received.count(b"x" * 3000) == 10


@run
async def test_a_connection_that_the_game_half_closed_is_closed_after_its_last_answer():
    async with serving(Sleeper) as gateway:
        client = await connect(gateway)
        client.write(data=b"0.1")
        client.writer.write_eof()
        assert (await client.read())[2] == b"0.1/1"
        assert await asyncio.wait_for(client.reader.read(), 5) == b""


@run
async def test_an_empty_line_between_requests_begins_none():
    async with serving(http=HttpLimits(request_s=0.2)) as gateway:
        client = await connect(gateway)
        await client.ask(data=b"x")
        client.writer.write(b"\r\n")
        await asyncio.sleep(1.0)
        assert (await client.ask(data=b"x"))[2] == b"x/2"


@run
async def test_a_deadline_counts_from_the_arrival_of_its_request_also_behind_others():
    async with serving(Sleeper) as gateway:
        client = await connect(gateway)
        await client.ask("start", "a")
        began = time.monotonic()
        client.write("tick", "a", b"1.0")
        client.write("tick", "a", b"300", deadline_ms=1200)
        assert (await client.read())[0] == 200
        assert (await client.read())[0] == 504
        assert time.monotonic() - began < 30.0


@run
async def test_a_refusal_is_sent_also_when_the_game_was_slow_to_read():
    async with serving(Sleeper) as gateway:
        client = await connect(gateway)
        client.write(data=b"0.2")
        client.writer.write(b"nonsense\r\n\r\n")
        await asyncio.sleep(0.05)
        (connection,) = gateway.http.connections
        connection.pause_writing()
        connection.resume_writing()
        assert (await client.read())[2] == b"0.2/1"
        assert (await asyncio.wait_for(client.read(), 5))[0] == 400


@run
async def test_a_connection_that_is_gone_is_freed_without_a_garbage_collection():
    gc.collect()
    gc.disable()
    try:
        async with serving() as gateway:
            client = await connect(gateway)
            await client.ask(data=b"x")
            gone = weakref.ref(next(iter(gateway.http.connections)))
            client.writer.close()
            while gateway.http.connections:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.01)
            assert gone() is None
    finally:
        gc.enable()


@run
async def test_a_failure_of_the_server_itself_has_an_id_and_a_traceback_in_the_log():
    def fail(step, done):
        raise RuntimeError("as the test wants it")

    with _logged("ludus.gateway.http.outbox") as lines:
        async with serving() as gateway:
            gateway.step = fail
            status, _, body = await (await connect(gateway)).ask(data=b"x")
            client = await connect(gateway)
            client.write(path="/metrics", method="GET")  # which is answered later
            client.write(data=b"x")
            assert (await client.read())[0] == 200
            status_behind, _, body_behind = await asyncio.wait_for(client.read(), 5)
    assert (status, status_behind) == (500, 500)
    for line, result in zip(lines, (body, body_behind), strict=True):
        assert json.loads(result)["code"] == "server_failed"
        assert json.loads(result)["id"] in line
        assert "as the test wants it" in line


@contextlib.contextmanager
def _logged(name):
    """What was logged, with tracebacks."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(logging.Formatter().format(record))
    logging.getLogger(name).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(name).removeHandler(handler)
