"""Random HTTP for a gateway whose actor echoes: well-formed requests of many shapes, and malformed ones behind them.

    report = HttpFuzz(new_seed()).run("127.0.0.1", 8000, num_requests=10_000)
    assert not report.violations, report

Each connection carries some well-formed requests, cut into random packets, and at most one malformed one at its end.
The well-formed ones must be answered 200 with their own bodies, in order; the malformed one must be refused, or not be
answered if it is not whole. Connection i of a seed is always the same, whatever was before it.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["FuzzReport", "HttpFuzz", "new_seed"]

_PATIENCE_S = 60.0
_MAX_VIOLATIONS = 20
_SEED = "LUDUS_FUZZ_SEED"


def new_seed() -> int:
    """From `LUDUS_FUZZ_SEED`, to repeat a run; else from the operating system."""
    given = os.environ.get(_SEED)
    return int(given) if given else int.from_bytes(os.urandom(4), "little")


@dataclass(kw_only=True)
class FuzzReport:
    seed: int
    num_requests: int = 0
    num_malformed: int = 0
    num_connections: int = 0
    num_cut_off: int = 0  # connections that broke, so that the last answers may have been lost
    statuses: Counter[int] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        lines = [
            f"seed {self.seed}: {self.num_requests} requests ({self.num_malformed} malformed) over "
            f"{self.num_connections} connections ({self.num_cut_off} cut off); answers: {statuses}",
            f"{len(self.violations)} violations" + (f"; repeat with {_SEED}={self.seed}:" if self.violations else ""),
            *self.violations,
        ]
        return "\n".join(lines)


class HttpFuzz:
    def __init__(self, seed: int) -> None:
        self.seed = seed

    def run(
        self,
        host: str,
        port: int,
        *,
        num_requests: int,
        seconds: float = float("inf"),
        on_progress: Callable[[FuzzReport], None] = lambda report: None,
    ) -> FuzzReport:
        """Send as many requests, or for as long."""
        report = FuzzReport(seed=self.seed)
        until = time.monotonic() + seconds
        while report.num_requests < num_requests and time.monotonic() < until:
            self._try_connection(report, host, port)
            on_progress(report)
            if len(report.violations) >= _MAX_VIOLATIONS:
                break
        return report

    def _try_connection(self, report: FuzzReport, host: str, port: int) -> None:
        index = report.num_connections
        report.num_connections += 1
        script = _Script(random.Random(f"{self.seed}:{index}"), f"{self.seed}-{index}")
        report.num_requests += len(script.expected) + (script.malformed != "")
        report.num_malformed += script.malformed != ""
        try:
            received, was_cut_off = _exchange(host, port, script.packets)
            answers = _parse(received)
        except (OSError, ValueError) as error:
            report.violations.append(f"connection {index} ({script.malformed or 'well-formed'}): {error!r}")
            return
        report.num_cut_off += was_cut_off
        report.statuses.update(status for status, _ in answers)
        wrong = script.check(answers, was_cut_off)
        if wrong:
            report.violations.append(f"connection {index} ({script.malformed or 'well-formed'}): {wrong}")


class _Script:
    """What one connection sends, and what it must be answered."""

    def __init__(self, chance: random.Random, name: str) -> None:
        self._chance = chance
        self.expected: list[bytes] = []  # bodies of well-formed requests
        self.malformed = ""  # how the last request is
        data = bytearray()
        for number in range(chance.randrange(12)):
            data += self._well_formed(f"{name}-{number}".encode())
        if chance.random() < 0.8 or not self.expected:
            self.malformed = chance.choice(sorted(_MALFORMED))
            data += _MALFORMED[self.malformed](chance)
        self.packets = _cut(bytes(data), chance)

    def _well_formed(self, body: bytes) -> bytes:
        chance = self._chance
        body += chance.randbytes(chance.choice((0, 0, 1, 10, 100, 1000, 20_000 if chance.random() < 0.1 else 5)))
        self.expected.append(body)
        lines = [b"%b: fuzz" % _case(b"host", chance)]
        if chance.random() < 0.3:
            lines.append(b"x-%d: %b" % (chance.randrange(100), b"y" * chance.randrange(200)))
        if chance.random() < 0.15:
            lines += [b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c"]
        if chance.random() < 0.05:
            lines.append(b"expect: 100-continue")
        version = b"1.1"
        if chance.random() < 0.4:
            lines.append(b"transfer-encoding: chunked")
            payload = _chunks(body, chance)
        else:
            lines.append(b"%b: %d" % (_case(b"content-length", chance), len(body)))
            payload = body
            if chance.random() < 0.1 and not any(line.startswith((b"connection", b"expect")) for line in lines):
                version = b"1.0"
                lines.append(b"connection: keep-alive")
        chance.shuffle(lines)
        target = chance.choice((b"/step", b"/step", b"/step?x=1", b"http://fuzz/step"))
        return b"\r\n" * (chance.random() < 0.1) + _request(lines, payload, target=target, version=version)

    def check(self, answers: list[tuple[int, bytes]], was_cut_off: bool) -> str:
        """What is wrong with the answers, or nothing."""
        for number, (expected, (status, body)) in enumerate(zip(self.expected, answers, strict=False)):
            if status != 200 or body != expected:
                return f"request {number} was answered {status} {body[:200]!r}, not 200 {expected[:60]!r}"
        rest = answers[len(self.expected) :]
        if len(answers) < len(self.expected) and not was_cut_off:
            return f"{len(answers)} of {len(self.expected)} well-formed requests were answered"
        if any(status == 200 for status, _ in rest):
            return f"a malformed request was answered 200 {rest[0][1][:60]!r}"
        if len(rest) > 1 and self.malformed != _MUTATED:
            return f"one malformed request was answered {len(rest)} times"
        if any(status >= 500 and status not in (501, 503, 505) for status, _ in rest):
            return f"a malformed request was answered {rest[0]}"
        if not rest and self.malformed not in ("", _CUT, _MUTATED) and not was_cut_off:
            return "a malformed request was not answered"
        return ""


def _request(
    lines: list[bytes], payload: bytes = b"", *, target: bytes = b"/step", version: bytes = b"1.1", end: bytes = b"\r\n"
) -> bytes:
    return end.join([b"POST %b HTTP/%b" % (target, version), *lines, b"", b""]) + payload


def _case(name: bytes, chance: random.Random) -> bytes:
    return chance.choice((name, name, name.title(), name.upper()))


def _chunks(body: bytes, chance: random.Random) -> bytes:
    """The body in chunks of random sizes, some with extensions, and a trailer now and then."""
    made = bytearray()
    while body:
        size = chance.randrange(1, min(len(body), 4096) + 1)
        extension = chance.choice((b"", b"", b";a=1", b';b="c"'))
        made += b"%x%b\r\n%b\r\n" % (size, extension, body[:size])
        body = body[size:]
    return bytes(made) + b"0\r\n" + chance.choice((b"", b"", b"step_kind: start\r\nx: y\r\n")) + b"\r\n"


def _cut(data: bytes, chance: random.Random) -> list[bytes]:
    """Into packets: one, a few, or many."""
    count = min(chance.choice((0, 0, 1, 3, 20)), len(data) - 1)
    places = sorted(chance.sample(range(1, len(data)), count)) if count > 0 else []
    return [data[low:high] for low, high in zip([0, *places], [*places, len(data)], strict=True)]


_HOST = b"host: fuzz"
_CHUNKED = b"transfer-encoding: chunked"
_CUT = "cut off"
_MUTATED = "a mutation"

_MALFORMED: dict[str, Callable[[random.Random], bytes]] = {
    "garbage": lambda chance: b"\0" + chance.randbytes(chance.randrange(1, 200)) + b"\r\n\r\n",
    "no host": lambda chance: _request([b"content-length: 1"], b"x"),
    "two hosts": lambda chance: _request([_HOST, b"content-length: 1", b"Host: fuzz"], b"x"),
    "a host with a blank": lambda chance: _request([b"host: a b", b"content-length: 1"], b"x"),
    "another version": lambda chance: _request(
        [_HOST, b"content-length: 1"], b"x", version=chance.choice((b"2.0", b"0.9", b"1.2", b"3.0", b"11.1", b"x", b""))
    ),
    "another protocol": lambda chance: b"POST /step FTP/1.1\r\nhost: fuzz\r\n\r\n",
    "no version": lambda chance: b"POST /step\r\nhost: fuzz\r\n\r\n",
    "ends of lines": lambda chance: _request(
        [_HOST, b"content-length: 0"], end=chance.choice((b"\n", b"\r", b"\r\r\n"))
    ),
    "no colon": lambda chance: _request([_HOST, b"session", b"content-length: 0"]),
    "a blank before the colon": lambda chance: _request([_HOST, b"session : a", b"content-length: 0"]),
    "a folded header": lambda chance: _request([_HOST, b"x: a", b" b", b"content-length: 0"]),
    "a character in a header": lambda chance: _request(
        [_HOST, b"x: a%bb" % chance.choice((b"\0", b"\r", b"\x01", b"\x7f")), b"content-length: 0"]
    ),
    "a character in a name": lambda chance: _request(
        [_HOST, b"x%by: a" % chance.choice((b"\0", b" ", b"(", b"\xff", b"@")), b"content-length: 0"]
    ),
    "a character in the path": lambda chance: _request([_HOST], target=b"/st%bep" % chance.choice((b"\0", b"\x01"))),
    "a content-length": lambda chance: _request(
        [_HOST, b"content-length: %b" % chance.choice((b"x", b"-1", b"+1", b"1 1", b"1,1", b"0x1", b"9" * 30, b""))],
        b"x",
    ),
    "two content-lengths": lambda chance: _request([_HOST, b"content-length: 1", b"content-length: 2"], b"xy"),
    "both framings": lambda chance: _request(
        chance.sample([_HOST, _CHUNKED, b"content-length: 3"], 3), b"1\r\nx\r\n0\r\n\r\n"
    ),
    "a transfer-encoding": lambda chance: _request(
        [
            _HOST,
            b"transfer-encoding: "
            + chance.choice(
                (b"gzip, chunked", b"gzip", b"chunked, gzip", b"chunked, chunked", b"xchunked", b"identity")
            ),
        ],
        b"1\r\nx\r\n0\r\n\r\n",
    ),
    "chunks in HTTP/1.0": lambda chance: _request([_HOST, _CHUNKED], b"1\r\nx\r\n0\r\n\r\n", version=b"1.0"),
    "the size of a chunk": lambda chance: _request(
        [_HOST, _CHUNKED], chance.choice((b"zz", b"-1", b"0x1", b"", b" 1", b"f" * 20)) + b"\r\nx\r\n0\r\n\r\n"
    ),
    "the end of a chunk": lambda chance: _request([_HOST, _CHUNKED], b"1\r\nxy\r\n0\r\n\r\n"),
    "a header twice": lambda chance: _request([_HOST, b"session: a", b"Session: b", b"content-length: 0"]),
    "a kind of step": lambda chance: _request([_HOST, b"session: a", b"step_kind: b", b"content-length: 0"]),
    "a session": lambda chance: _request([_HOST, b"session: a/b", b"step_kind: tick", b"content-length: 0"]),
    "no such session": lambda chance: _request([_HOST, b"session: none", b"step_kind: tick", b"content-length: 0"]),
    "large headers": lambda chance: _request([_HOST, b"x: " + b"y" * 40_000, b"content-length: 0"]),
    "many headers": lambda chance: _request([_HOST, *(b"x-%d: y" % each for each in range(100))]),
    "a large body": lambda chance: _request([_HOST, b"content-length: 99999999999"], b"x"),
    "tiny chunks": lambda chance: _request([_HOST, _CHUNKED], b"1\r\nx\r\n" * 3000 + b"0\r\n\r\n"),
    "a proxy": lambda chance: b"CONNECT fuzz:80 HTTP/1.1\r\nhost: fuzz:80\r\n\r\n",
    "another method": lambda chance: b"PUT /step HTTP/1.1\r\nhost: fuzz\r\ncontent-length: 0\r\n\r\n",
    "another path": lambda chance: _request([_HOST, b"content-length: 0"], target=b"/stepp"),
    _MUTATED: lambda chance: _mutated(chance),
    _CUT: lambda chance: _cut_off(chance),
}


def _mutated(chance: random.Random) -> bytes:
    """A request that is refused, with some bytes changed that do not decide about that. It may be refused in parts."""
    kept = b"session: none\r\nstep_kind: tick"
    data = bytearray(_request([kept, _HOST, b"step: 7", b"x-more: yes", b"content-length: 4"], b"body"))
    low, high = data.index(kept) - 2, data.index(kept) + len(kept) + 2
    for _ in range(chance.randrange(1, 6)):
        data[chance.choice((chance.randrange(low), chance.randrange(high, len(data))))] = chance.randrange(256)
    return bytes(data)


def _cut_off(chance: random.Random) -> bytes:
    whole = _request([_HOST, b"content-length: 10"], b"0123456789")
    return whole[: chance.randrange(1, len(whole))]


def _exchange(host: str, port: int, packets: list[bytes]) -> tuple[bytes, bool]:
    """Send all, and read until the server hangs up. Also whether it did so before all could be sent."""
    received = bytearray()
    was_cut_off = False
    with socket.create_connection((host, port), timeout=_PATIENCE_S) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for packet in packets:
                wire.sendall(packet)
            wire.shutdown(socket.SHUT_WR)
        except ConnectionError:
            was_cut_off = True
        try:
            while part := wire.recv(65536):
                received += part
        except ConnectionError:
            was_cut_off = True
    return bytes(received), was_cut_off


def _parse(data: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each answer; `ValueError` if these are none."""
    answers = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        if not first.startswith(b"HTTP/1.1 "):
            raise ValueError(f"an answer begins with {first[:80]!r}")
        status = int(first[9:12])
        if status == 100:
            continue
        headers = dict(line.lower().split(b": ", 1) for line in lines)
        length = int(headers[b"content-length"])
        if len(data) < length:
            raise ValueError(f"an answer of {length} bytes ends after {len(data)}")
        answers.append((status, data[:length]))
        data = data[length:]
    return answers
