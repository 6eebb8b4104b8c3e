"""Clients that mean harm, over real sockets: what they are answered, what they cost, and that others do not notice."""

import asyncio
import contextlib
import json
import time

import pytest
from test_http import Client, Echo, Sleeper, connect, run, run_closing, serving, signed

from ludus.gateway.auth import sign
from ludus.gateway.gateway import Gateway, GatewayOptions
from ludus.gateway.http.limits import HttpLimits
from ludus.gateway.session_core import SessionLimits

OFFER = b"connection: upgrade\r\nupgrade: h2c\r\n"


def head(*lines, first=b"POST /step HTTP/1.1", host=b"host: x"):
    return b"\r\n".join([first, *([host] if host else []), *lines, b"", b""])


def chunks(*parts):
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


async def until(condition):
    """Wait for it, however busy the machine is."""
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")


async def refusal(client, status):
    """The next answer is this, and then the connection is closed; its code."""
    found, headers, body = await asyncio.wait_for(client.read(), 60)
    assert (found, headers["connection"]) == (status, "close"), body
    assert await asyncio.wait_for(client.reader.read(), 60) == b""
    return json.loads(body)["code"]


# -- offers of another protocol -------------------------------------------------------------------------------------


@run
async def test_an_offer_of_another_protocol_with_a_body_in_chunks_loses_no_header():
    async with serving() as gateway:
        client = await connect(gateway)
        await client.ask("start", "a")
        tick = head(b"session: a", b"step_kind: tick", OFFER + b"transfer-encoding: chunked")
        client.writer.write(tick + chunks(b"x", b"yz"))
        status, headers, body = await client.read()
        assert (status, headers.get("session"), body) == (200, "a", b"xyz/1")
        client.writer.write(tick + chunks(b"p") + tick + chunks(b"q") + head(b"session: a", b"step_kind: end"))
        assert [(await client.read())[2] for _ in range(3)] == [b"p/2", b"q/3", b"3"]


@pytest.mark.parametrize("framing", [b"transfer-encoding: chunked", b"content-length: 3", b"x: no body"])
def test_wherever_an_offer_of_another_protocol_is_cut_it_is_read_as_one_request(framing):
    body = {b"t": chunks(b"ab", b"c"), b"c": b"abc"}.get(framing[:1], b"")
    data = head(b"session: a", b"step_kind: tick", OFFER + framing) + body
    expected = (b"abc" if body else b"") + b"/%d"

    async def test():
        async with serving() as gateway:
            client = await connect(gateway)
            await client.ask("start", "a")
            (connection,) = gateway.http.connections
            for number, at in enumerate(range(len(data)), 1):
                connection.data_received(data[:at])  # as the transport would
                connection.data_received(data[at:])
                status, headers, answer = await client.read()
                assert (status, headers["session"], answer) == (200, "a", expected % number), data[:at]

    run_closing(test)


@run
async def test_many_offers_in_one_packet_are_declined_one_by_one():
    async with serving() as gateway:
        client = await connect(gateway)
        small = head(OFFER + b"content-length: 1") + b"x"
        for number in (100, 1200):  # in one piece, and in many
            client.writer.write(small * number + head(first=b"GET /healthz HTTP/1.1"))
            answers = await asyncio.wait_for(read_all(client, number + 1), 60)
            assert [body.partition(b"/")[0] for *_, body in answers] == [b"x"] * number + [b"alive\n"]


async def read_all(client, count):
    return [await client.read() for _ in range(count)]


@run
async def test_an_offer_that_also_closes_or_waits_to_be_asked_is_answered_so():
    async with serving() as gateway:
        client = await connect(gateway)
        client.writer.write(head(b"connection: close", OFFER + b"content-length: 1") + b"x" + head())
        status, headers, body = await client.read()
        assert (status, headers["connection"], body) == (200, "close", b"x/1")
        assert await client.reader.read() == b"", "and what came behind it was not run"
        client = await connect(gateway)
        client.writer.write(head(OFFER + b"content-length: 1", b"expect: 100-continue"))
        assert await client.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.writer.write(b"y")
        assert (await client.read())[2] == b"y/2", "a second 100 would have been read here"


