"""`GrpcServer`: what every gRPC service of Ludus gets without asking. docs/grpc.md has three steps to one's own.

    class Scores(scores_pb2_grpc.ScoresServicer):
        async def Best(self, request, context): ...

    async with GrpcServer(GrpcOptions(port=8001, token="…")) as server: …      # after server.add(…)

A life cycle, TLS, a bearer token, limits on messages, calls and connections, deadlines, health and reflection. A
message that cannot be parsed is INVALID_ARGUMENT. What a method raises is a status that `GrpcClient` raises again.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import inspect
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from ludus import errors
from ludus.grpc import status
from ludus.rpc.address import is_loopback

__all__ = ["GrpcLimits", "GrpcOptions", "GrpcServer", "GrpcStats", "Refusal"]

_LOG = logging.getLogger(__name__)
_HEALTH_CHECK = "/grpc.health.v1.Health/Check"
Metadata = Iterable[tuple[str, Any]]
RawMethod = Callable[[bytes, Any], Awaitable[bytes]]
RawStream = Callable[[Any], Awaitable[None]]


class Refusal(NamedTuple):
    """How a call ends that is not let in."""

    details: str
    trailing: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class GrpcLimits:
    """How much a server takes from the outside. The memory of calls is bounded by their number times a message."""

    max_message_bytes: int = 16 * 1024 * 1024
    max_metadata_bytes: int = 16 * 1024
    max_calls: int = 4096  # under way, of all connections; an open stream is one
    max_calls_each: int = 1024  # of one connection; more wait at the client
    max_connections: int = 10_000
    max_call_s: float = 60.0  # that a unary method may take, whatever deadline the client gives
    handshake_s: float = 10.0
    keepalive_s: float = 30.0  # after which a silent connection is asked whether it is still there

    def channel_options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", -1),  # what it sends is its own
            ("grpc.max_metadata_size", self.max_metadata_bytes),
            ("grpc.absolute_max_metadata_size", self.max_metadata_bytes),
            ("grpc.max_concurrent_streams", self.max_calls_each),
            ("grpc.max_allowed_incoming_connections", self.max_connections),
            ("grpc.server_handshake_timeout_ms", int(self.handshake_s * 1e3)),
            ("grpc.keepalive_time_ms", int(self.keepalive_s * 1e3)),
            ("grpc.keepalive_timeout_ms", int(self.keepalive_s * 1e3)),
        ]


@dataclass(frozen=True, kw_only=True)
class GrpcOptions:
    """Where a server listens, and who may call. `is_shared`: other processes of this user listen on the port, too."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    tls_cert: str | None = None
    tls_key: str | None = None
    is_shared: bool = False
    limits: GrpcLimits = field(default_factory=GrpcLimits)


@dataclass(kw_only=True)
class GrpcStats:
    num_calls: int = 0
    num_refused: int = 0  # for want of the right token
    num_invalid: int = 0  # whose message could not be parsed
    num_failed: int = 0  # whose method raised


