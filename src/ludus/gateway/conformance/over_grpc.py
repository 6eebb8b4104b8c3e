"""Rules on gRPC itself: what is no message, statuses, streams, health and reflection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.gateway.conformance.rule import GRPC, Rules
from ludus.gateway.conformance.subject import expect
from ludus.gateway.conformance.wire import Failed

if TYPE_CHECKING:
    from ludus.gateway.grpc.subject import GrpcSubject

__all__ = ["RULES"]

RULES = Rules(doors=GRPC)
_METHODS = ("Start", "Tick", "End", "Stateless")
_GARBAGE = {
    "a field that is cut off": b"\x0a\x7f",
    "a number that does not end": b"\x18" + b"\xff" * 11,
    "a group that is not closed": b"\x0b",
    "text that is no UTF-8": b"\x0a\x02\xff\xfe",
    "a tag of zero": b"\x00\x00",
}


@RULES.add("grpc_malformed")
def grpc_malformed(subject: GrpcSubject) -> None:
    """What is no message is refused with INVALID_ARGUMENT, and the server goes on."""
    for what, data in _GARBAGE.items():
        for method in _METHODS:
            found = subject.call(method, data).code
            if found != "INVALID_ARGUMENT":
                raise Failed(f"{method} with {what} is answered {found}, not INVALID_ARGUMENT")
        found = subject.stream(data)
        if found != "INVALID_ARGUMENT":
            raise Failed(f"a stream with {what} ends with {found}, not INVALID_ARGUMENT")
    subject.check_alive()


@RULES.add("grpc_unknown_method")
def grpc_unknown_method(subject: GrpcSubject) -> None:
    """A method that there is not is UNIMPLEMENTED."""
    found = subject.call("Pause", b"").code
    if found != "UNIMPLEMENTED":
        raise Failed(f"a method that there is not is answered {found}, not UNIMPLEMENTED")


@RULES.add("grpc_kind")
def grpc_kind(subject: GrpcSubject) -> None:
    """A unary method says which kind of step it is; the field kind is absent there, or the same."""
    play = subject.play()
    start = subject.message(play.headers("start", 0))
    found = subject.call("Tick", start)
    if (found.code, found.problem) != ("INVALID_ARGUMENT", "bad_request"):
        raise Failed(f"Tick with kind START is answered {found.code} {found.problem}, not INVALID_ARGUMENT bad_request")
    start_without_kind = subject.message({"session": play.session, "step": "0"})
    if subject.settings.secret is None:  # else this is what is signed, and the kind is no part of it
        found = subject.call("Start", start_without_kind)
        if found.code != "OK":
            raise Failed(f"Start without a kind is answered {found.code} {found.problem}")
        play.end(1)


@RULES.add("grpc_large")
def grpc_large(subject: GrpcSubject) -> None:
    """A message larger than the server takes is RESOURCE_EXHAUSTED, and the server goes on."""
    size = subject.settings.max_body_bytes + 1024 * 1024
    found = subject.call("Stateless", bytes(size)).code
    if found != "RESOURCE_EXHAUSTED":
        raise Failed(f"a message of {size} bytes is answered {found}, not RESOURCE_EXHAUSTED")
    subject.check_alive()


@RULES.add("grpc_stream_and_calls")
def grpc_stream_and_calls(subject: GrpcSubject) -> None:
    """Unary calls and streams are of the same sessions: a step of either may be repeated by the other."""
    play = subject.play()
    with subject.connect() as wire:
        play.start(wire=wire)
        first = expect(play.step("tick", 1), 200, what="a tick by a call, of a session that a stream began")
        again = expect(play.step("tick", 1, wire=wire), 200, what="the tick again, in the stream")
        if again.body != first.body:
            raise Failed("a step that is repeated in a stream gets other bytes than by its call")
        expect(play.step("tick", 2, wire=wire), 200, what="the next tick, in the stream")
        expect(play.step("tick", 3), 200, what="the tick after that, by a call")
    expect(play.end(4), 200, what="end")


@RULES.add("grpc_health")
def grpc_health(subject: GrpcSubject) -> None:
    """The health service says of the server and of ludus.game.GameService that they serve, to everybody."""
    for service in ("", "ludus.game.GameService"):
        found = subject.health(service)
        if found != "SERVING":
            raise Failed(f"the health of {service or 'the server'!r} is {found}, not SERVING")


@RULES.add("grpc_reflection")
def grpc_reflection(subject: GrpcSubject) -> None:
    """Reflection lists ludus.game.GameService, with the token if there is one."""
    services = subject.services()
    if "ludus.game.GameService" not in services:
        raise Failed(f"reflection lists {', '.join(services) or 'nothing'}")