# -- what HTTP says of requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (head(host=None), 400, "bad_request"),
        (head(b"host: x"), 400, "bad_request"),
        (head(b"HOST: y"), 400, "bad_request"),
        (head(host=b"host: a b"), 400, "bad_request"),
        (head(host=b"host: a/b"), 400, "bad_request"),
        (head(b"connection: keep-alive", host=None), 400, "bad_request"),
        (head(first=b"POST /step HTTP/2.0"), 505, "version_not_supported"),
        (head(b"connection: keep-alive", first=b"POST /step HTTP/2.0"), 505, "version_not_supported"),
        (head(first=b"POST /step HTTP/0.9"), 505, "version_not_supported"),
        (head(first=b"POST /step HTTP/1.2"), 505, "version_not_supported"),
        (head(first=b"POST /step HTTP/3.0"), 505, "version_not_supported"),
        (b"POST /step\r\n\r\n", 505, "version_not_supported"),
        (head(b"transfer-encoding: gzip, chunked") + chunks(b"x"), 501, "not_implemented"),
        (head(b"Transfer-Encoding: GZIP,Chunked") + chunks(b"x"), 501, "not_implemented"),
        (head(b"transfer-encoding: gzip"), 400, "bad_request"),
        (head(b"transfer-encoding: chunked, gzip"), 400, "bad_request"),
        (head(b"transfer-encoding: chunked, chunked") + chunks(b"x"), 400, "bad_request"),
        (head(b"transfer-encoding: gzip", b"transfer-encoding: chunked") + chunks(b"x"), 400, "bad_request"),
        (head(b"transfer-encoding: chunked", first=b"POST /step HTTP/1.0") + chunks(b"x"), 400, "bad_request"),
        (head(first=b"CONNECT x:80 HTTP/1.1"), 400, "bad_request"),
    ],
)
def test_what_http_forbids_is_refused_by_its_own_status(data, status, code):
    async def test():
        async with serving() as gateway:
            client = await connect(gateway)
            assert (await client.ask(data=b"x"))[0] == 200, "a host that was good before is not the next one's"
            client.writer.write(data)
            assert await refusal(client, status) == code
            assert gateway.sessions.stats.num_steps == 1

    run_closing(test)


@run
async def test_http_1_0_is_kept_alive_if_it_asks_and_informed():
    async with serving() as gateway:
        client = await connect(gateway)
        for number in (1, 2):
            for _ in range(2):
                line = b"POST /step HTTP/1.0"
                client.writer.write(head(b"connection: Keep-Alive", b"content-length: 1", first=line, host=None) + b"x")
            for each in (2 * number - 1, 2 * number):
                status, headers, body = await client.read()
                assert (status, headers["connection"], body) == (200, "keep-alive", b"x/%d" % each)
        client.writer.write(head(first=b"GET /healthz HTTP/1.0", host=None) * 2)
        assert (await client.read())[1]["connection"] == "close"
        assert await client.reader.read() == b""


@run
async def test_a_100_is_not_sent_before_the_answers_to_earlier_requests():
    async with serving(Sleeper) as gateway:
        client = await connect(gateway)
        client.write(data=b"0.2")
        client.writer.write(head(b"content-length: 4", b"expect: 100-continue"))
        assert (await client.read())[2] == b"0.2/1"
        assert await client.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.writer.write(b"0.01")
        assert (await client.read())[2] == b"0.01/2"
        client.write(data=b"0.2")
        client.writer.write(head(b"content-length: 4", b"expect: 100-continue") + b"0.02")
        assert [(await client.read())[2] for _ in range(2)] == [b"0.2/3", b"0.02/4"], "it was there without being asked"
        client.writer.write(head(b"content-length: 4", b"expect: 100-continue", first=b"POST /step HTTP/1.0"))
        client.writer.write(b"0.01")
        assert (await client.read())[0] == 200, "HTTP/1.0 has no 100"


