"""Rules on requests that are well-formed: headers and their bounds, bodies, connections, problems."""

from __future__ import annotations

from ludus.gateway.conformance.rule import HTTP, Rules
from ludus.gateway.conformance.subject import Subject, expect
from ludus.gateway.conformance.wire import Failed, Skipped, request_bytes

__all__ = ["RULES"]

RULES = Rules()


@RULES.add("answer")
def answer(subject: Subject) -> None:
    """A step that went well is answered 200 as application/octet-stream, with the header session."""
    play = subject.play()
    for reply in (play.start(), expect(play.step("tick", 1), 200, what="a tick"), expect(play.end(2), 200, what="end")):
        if reply.content_type != "application/octet-stream":
            raise Failed(f"its type is {reply.content_type!r}, not application/octet-stream")
        if reply.headers.get("session") != play.session:
            raise Failed(f"its header session is {reply.headers.get('session')!r}, not {play.session!r}")


@RULES.add("versions")
def versions(subject: Subject) -> None:
    """The header version is MODEL=NUMBER[,…], once the session has played a model."""
    play = subject.play()
    play.start()
    reply = expect(play.step("tick", 1), 200, what="a tick")
    play.end(2)
    text = reply.headers.get("version")
    if text is None:
        raise Skipped("this actor plays no model")
    for part in text.split(","):
        name, _, number = part.strip().rpartition("=")
        if not name or not number.isdigit():
            raise Failed(f"version is {text!r}")


@RULES.add("header_case", doors=HTTP)
def header_case(subject: Subject) -> None:
    """Header names are case-insensitive."""
    play = subject.play()
    for kind, number in (("start", 0), ("tick", 1), ("end", 2)):
        headers = {"SeSSion": play.session, "STEP_KIND": kind, "Step": str(number)}
        expect(subject.post(headers), 200, what=f"{kind} with headers in mixed case")


@RULES.add("hyphens", doors=HTTP)
def hyphens(subject: Subject) -> None:
    """step-kind, game-id and deadline-ms are understood like their names with underscores."""
    play = subject.play()
    for kind, number in (("start", 0), ("tick", 1), ("end", 2)):
        headers = {"game-id": play.session, "step-kind": kind, "step": str(number), "deadline-ms": "60000"}
        expect(subject.post(headers), 200, what=f"{kind} with hyphens")
    refused = {"session": play.session, "step-kind": "tick", "deadline-ms": "0"}
    expect(subject.post(refused), 400, "bad_request", what="deadline-ms: 0")


@RULES.add("game_id", doors=HTTP)
def game_id(subject: Subject) -> None:
    """game_id is session by its older name; if both are there they must agree."""
    play = subject.play()
    expect(subject.post({"game_id": play.session, "step_kind": "start"}), 200, what="start by game_id")
    both = {"game_id": play.session, "session": play.session, "step_kind": "tick"}
    expect(subject.post(both), 200, what="a tick with both, the same")
    differ = {**both, "game_id": f"{play.session}-other"}
    expect(subject.post(differ), 400, "bad_request", what="a tick with both, different")
    expect(play.end(), 200, what="end by session")


@RULES.add("stop", doors=HTTP)
def stop(subject: Subject) -> None:
    """stop is the same as end."""
    play = subject.play()
    play.start()
    expect(play.step("stop", 1), 200, what="stop")
    expect(play.step("tick", 2), 404, "unknown_session", what="a tick after stop")


@RULES.add("bad_headers")
def bad_headers(subject: Subject) -> None:
    """A header that is malformed or missing is answered 400 bad_request."""
    play = subject.play()
    play.start(None)
    wrong = {
        "an unknown step_kind": play.headers("pause"),
        "a start without session": {"step_kind": "start"},
        "a tick without session": {"step_kind": "tick"},
        "an end without session": {"step_kind": "end"},
        "a session of 129 characters": {"session": "s" * 129, "step_kind": "start"},
        "a session with a blank": {"session": "a b", "step_kind": "start"},
        "a session with a slash": {"session": "a/b", "step_kind": "start"},
        "a session that is not ASCII": {"session": "s\xe9", "step_kind": "start"},
        "step: -1": play.headers("tick", -1),
        "step: 1.5": play.headers("tick", None, {"step": "1.5"}),
        "step: one": play.headers("tick", None, {"step": "one"}),
        "step: 2 to the 63rd": play.headers("tick", 2**63),
        "a run with a slash": {"session": "a", "step_kind": "start", "run": "x/y"},
        "a model with a slash": {"session": "a", "step_kind": "start", "model": "x/y"},
        "a version with a blank": {"session": "a", "step_kind": "start", "version": "1 2"},
        "a run of 129 characters": {"session": "a", "step_kind": "start", "run": "r" * 129},
    }
    for what, headers in wrong.items():
        if subject.can_send(headers):
            expect(subject.post(headers), 400, "bad_request", what=what)
    expect(play.step("tick"), 200, what="a right tick after all that")
    play.end()


@RULES.add("long_ids")
def long_ids(subject: Subject) -> None:
    """Ids have 1 to 128 characters of A-Z a-z 0-9 _ . : -."""
    unique = subject.play().session
    play = subject.play(f"AZaz09_.:-{unique}".ljust(128, "x")[:128], run="r" * 128)
    play.start()
    expect(play.end(1), 200, what="the end of a session of 128 characters")


