"""Rules on what is not HTTP, too large or too slow: it is answered, the connection is closed, the server goes on."""

from __future__ import annotations

from ludus.gateway.conformance.rule import HTTP, Rules
from ludus.gateway.conformance.subject import Subject, expect
from ludus.gateway.conformance.wire import Failed, Skipped, Wire, request_bytes

__all__ = ["RULES"]

RULES = Rules(doors=HTTP)


@RULES.add("malformed")
def malformed(subject: Subject) -> None:
    """What is not HTTP/1.1 is answered 400 bad_request, and the connection is closed."""
    let_in = "".join(f"{name}: {value}\r\n" for name, value in subject.signed({}, b"").items())
    host = f"Host: {subject.place.authority}\r\n{let_in}".encode()
    line = f"POST {subject.place.path} HTTP/1.1\r\n".encode()
    chunked = b"transfer-encoding: chunked\r\n\r\n"
    wrong = {
        "garbage": b"\x00\x01\x02\xff garbage\r\n\r\n",
        "a line that is no request": b"HELLO\r\n\r\n",
        "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32,
        "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "another protocol": b"POST /step FTP/1.1\r\n" + host + b"\r\n",
        "a header without a colon": line + host + b"session\r\n\r\n",
        "a blank before the colon": line + host + b"session : a\r\ncontent-length: 0\r\n\r\n",
        "a NUL in a header": line + host + b"session: a\x00b\r\ncontent-length: 0\r\n\r\n",
        "a content-length that is no number": line + host + b"content-length: ten\r\n\r\n",
        "a negative content-length": line + host + b"content-length: -1\r\n\r\n",
        "two content-lengths that differ": line + host + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "a content-length beside chunks": line + host + b"content-length: 5\r\n" + chunked + b"0\r\n\r\n",
        "a chunk whose size is no number": line + host + chunked + b"zz\r\nab\r\n0\r\n\r\n",
    }
    for what, data in wrong.items():
        _refused(subject, data, 400, "bad_request", what)
    subject.check_alive()


@RULES.add("twice")
def twice(subject: Subject) -> None:
    """A header that decides about the step may not be there twice: 400 bad_request."""
    play = subject.play()
    signed = subject.signed(play.headers("start", 0), subject.settings.data)
    request = request_bytes(subject.place, signed, subject.settings.data)
    for extra in ("session: other", "step_kind: end", "step: 1"):
        doubled = request.replace(b"\r\n\r\n", b"\r\n" + extra.encode() + b"\r\n\r\n", 1)
        with subject.connect() as wire:
            wire.send(doubled)
            expect(wire.read(), 400, "bad_request", what=f"a second {extra!r}")
    expect(play.step("tick", 1), 404, "unknown_session", what="a tick after starts that were refused")


@RULES.add("large_headers")
def large_headers(subject: Subject) -> None:
    """Headers larger than the server takes are answered 413 too_large, and the connection is closed."""
    size = subject.settings.max_header_bytes
    large = request_bytes(subject.place, {"x-large": "x" * (size + 4096)})
    _refused(subject, large, 413, "too_large", f"a header of {size + 4096} bytes")
    number = subject.settings.max_headers + 8
    many = request_bytes(subject.place, {f"x-{i}": "1" for i in range(number)})
    _refused(subject, many, 413, "too_large", f"{number} headers")
    subject.check_alive()


@RULES.add("endless_headers")
def endless_headers(subject: Subject) -> None:
    """A header that does not end is answered 413 too_large before it is kept."""
    size = subject.settings.max_header_bytes
    with subject.connect() as wire:
        wire.send(f"POST {subject.place.path} HTTP/1.1\r\nx-endless: ".encode())
        _send_until_refused(wire, b"x" * 4096, 4 * size)
        _read_refusal(wire, "a header without an end")
    subject.check_alive()