# -- before a token was seen ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        (b"content-length: 1000000",),
        (b"content-length: 5",),
        (b"transfer-encoding: chunked",),
        (b"content-length: 5", b"expect: 100-continue"),
        (b"content-length: 1000000", b"authorization: Bearer wrong"),
        (b"transfer-encoding: chunked", OFFER.strip()),
        (b"content-length: 5", OFFER.strip()),
    ],
)
def test_without_the_token_a_body_is_not_waited_for(lines):
    async def test():
        async with serving(token="right") as gateway:
            client = await connect(gateway)
            client.writer.write(head(*lines))
            assert await refusal(client, 401) == "unauthorised"
            client = await connect(gateway)
            client.writer.write(head(b"authorization: Bearer right", *lines[:1]))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.read(), 0.1)

    run_closing(test)


@run
async def test_what_can_be_refused_of_a_signature_is_refused_before_the_body():
    async with serving(secret="s3cret") as gateway:
        good = signed("s3cret", "tick", "a", b"x")
        wrong = [{"time": int((time.time() - 60) * 1e3)}, {"time": "soon"}, {"key": "a b"}, {"token": "x" * 64}, {}]
        for each in wrong:
            lines = {**{name: good[name] for name in ("key", "time", "token")}, **each} if each else {}
            client = await connect(gateway)
            sent = [f"{name}: {value}".encode() for name, value in lines.items()]
            client.writer.write(head(b"content-length: 1000000", *sent))
            assert await refusal(client, 401) == "unauthorised"


@run
async def test_only_steps_take_large_bodies():
    async with serving() as gateway:
        for first in (b"GET /healthz HTTP/1.1", b"POST /nowhere HTTP/1.1"):
            client = await connect(gateway)
            client.writer.write(head(b"content-length: 1000000", first=first))
            assert await refusal(client, 413) == "too_large"
        client = await connect(gateway)
        client.writer.write(head(b"content-length: 1000000", first=b"PUT /step HTTP/1.1"))
        assert await refusal(client, 405) == "method_not_allowed"


# -- what they cost -------------------------------------------------------------------------------------------------


class Wire(asyncio.Transport):
    """Keeps what is written, and knows whether it is read."""

    def __init__(self):
        super().__init__()
        self.sent, self.is_reading_ = b"", True

    def write(self, data):
        self.sent += data

    def pause_reading(self):
        self.is_reading_ = False

    def resume_reading(self):
        self.is_reading_ = True

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return False

    def can_write_eof(self):
        return True

    def write_eof(self):
        pass

    def abort(self):
        pass

    def close(self):
        pass


def wired(gateway):
    gateway.http.serve(gateway)
    connection, wire = gateway.http.connect(), Wire()
    connection.connection_made(wire)
    return connection, wire


@run
async def test_a_connection_with_much_to_parse_lets_others_go_first():
    gateway = Gateway(Echo, GatewayOptions())
    hostile = [wired(gateway) for _ in range(3)]
    game, game_wire = wired(gateway)
    many = head() * 1500
    for connection, wire in hostile:
        connection.data_received(many)
        assert not wire.is_reading_, "until it is parsed, no more is read"
    num_before = gateway.sessions.stats.num_steps
    assert num_before < 1500, "of 4500"
    await asyncio.sleep(0)
    game.data_received(head(b"content-length: 4") + b"game")
    await asyncio.sleep(0)
    assert game_wire.sent.endswith(b"game/%d" % (int(game_wire.sent.rpartition(b"/")[2])))
    assert gateway.sessions.stats.num_steps < 3000
    await until(lambda: all(wire.is_reading_ for _, wire in hostile))
    await until(lambda: [wire.sent.count(b"HTTP/1.1 200") for _, wire in hostile] == [1500] * 3)
    assert gateway.http.stats.buffered_bytes == 0


@run
async def test_a_body_of_tiny_chunks_is_refused():
    async with serving() as gateway:
        client = await connect(gateway)
        client.writer.write(head(b"transfer-encoding: chunked") + chunks(*[b"x"] * 5000))
        assert await refusal(client, 400) == "bad_request"
        client = await connect(gateway)
        client.writer.write(head(b"transfer-encoding: chunked") + chunks(*[b"x" * 100] * 5000))
        status, _, body = await asyncio.wait_for(client.read(), 60)
        assert (status, len(body)) == (200, 500_002)


