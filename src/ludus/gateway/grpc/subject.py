"""A server under examination by gRPC: the rules of `ludus.gateway.conformance` that are not of HTTP."""

from __future__ import annotations

import queue
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from ludus.gateway.conformance.subject import Settings, Subject
from ludus.gateway.conformance.wire import Failed, Reply
from ludus.gateway.grpc.fields import METHODS, Inexpressible, problem_in, request_of
from ludus.gateway.grpc.wire import SERVICE, STATUSES
from ludus.gateway.http.wire import problem as http_problem
from ludus.grpc.address import GrpcAddress
from ludus.grpc.channel import bearer, open_channel
from ludus.grpc.inspection import health_of, services_of
from ludus.grpc.library import RpcError
from ludus.grpc.protos.game_pb2 import StepReply, StepRequest

__all__ = ["GrpcSubject"]

_LENGTH = 4  # bytes before each message in what `request` gives, so that several can be sent as one


class Ended(NamedTuple):
    """How a call ended: its status, and the code of its problem."""

    code: str
    problem: str = ""


class GrpcSubject(Subject):
    """Headers become fields, problems in trailing metadata become problem documents; then a rule sees no difference."""

    _place_of = GrpcAddress

    def __init__(
        self, url: str, settings: Settings, *, context: ssl.SSLContext | None = None, ca: str | None = None
    ) -> None:
        super().__init__(url, settings, context=context)
        self._ca = ca

    def connect(self, *, timeout_s: float | None = None) -> Any:
        return _GrpcWire(self.open(), bearer(self.settings.token), timeout_s or self.settings.timeout_s)

    def reach(self) -> None:
        place = self.place
        socket.create_connection((place.host, place.port), timeout=self.settings.timeout_s).close()

    def open(self) -> Any:
        """A connection."""
        return open_channel(self.place, ca=self._ca)

    def can_send(self, headers: Mapping[str, str]) -> bool:
        try:
            request_of(headers, b"")
        except Inexpressible:
            return False
        return True

    def message(self, headers: Mapping[str, str], data: bytes | None = None) -> bytes:
        """A message with what lets it in, for `call`."""
        body = self.settings.data if data is None else data
        message: bytes = request_of(self.signed(dict(headers), body), body).SerializeToString()
        return message

    def request(self, headers: dict[str, str], data: bytes | None = None) -> bytes:
        message = self.message(headers, data)
        return len(message).to_bytes(_LENGTH, "big") + message

    def send(self, headers: dict[str, str], data: bytes) -> Reply:
        request = request_of(headers, data)
        metadata = [("authorization", headers["authorization"])] if "authorization" in headers else []
        channel = self.open()
        try:
            method = channel.unary_unary(
                f"/{SERVICE}/{METHODS[request.kind]}", StepRequest.SerializeToString, StepReply.FromString
            )
            return _reply(method(request, metadata=metadata, timeout=self.settings.timeout_s))
        except RpcError as error:
            return _reply_of_error(error)
        finally:
            channel.close()

    # -- what only rules on gRPC ask for ------------------------------------------------------------------------------

    def call(self, method: str, data: bytes) -> Ended:
        """How a unary call with these bytes ends."""
        channel = self.open()
        try:
            call = channel.unary_unary(f"/{SERVICE}/{method}")
            call(data, metadata=bearer(self.settings.token), timeout=self.settings.timeout_s)
            return Ended("OK")
        except RpcError as error:
            return _ended(error)
        finally:
            channel.close()

    def stream(self, data: bytes) -> str:
        """The status of a stream that one message is sent in."""
        channel = self.open()
        try:
            call = channel.stream_stream(f"/{SERVICE}/Play")
            replies = call(iter([data]), metadata=bearer(self.settings.token), timeout=self.settings.timeout_s)
            for _ in replies:
                pass
            return "OK"
        except RpcError as error:
            return _ended(error).code
        finally:
            channel.close()

    def health(self, service: str) -> str:
        channel = self.open()
        try:
            return health_of(channel, service, timeout_s=self.settings.timeout_s)
        finally:
            channel.close()

    def services(self) -> list[str]:
        """Those that reflection lists."""
        channel = self.open()
        try:
            return services_of(channel, bearer(self.settings.token), timeout_s=self.settings.timeout_s)
        finally:
            channel.close()

    def check_alive(self) -> None:
        found = self.health("")
        if found != "SERVING":
            raise Failed(f"after that, the server's health is {found}")


class _GrpcWire:
    """One connection with one stream."""

    def __init__(self, channel: Any, metadata: Any, timeout_s: float) -> None:
        self._channel = channel
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = channel.stream_stream(f"/{SERVICE}/Play", None, StepReply.FromString)
        self._replies: Iterator[Any] = call(iter(self._requests.get, None), metadata=metadata, timeout=timeout_s)

    def send(self, data: bytes) -> None:
        while data:
            end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
            self._requests.put(data[_LENGTH:end])
            data = data[end:]

    def read(self) -> Reply:
        try:
            return _reply(next(self._replies))
        except RpcError as error:
            return _reply_of_error(error)
        except StopIteration:
            raise Failed("the stream has ended without an answer") from None

    def close(self) -> None:
        self._requests.put(None)
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _reply(reply: Any) -> Reply:
    if reply.HasField("problem"):
        return _reply_of_problem(reply.problem)
    headers = {"content-type": "application/octet-stream"}
    if reply.session:
        headers["session"] = reply.session
    if reply.versions:
        headers["version"] = ",".join(f"{model}={number}" for model, number in sorted(reply.versions.items()))
    return Reply(status=200, headers=headers, body=reply.data)


def _reply_of_problem(problem: Any) -> Reply:
    if problem.code not in STATUSES:
        raise Failed(f"{problem.code!r} is no code that gRPC has: {problem.detail}")
    members = {"expected": problem.expected} if problem.HasField("expected") else {}
    answer = http_problem(problem.code, problem.detail, **members)
    return Reply(status=answer.status, headers={"content-type": "application/problem+json"}, body=answer.body)


def _reply_of_error(error: Any) -> Reply:
    found = problem_in(error.trailing_metadata() or ())
    if found is None:
        raise Failed(f"a call ends with {error.code().name} and no problem: {error.details()}")
    codes = [value for key, value in error.trailing_metadata() if key == "ludus-code"]
    if codes != [found.code]:
        raise Failed(f"the metadata ludus-code is {codes}, and the problem {found.code!r}")
    reply = _reply_of_problem(found)
    if STATUSES[found.code] is not error.code():
        raise Failed(f"{found.code} is sent as {error.code().name}, not {STATUSES[found.code].name}")
    return reply


def _ended(error: Any) -> Ended:
    problem = problem_in(error.trailing_metadata() or ())
    return Ended(error.code().name, "" if problem is None else problem.code)