@RULES.add("large_body")
def large_body(subject: Subject) -> None:
    """A body larger than the server takes is answered 413 too_large, from its content-length, and not waited for."""
    headers = subject.play().headers("start", 0)
    for size in (subject.settings.max_body_bytes + 1, 10**18, 10**30):
        data = request_bytes(subject.place, {**headers, "content-length": str(size)})
        with subject.connect() as wire:
            wire.send(data)
            reply = wire.read()
            if size > 2**64 and reply.status == 400:  # a number that no machine has is malformed just as well
                continue
            expect(reply, 413, "too_large", what=f"a body of {size} bytes")
            if not wire.is_closed():
                raise Failed(f"after a body of {size} bytes the connection stays open")
    subject.check_alive()


@RULES.add("large_chunks")
def large_chunks(subject: Subject) -> None:
    """Chunks that add up to more than the server takes are answered 413 too_large, or cut off."""
    headers = subject.signed({**subject.play().headers("start", 0), "transfer-encoding": "chunked"}, b"")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with subject.connect() as wire:
        wire.send(request_bytes(subject.place, headers))
        if _send_until_refused(wire, chunk, subject.settings.max_body_bytes + 64 * len(chunk)):
            _read_refusal(wire, "a chunked body past the limit")
    subject.check_alive()


@RULES.add("large_answerable")
def large_answerable(subject: Subject) -> None:
    """A request of 1 MiB is read whole, whatever the actor makes of it."""
    play = subject.play()
    reply = play.step("tick", 1, data=b"x" * (1 << 20))
    expect(reply, 404, "unknown_session", what="a tick of 1 MiB before start")


@RULES.add("half_closed")
def half_closed(subject: Subject) -> None:
    """A client that cannot send any more is still answered what it asked, or cut off; the server goes on."""
    play = subject.play()
    play.start()
    with subject.connect() as wire:
        wire.send(subject.request(play.headers("tick", 1)))
        wire.send_and_leave()
        wire.is_closed(within_s=2.0)
    expect(play.step("tick", 1), 200, what="the same tick over another connection")
    play.end(2)


@RULES.add("incomplete")
def incomplete(subject: Subject) -> None:
    """A request that is cut off is not run."""
    play = subject.play()
    play.start()
    request = subject.request(play.headers("tick", 1), b"x" * 1000)
    for part in (request[:10], request[: len(request) - 999], request[:-1]):
        with subject.connect() as wire:
            wire.send(part)
    expect(play.step("end", 1), 200, what="end with the number of ticks that were cut off")


@RULES.add("slow")
def slow(subject: Subject) -> None:
    """A request that does not arrive whole in time is answered 408 timeout, and the connection is closed."""
    settings = subject.settings
    if not settings.slow:
        raise Skipped(f"takes {settings.request_s:g} s; ask for slow rules to have it checked")
    play = subject.play()
    request = subject.request(play.headers("start", 0))
    wires = [subject.connect(timeout_s=settings.request_s + 5.0) for _ in range(2)]
    try:
        for wire, part in zip(wires, (request[:20], request[:-1]), strict=True):
            wire.send(part)
        for wire in wires:
            expect(wire.read(), 408, "timeout", what="half a request")
            if not wire.is_closed():
                raise Failed("the connection stays open")
    finally:
        for wire in wires:
            wire.close()
    expect(play.step("tick", 1), 404, "unknown_session", what="a tick after a start that never arrived")


def _refused(subject: Subject, data: bytes, status: int, code: str, what: str) -> None:
    with subject.connect() as wire:
        try:
            wire.send(data)
            expect(wire.read(), status, code, what=what)
        except Failed as failed:
            raise Failed(f"{what}: {failed}") from None
        if not wire.is_closed():
            raise Failed(f"{what}: the connection stays open")


def _send_until_refused(wire: Wire, part: bytes, total: int) -> bool:
    """Send up to `total` bytes; False if the server hung up before the end, so that its answer may be lost."""
    try:
        for _ in range(total // len(part)):
            wire.send(part)
    except OSError:
        return False
    return True


def _read_refusal(wire: Wire, what: str) -> None:
    """413, unless the connection was reset so that the answer was lost on the way."""
    try:
        reply = wire.read()
    except Failed as failed:
        if "broke" in str(failed):
            return
        raise Failed(f"{what}: {failed}") from None
    expect(reply, 413, "too_large", what=what)