@run
async def test_a_body_in_many_small_packets_takes_no_more_room_than_its_bytes():
    gateway = Gateway(Echo, GatewayOptions())
    connection, wire = wired(gateway)
    connection.data_received(head(b"content-length: 60000"))
    for _ in range(29_999):
        connection.data_received(b"xy")
    assert isinstance(connection._parts, bytearray)
    assert gateway.http.stats.buffered_bytes == 59_998
    connection.data_received(b"xy")
    await asyncio.sleep(0)
    assert wire.sent.endswith(b"xy/1")
    assert gateway.http.stats.buffered_bytes == 0


class Gated(Echo):
    gate = None

    async def tick(self, data):
        await Gated.gate.wait()
        return b"%d" % len(data)


@run
async def test_what_waits_behind_a_slow_step_is_bounded_and_answered():
    Gated.gate = asyncio.Event()
    limits = HttpLimits(max_pipelined_bytes=100_000)
    async with serving(Gated, http=limits) as gateway:
        client = await connect(gateway)
        body = bytes(60_000)

        async def send():
            for _ in range(400):
                client.write(data=body)
                await client.writer.drain()

        sending = asyncio.ensure_future(send())
        (connection,) = gateway.http.connections
        await until(lambda: connection._is_paused)
        await asyncio.sleep(0.2)
        assert not sending.done(), "24 MB do not fit into the sockets"
        assert gateway.http.stats.buffered_bytes < 100_000 + 3 * 256 * 1024
        Gated.gate.set()
        answers = await asyncio.wait_for(read_all(client, 400), 60)
        assert {body for _, _, body in answers} == {b"60000"}
        await sending
        assert gateway.http.stats.buffered_bytes == 0


@run
async def test_more_pipelined_requests_than_may_wait_are_not_even_parsed():
    Gated.gate = asyncio.Event()
    gateway = Gateway(Gated, GatewayOptions(http=HttpLimits(max_pipelined=8)))
    connection, wire = wired(gateway)
    connection.data_received(head() * 1000)
    await until(lambda: len(connection._pending) == 8)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(connection._pending) == 8
    assert not wire.is_reading_
    Gated.gate.set()
    await until(lambda: wire.sent.count(b"HTTP/1.1 200") == 1000)
    assert wire.is_reading_


@run
async def test_all_connections_together_keep_no_more_than_the_limit_and_live_sessions_go_on():
    total = 1_000_000
    async with serving(http=HttpLimits(max_buffered_bytes=total, request_s=1000)) as gateway:
        game = await connect(gateway)
        await game.ask("start", "a")
        hostile = [await connect(gateway) for _ in range(20)]
        for client in hostile:
            client.writer.write(head(b"content-length: 200000") + bytes(150_000))
        answers = [asyncio.ensure_future(client.read()) for client in hostile]
        await until(lambda: sum(answer.done() for answer in answers) == 17)
        assert {answer.result()[0] for answer in answers if answer.done()} == {503}
        await until(lambda: gateway.http.stats.buffered_bytes == 3 * 150_000)
        for number in range(1, 4):
            game.write("tick", "a", bytes(400_000), step=number)
            status, _, body = await asyncio.wait_for(game.read(), 60)
            assert (status, len(body)) == (200, 400_002)
        stranger = await connect(gateway)
        assert (await stranger.ask("start", "b", b"small"))[0] == 200
        for client in hostile:
            client.writer.close()
        await asyncio.gather(*answers, return_exceptions=True)
        await until(lambda: gateway.http.stats.buffered_bytes == 0)