@RULES.add("deadline_bounds")
def deadline_bounds(subject: Subject) -> None:
    """deadline_ms is a whole number from 1 to 600000."""
    play = subject.play()
    play.start(None)
    for text in ("0", "600001", "-1", "1.5", "soon"):
        if subject.can_send({"deadline_ms": text}):
            expect(play.step("tick", None, {"deadline_ms": text}), 400, "bad_request", what=f"deadline_ms: {text}")
    expect(play.step("tick", None, {"deadline_ms": "600000"}), 200, what="deadline_ms: 600000")
    reply = play.step("tick", None, {"deadline_ms": "1"})
    if reply.status != 200:
        expect(reply, 504, "deadline_exceeded", what="deadline_ms: 1")
    play.end()


@RULES.add("stateless")
def stateless(subject: Subject) -> None:
    """A request without step_kind is a tick that needs no session and no start."""
    for reply in (subject.post({}), subject.post({})):
        if reply.status == 500:
            raise Skipped(f"the actor does not take a stateless tick: {reply}")
        expect(reply, 200, what="a stateless tick")


@RULES.add("other_headers", doors=HTTP)
def other_headers(subject: Subject) -> None:
    """Other headers are ignored."""
    play = subject.play()
    play.start()
    expect(play.step("tick", 1, {"x-other": "1", "user-agent": "a game"}), 200, what="a tick")
    play.end(2)


@RULES.add("keep_alive")
def keep_alive(subject: Subject) -> None:
    """A connection stays open from request to request, also after a problem that is not of HTTP itself."""
    play = subject.play()
    with subject.connect() as wire:
        play.start(wire=wire)
        expect(play.step("tick", 1, wire=wire), 200, what="the second request")
        expect(play.step("tick", 7, wire=wire), 409, "out_of_order", what="a gap")
        expect(play.step("end", 2, wire=wire), 200, what="the request after a problem")


@RULES.add("close", doors=HTTP)
def close(subject: Subject) -> None:
    """A request with Connection: close is answered, and then the connection is closed."""
    play = subject.play()
    play.start()
    with subject.connect() as wire:
        expect(play.step("tick", 1, {"connection": "close"}, wire=wire), 200, what="a tick")
        if not wire.is_closed():
            raise Failed("the connection stays open")
    play.end(2)


@RULES.add("any_connection")
def any_connection(subject: Subject) -> None:
    """Any connection carries any step of any session."""
    one, two = subject.play(), subject.play()
    with subject.connect() as left, subject.connect() as right:
        one.start(wire=left)
        two.start(wire=left)
        for number, wire in ((1, right), (2, left), (3, right)):
            for play in (one, two):
                reply = expect(play.step("tick", number, wire=wire), 200, what="a tick over another connection")
                if reply.headers.get("session") != play.session:
                    raise Failed("a tick is answered for another session")
        one.step("end", 4, wire=right)
        two.step("end", 4, wire=left)


@RULES.add("pipelining")
def pipelining(subject: Subject) -> None:
    """Pipelined requests on a connection are answered in order."""
    plays = [subject.play() for _ in range(3)]
    kinds = [("start", 0), *(("tick", number) for number in range(1, 6)), ("end", 6)]
    with subject.connect() as wire:
        steps = [(play, kind, number) for kind, number in kinds for play in plays]
        wire.send(b"".join(subject.request(play.headers(kind, number)) for play, kind, number in steps))
        for play, kind, number in steps:
            reply = expect(wire.read(), 200, what=f"pipelined {kind} {number}")
            if reply.headers.get("session") != play.session:
                raise Failed(f"{kind} {number} is answered out of order")


@RULES.add("chunked", doors=HTTP)
def chunked(subject: Subject) -> None:
    """A chunked body is taken."""
    data = subject.settings.data
    play = subject.play()
    play.start()
    headers = {**subject.signed(play.headers("tick", 1), data), "transfer-encoding": "chunked"}
    middle = len(data) // 2
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (data[:middle], data[middle:]) if part)
    with subject.connect() as wire:
        wire.send(request_bytes(subject.place, headers) + chunks + b"0\r\n\r\n")
        first = expect(wire.read(), 200, what="a chunked tick")
    again = expect(play.step("tick", 1), 200, what="the same tick, not chunked")
    if again.body != first.body:
        raise Failed("the same step gets other bytes when it is not chunked")
    play.end(2)


@RULES.add("pieces", doors=HTTP)
def pieces(subject: Subject) -> None:
    """A request may arrive in any pieces."""
    play = subject.play()
    play.start()
    request = subject.request(play.headers("tick", 1))
    with subject.connect() as wire:
        for at in range(0, len(request), 7):
            wire.send(request[at : at + 7])
        expect(wire.read(), 200, what="a tick in pieces of 7 bytes")
    play.end(2)


@RULES.add("empty_body")
def empty_body(subject: Subject) -> None:
    """A step may have no body."""
    play = subject.play()
    play.start()
    reply = play.step("end", 1, data=b"")
    if reply.status == 500:
        raise Skipped(f"the actor does not take an empty end: {reply}")
    expect(reply, 200, what="end without a body")


@RULES.add("continue", doors=HTTP)
def continue_(subject: Subject) -> None:
    """Expect: 100-continue is answered before the body, or the body is waited for."""
    data = subject.settings.data
    play = subject.play()
    play.start()
    headers = {**subject.signed(play.headers("tick", 1), data), "expect": "100-continue"}
    request = request_bytes(subject.place, headers, data)
    with subject.connect() as wire:
        head = len(request) - len(data)
        wire.send(request[:head])
        wire.send(request[head:])
        expect(wire.read(), 200, what="a tick that expects 100-continue")
    play.end(2)
