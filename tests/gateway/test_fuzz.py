"""Bad input on every endpoint: no crash, no answer 500 without an id, no growth."""

import gc
import http.client
import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from ludus.gateway.actor import Actor
from ludus.gateway.http.limits import HttpLimits
from ludus.gateway.http.openapi import document
from ludus.testing.gateways import EchoActor, serving
from ludus.testing.http_fuzz import HttpFuzz, _Script, new_seed

SCHEMA = schemathesis.openapi.from_dict(document())
# An error of the actor is a 500, and has an id. OpenAPI cannot say that a start needs a session, nor that headers
# which the protocol does not know are ignored.
LEFT_OUT = [not_a_server_error, positive_data_acceptance, negative_data_rejection]
QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Touchy(Actor):
    """Raises at some of what it is given."""

    def tick(self, data):
        if data[:1] == b"!":
            raise ValueError("as asked")
        return data[:64]


@pytest.fixture(scope="module")
def url():
    limits = HttpLimits(max_body_bytes=64 * 1024, max_header_bytes=4096, max_headers=32)
    with serving(Touchy, http=limits) as served:
        yield served


def place(url):
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


def expect_alive(url):
    connection = http.client.HTTPConnection(*place(url), timeout=10)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()


@SCHEMA.parametrize()
@QUICK
def test_requests_of_every_shape_are_answered_as_the_document_says(case, url):
    response = case.call(base_url=url)
    if response.status_code == 500:
        assert response.json()["id"]
    else:
        case.validate_response(response, excluded_checks=LEFT_OUT)
        assert response.status_code < 500 or response.status_code == 503


PIECES = st.one_of(
    st.binary(max_size=64),
    st.sampled_from(
        [
            b"POST /step HTTP/1.1\r\n",
            b"GET /metrics HTTP/1.1\r\n",
            b"GET /sessions HTTP/1.0\r\n",
            b"session: a\r\n",
            b"step_kind: start\r\n",
            b"step_kind: tick\r\n",
            b"step: 1\r\n",
            b"content-length: 3\r\n",
            b"content-length: 99999999999999999999\r\n",
            b"content-length: -1\r\n",
            b"transfer-encoding: chunked\r\n",
            b"transfer-encoding: chunked, chunked\r\n",
            b"connection: close\r\n",
            b"connection: upgrade\r\nupgrade: websocket\r\n",
            b"expect: 100-continue\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b"3\r\nabc\r\n",
            b"0\r\n\r\n",
            b"ffffffffffffffff\r\n",
            b"!ab",
            b"\0" * 100,
            b"x" * 5000,
        ]
    ),
)


@given(st.lists(PIECES, max_size=12))
@settings(QUICK, max_examples=300)
def test_bytes_of_every_kind_harm_nobody(url, pieces):
    with socket.create_connection(place(url), timeout=5) as stranger:
        try:
            for piece in pieces:
                stranger.sendall(piece)
            stranger.shutdown(socket.SHUT_WR)
            answered = b""
            while chunk := stranger.recv(65536):
                answered += chunk
        except OSError:  # it was cut off while it spoke
            answered = b""
    for part in answered.split(b"HTTP/1.1 ")[1:]:
        status = int(part[:3])
        assert status < 500 or status in (503, 504) or b'"id":"' in part
    expect_alive(url)


def test_no_memory_is_kept_of_bad_requests(url):
    """Objects, not bytes: what a worker keeps of a thousand refused requests must not grow with their number."""
    chance = random.Random(1)

    def trouble(count):
        for _ in range(count):
            connection = http.client.HTTPConnection(*place(url), timeout=10)
            kind = chance.randrange(4)
            headers = {"session": f"s{chance.random()}", "step_kind": "tick", "step": str(chance.randrange(10**9))}
            if kind == 0:
                headers["step_kind"] = "nonsense"
            connection.request("POST", "/step", bytes(chance.randrange(2000)), headers)
            answer = connection.getresponse()
            report = json.loads(answer.read())
            assert report["status"] == answer.status
            connection.close()

    trouble(200)
    gc.collect()
    before = len(gc.get_objects())
    trouble(1000)
    gc.collect()
    assert len(gc.get_objects()) - before < 500


def test_requests_that_are_new_in_every_run_harm_nobody():
    """Repeat one that failed with LUDUS_FUZZ_SEED, which its message has."""
    with serving(EchoActor) as url:
        report = HttpFuzz(new_seed()).run(*place(url), num_requests=3000, seconds=3.0)
        assert not report.violations, str(report)
        assert report.num_requests > 0
        expect_alive(url)
        until = time.monotonic() + 60
        while url.call(lambda: url.gateway.stats()["buffered_bytes"]) and time.monotonic() < until:
            time.sleep(0.01)
        assert url.call(lambda: url.gateway.stats()["buffered_bytes"]) == 0


def test_the_fuzzer_notices_what_is_wrong():
    class Upper(EchoActor):
        def tick(self, data):
            return data.upper()

    with serving(Upper) as url:
        report = HttpFuzz(1).run(*place(url), num_requests=100)
        assert "not 200" in report.violations[0]
        assert "LUDUS_FUZZ_SEED=1" in str(report)
    again = [_Script(random.Random("1:5"), "1-5").packets for _ in range(2)]
    assert again[0] == again[1], "a connection of a seed is always the same"
    script = _Script(random.Random("1:5"), "1-5")
    good = [(200, body) for body in script.expected]
    assert script.malformed
    assert script.check([*good, (400, b"")], False) == ""
    assert "malformed request was answered 200" in script.check([*good, (200, b"")], False)
    assert "well-formed requests were answered" in script.check(good[:-1], False)
    assert "answered" in script.check([*good, (500, b"")], False)


def test_a_fuzzing_run_whose_time_is_up_before_all_requests_were_sent_has_failed():
    script = Path(__file__).parents[2] / "benchmarks" / "fuzz_http.py"
    words = [sys.executable, str(script), "--requests", "100000000", "--minutes", "0.005"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    assert "of 100000000 requests were sent within 0.005 minutes" in done.stdout
    assert "\n0 violations" in done.stdout