@run
async def test_a_request_that_was_held_up_by_the_server_is_not_called_slow():
    Gated.gate = asyncio.Event()
    async with serving(Gated, http=HttpLimits(request_s=60, max_pipelined_bytes=1000)) as gateway:
        client = await connect(gateway)
        client.write(data=b"x")
        sending = asyncio.ensure_future(drained(client, head(b"content-length: 3000000") + bytes(3_000_000)))
        await until(lambda: gateway.http.connections and next(iter(gateway.http.connections))._is_paused)
        (connection,) = gateway.http.connections
        connection.began -= 100  # as if it had been held up for so long
        Gated.gate.set()
        await until(lambda: not connection._is_paused)
        connection.check(time.monotonic())
        assert [(await client.read())[2] for _ in range(2)] == [b"1", b"3000000"]
        await sending


async def drained(client: Client, data: bytes) -> None:
    client.writer.write(data)
    with contextlib.suppress(ConnectionError):
        await client.writer.drain()


# -- what was recorded ----------------------------------------------------------------------------------------------


def episode(session="a"):
    """A signed start, tick and end."""
    return [
        signed("s3cret", kind, session, b"x", step=str(number)) for number, kind in enumerate(("start", "tick", "end"))
    ]


@run
async def test_a_signed_episode_cannot_be_played_again_after_its_end():
    async with serving(secret="s3cret") as gateway:
        client = await connect(gateway)
        recorded = episode()
        answers = [await client.ask(**step) for step in recorded for _ in range(2)]
        assert [body for _, _, body in answers] == [b"x", b"x", b"x/1", b"x/1", b"1", b"1"], "each may be repeated"
        assert await client.code(**recorded[0]) == "replayed"
        assert await client.code(**recorded[1]) == "unknown_session"
        time.sleep(0.002)
        assert (await client.ask(**episode()[0]))[0] == 200, "the game begins again"
        assert await client.code(**recorded[0]) == "replayed", "and does not get the answer to the later start"
        assert await client.code(**recorded[1]) == "replayed", "it is the next number, of another session"
        assert await client.code(**recorded[2]) == "replayed"
        time.sleep(0.002)
        assert (await client.ask(**episode()[1]))[2] == b"x/1"
        assert gateway.sessions.stats.num_started == 2


@run
async def test_a_recorded_start_does_not_replace_a_later_session():
    def start(run_):
        now = int(time.time() * 1e3)
        more = {"key": "k", "time_ms": now, "session": "a", "step_kind": "start", "step": "0"}
        token = sign("s3cret", data=b"", run=run_, **more)
        return {"kind": "start", "session": "a", "step": "0", "run": run_, "key": "k", "time": now, "token": token}

    async with serving(secret="s3cret") as gateway:
        client = await connect(gateway)
        first, second = start("1"), start("2")
        assert [(await client.ask(**each))[0] for each in (first, second)] == [200, 200]
        assert await client.code(**first) == "replayed"
        assert dict(gateway.sessions.stats.ended) == {"replaced": 1}


def test_a_recorded_episode_cannot_be_played_to_the_successor_of_a_server(tmp_path):
    async def test():
        async with serving(secret="s3cret", folder=tmp_path) as gateway:
            recorded = episode()
            assert (await (await connect(gateway)).ask(**recorded[0]))[0] == 200
        (kept,) = tmp_path.glob("*.spent")
        with kept.open("ab") as file:
            file.write(b"17\xff00 cut o")  # it died while it wrote
        async with serving(secret="s3cret", folder=tmp_path) as gateway:
            client = await connect(gateway)
            assert await client.code(**recorded[0]) == "replayed"
            assert await client.code(**recorded[1]) == "unknown_session"
            assert (await client.ask(**episode()[0]))[0] == 200

    run_closing(test)


@run
async def test_a_signed_start_that_was_refused_may_be_sent_again_as_it_is():
    async with serving(secret="s3cret", sessions=SessionLimits(max_sessions=1)) as gateway:
        client = await connect(gateway)
        first, second = episode("a"), episode("b")
        assert (await client.ask(**first[0]))[0] == 200
        assert await client.code(**second[0]) == "overloaded"
        assert (await client.ask(**signed("s3cret", "end", "a", b"", step="1")))[0] == 200
        assert (await client.ask(**second[0]))[0] == 200