class GrpcServer:
    """Listens between `start` and `stop`, on the running event loop.

    `refuse(metadata)` says who may not call, in place of the token; it is asked before a message is read. Raises
    `Unauthorised` beyond loopback if there is neither, and `ConfigError` if TLS has a half only.
    """

    def __init__(
        self, options: GrpcOptions | None = None, *, refuse: Callable[[Metadata], Refusal | None] | None = None
    ) -> None:
        self.options = options or GrpcOptions()
        self.stats = GrpcStats()
        if refuse is None and not self.options.token and not is_loopback(self.options.host):
            raise errors.Unauthorised(
                f"a gRPC server on {self.options.host} can be reached from elsewhere: give it a token, or use 127.0.0.1"
            )
        if bool(self.options.tls_cert) != bool(self.options.tls_key):
            raise errors.ConfigError("TLS needs both a certificate and its key")
        self._refuse = refuse or (self._refuse_token if self.options.token else None)
        self._methods: dict[str, grpc.RpcMethodHandler] = {}
        self._services: list[str] = []
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._port = self.options.port

    # -- services -----------------------------------------------------------------------------------------------------

    def add(self, register: Callable[[Any, Any], None], servicer: Any) -> None:
        """A service, by the function that was generated for it: `add(pb2_grpc.add_ScoresServicer_to_server, Scores())`.

        Its methods must be coroutines or, where they answer a stream, asynchronous generators.
        """
        register(servicer, _Registrar(self._add_methods))

    def add_raw(self, service: str, methods: Mapping[str, RawMethod], streams: Mapping[str, RawStream]) -> None:
        """A service whose methods take bytes and give bytes, and look after everything themselves.

        A method gets the message and the call's context, a stream the context alone, to `read` and `write` by.
        """
        for name, method in methods.items():
            self._methods[f"/{service}/{name}"] = grpc.unary_unary_rpc_method_handler(method)
        for name, stream in streams.items():
            self._methods[f"/{service}/{name}"] = grpc.stream_stream_rpc_method_handler(_by_context(stream))
        self._services.append(service)

    def _add_methods(self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler]) -> None:
        for name, handler in handlers.items():
            method = _method_of(handler)
            if not method.__module__.endswith("_pb2_grpc"):  # else it is the generated one: nobody has written it
                self._methods[f"/{service}/{name}"] = self._guard(f"{service}/{name}", handler, method)
        self._services.append(service)

    async def set_serving(self, service: str, is_serving: bool) -> None:
        """What the health service says of it; empty: of the server as a whole."""
        state = health_pb2.HealthCheckResponse
        await self._health.set(service, state.SERVING if is_serving else state.NOT_SERVING)

    # -- life -----------------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """That it listens on, once started."""
        return self._port

    @property
    def url(self) -> str:
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return f"{'grpcs' if self.options.tls_cert else 'grpc'}://{host}:{self._port}"

    async def start(self) -> None:
        """Raises `OSError` if the port is taken, and `ConfigError` if the certificate cannot be read."""
        options = self.options
        credentials = None if options.tls_cert is None else _credentials(options)  # before anything is opened
        self.add(health_pb2_grpc.add_HealthServicer_to_server, self._health)
        self.add(
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server,
            reflection.aio.ReflectionServicer([*self._services, reflection.SERVICE_NAME]),
        )
        for service in ("", *self._services):
            await self.set_serving(service, True)
        server = grpc.aio.server(
            options=[*options.limits.channel_options(), ("grpc.so_reuseport", int(options.is_shared))],
            maximum_concurrent_rpcs=options.limits.max_calls,
        )
        server.add_generic_rpc_handlers((_Router(self._find),))
        host = f"[{options.host}]" if ":" in options.host else options.host
        address = f"{host}:{options.port}"
        try:
            bound = (
                server.add_insecure_port(address)
                if credentials is None
                else server.add_secure_port(address, credentials)
            )
        except RuntimeError:
            raise _why_not(options) from None
        await server.start()
        self._server, self._port = server, bound

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take no more calls, and cancel after `grace_s` those that are under way."""
        if self._server is None:
            return
        server, self._server = self._server, None
        await self._health.enter_graceful_shutdown()
        await server.stop(grace_s)

    async def __aenter__(self) -> GrpcServer:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    # -- calls --------------------------------------------------------------------------------------------------------

    def _find(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """What answers a call. Nothing of its message has been read yet, and nothing is if it is refused."""
        self.stats.num_calls += 1
        handler = self._methods.get(details.method)
        if handler is None or self._refuse is None or details.method == _HEALTH_CHECK:
            return handler
        refusal = self._refuse(details.invocation_metadata)
        return handler if refusal is None else self._refusing(refusal)

    def _refuse_token(self, metadata: Metadata) -> Refusal | None:
        kind, _, token = next((value for key, value in metadata if key == "authorization"), "").partition(" ")
        right = (self.options.token or "").encode()
        if hmac.compare_digest(token.strip().encode(), right) and kind.lower() == "bearer":
            return None
        return Refusal("a bearer token is needed, and the right one")

    def _refusing(self, refusal: Refusal) -> grpc.RpcMethodHandler:
        self.stats.num_refused += 1

        async def refuse(_requests: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal.details, refusal.trailing)

        return grpc.stream_stream_rpc_method_handler(refuse)  # whatever the method is: this reads no message

    def _guard(self, name: str, handler: grpc.RpcMethodHandler, method: Callable[..., Any]) -> grpc.RpcMethodHandler:
        """The handler with a `_Call` around its method."""
        call = _Call(self.stats, name, handler, method, self.options.limits.max_call_s)
        kinds = [
            "stream" if is_many else "unary" for is_many in (handler.request_streaming, handler.response_streaming)
        ]
        make = getattr(grpc, f"{kinds[0]}_{kinds[1]}_rpc_method_handler")
        parse = _lenient(handler.request_deserializer)
        made: grpc.RpcMethodHandler = make(call.behaviour, parse, handler.response_serializer)
        return made


class _Router(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types here
    def __init__(self, find: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None]) -> None:
        self._find = find

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._find(details)


class _Registrar:
    """What generated functions take for a server: they say which methods a service has."""

    def __init__(self, add: Callable[[str, Mapping[str, grpc.RpcMethodHandler]], None]) -> None:
        self.add_registered_method_handlers = add

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """The same methods again, in the older way."""


class _Malformed(NamedTuple):
    """In place of a message that could not be parsed."""

    why: str


def _lenient(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parse_or_say_why(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError as error:
            return _Malformed(str(error))

    return parse_or_say_why


def _checked(request: Any) -> Any:
    if type(request) is _Malformed:
        raise errors.DataError(f"the message is not what this method takes: {request.why}")
    return request


async def _all_checked(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _checked(request)


class _Call:
    """A method, with what it raises as a status; a method with one answer has a limited time for it."""

    def __init__(
        self,
        stats: GrpcStats,
        name: str,
        handler: grpc.RpcMethodHandler,
        method: Callable[..., Any],
        max_call_s: float,
    ) -> None:
        self._stats = stats
        self._name = name
        self._max_call_s = max_call_s
        self._check = _all_checked if handler.request_streaming else _checked
        self._method = method
        if inspect.isasyncgenfunction(method):
            self.behaviour: Callable[[Any, Any], Any] = self._generate
        elif not inspect.iscoroutinefunction(method):
            raise errors.ConfigError(f"{name} is no coroutine; write `async def {name.rpartition('/')[2]}`")
        else:
            self.behaviour = self._write if handler.response_streaming else self._answer

    async def _answer(self, request: Any, context: Any) -> Any:
        try:
            async with asyncio.timeout(self._max_call_s) as limit:
                return await self._method(self._check(request), context)
        except Exception as error:
            if limit.expired():
                late = errors.DeadlineExceeded(f"{self._name} took longer than {self._max_call_s:g} s")
                await self._fail(context, late)
            await self._fail(context, error)

    async def _generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for reply in self._method(self._check(request), context):
                yield reply
        except Exception as error:
            await self._fail(context, error)

    async def _write(self, request: Any, context: Any) -> None:
        """A method that answers a stream by `context.write`."""
        try:
            await self._method(self._check(request), context)
        except Exception as error:
            await self._fail(context, error)

    async def _fail(self, context: Any, error: Exception) -> None:
        if isinstance(
            error, grpc.aio.AbortError | grpc.aio.BaseError
        ):  # it has said a status itself, or the client is gone
            raise error
        if isinstance(error, errors.DataError):
            self._stats.num_invalid += 1
        else:
            self._stats.num_failed += 1
        if not isinstance(error, errors.LudusError):
            _LOG.error("%s failed", self._name, exc_info=error)
        details = f"{type(error).__name__}: {error}"
        await context.abort(status.status_of(error), status.clip(details), status.trailing(error))


def _method_of(handler: grpc.RpcMethodHandler) -> Callable[..., Any]:
    method: Callable[..., Any] = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    return method


def _by_context(stream: RawStream) -> Callable[[Any, Any], Awaitable[None]]:
    async def behaviour(_requests: Any, context: Any) -> None:
        await stream(context)

    return behaviour


def _why_not(options: GrpcOptions) -> OSError:
    """The reason why nothing can listen there, which grpc does not give."""
    number, why = errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)
    with socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET) as probe:
        try:
            probe.bind((options.host, options.port))
        except OSError as error:
            number, why = error.errno or number, error.strerror or why
    return OSError(number, f"cannot listen on {options.host}:{options.port}: {why}")


def _credentials(options: GrpcOptions) -> grpc.ServerCredentials:
    assert options.tls_cert is not None
    assert options.tls_key is not None
    try:
        key, certificate = Path(options.tls_key).read_bytes(), Path(options.tls_cert).read_bytes()
    except OSError as error:
        raise errors.ConfigError(f"TLS needs a certificate and its key: {error}") from None
    return grpc.ssl_server_credentials([(key, certificate)])
