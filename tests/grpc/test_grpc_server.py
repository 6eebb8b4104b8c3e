"""A service of one's own: what its server and client look after."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ludus import errors
from ludus.grpc.client import GrpcClient
from ludus.grpc.protos import game_pb2, game_pb2_grpc
from ludus.grpc.server import GrpcLimits, GrpcOptions, GrpcServer

Request, Reply = game_pb2.StepRequest, game_pb2.StepReply


class Service(game_pb2_grpc.GameServiceServicer):
    """Any service will do; `Stateless` is not written."""

    def __init__(self) -> None:
        self.num_calls = 0

    async def Start(self, request: Any, context: Any) -> Any:
        self.num_calls += 1
        return Reply(data=request.data)

    async def Tick(self, request: Any, context: Any) -> Any:
        raise {"data": errors.DataError, "name": errors.NameNotFound, "full": errors.Overloaded, "bug": KeyError}[
            request.session
        ](f"what {request.session} says")

    async def End(self, request: Any, context: Any) -> Any:
        await asyncio.sleep(60)

    async def Play(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            if request.session == "bug":
                raise KeyError("in a stream")
            yield Reply(data=request.data)


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """An async test as an ordinary one."""

    @functools.wraps(test)
    def wrapped(**given: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**given), 60))

    wrapped.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return wrapped


def serve(servicer: Any = None, **options: Any) -> GrpcServer:
    server = GrpcServer(GrpcOptions(**options))
    server.add(game_pb2_grpc.add_GameServiceServicer_to_server, servicer or Service())
    return server


def client_of(server: GrpcServer, **options: Any) -> GrpcClient[Any]:
    return GrpcClient(server.url, game_pb2_grpc.GameServiceStub, **options)


@run
async def test_a_call_is_answered_and_a_stream_too() -> None:
    async with serve() as server, client_of(server) as client:
        assert (await client.call(client.stub.Start, Request(data=b"x"))).data == b"x"
        steps = [Request(data=b"a"), Request(data=b"b")]
        assert [reply.data async for reply in client.stream(client.stub.Play, steps)] == [b"a", b"b"]
        assert server.stats.num_calls == 2


@run
async def test_what_a_method_raises_is_raised_at_the_client_with_the_remote_traceback() -> None:
    async with serve() as server, client_of(server) as client:
        kinds = {"data": errors.DataError, "name": errors.NameNotFound, "full": errors.Overloaded, "bug": KeyError}
        for session, kind in kinds.items():
            with pytest.raises(kind, match=f"what {session} says") as caught:
                await client.call(client.stub.Tick, Request(session=session))
            assert "in Tick" in getattr(caught.value, "remote_traceback", "") + "".join(
                getattr(caught.value, "__notes__", [])
            )
        with pytest.raises(KeyError, match="in a stream"):
            _ = [reply async for reply in client.stream(client.stub.Play, [Request(session="bug")])]
        assert server.stats.num_failed == 4


@run
async def test_statuses_are_those_that_a_client_in_another_language_expects() -> None:
    async with serve() as server, client_of(server) as client:
        codes = {"data": "INVALID_ARGUMENT", "name": "NOT_FOUND", "full": "RESOURCE_EXHAUSTED", "bug": "UNKNOWN"}
        for session, code in codes.items():
            with pytest.raises(grpc.RpcError) as caught:
                await client.stub.Tick(Request(session=session))
            assert caught.value.code().name == code
            assert f"what {session} says" in caught.value.details()


@run
async def test_a_method_that_nobody_wrote_is_unimplemented() -> None:
    async with serve() as server, client_of(server) as client:
        with pytest.raises(errors.UnknownCommand):
            await client.call(client.stub.Stateless, Request())


def test_a_method_that_is_no_coroutine_is_refused_when_it_is_added() -> None:
    class Blocking(Service):
        def Start(self, request: Any, context: Any) -> Any:
            return Reply()

    with pytest.raises(errors.ConfigError, match="async def Start"):
        serve(Blocking())


@run
async def test_bytes_that_are_no_message_are_invalid_and_the_method_does_not_run() -> None:
    service = Service()
    async with serve(service) as server, client_of(server) as client:
        channel = client._channel
        with pytest.raises(grpc.RpcError) as caught:
            await channel.unary_unary("/ludus.game.GameService/Start")(b"\xff\xff garbage")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        call = channel.stream_stream("/ludus.game.GameService/Play")(
            iter([Request(data=b"a").SerializeToString(), b"\xff"])
        )
        assert await call.read() == Reply(data=b"a").SerializeToString()
        with pytest.raises(grpc.RpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert service.num_calls == 0
        assert server.stats.num_invalid == 2


@run
async def test_without_the_token_nothing_runs_and_no_message_is_read() -> None:
    service = Service()
    async with serve(service, token="right") as server:
        async with client_of(server, token="right") as client:
            assert (await client.call(client.stub.Start, Request(data=b"x"))).data == b"x"
        for token in (None, "wrong", "right and more"):
            async with client_of(server, token=token) as client:
                with pytest.raises(errors.Unauthorised):
                    await client.call(client.stub.Start, Request(data=bytes(10**6)))
                with pytest.raises(errors.Unauthorised):
                    _ = [reply async for reply in client.stream(client.stub.Play, [])]
                assert await client.is_serving("ludus.game.GameService")  # open to everybody, as /healthz is
        assert service.num_calls == 1
        assert server.stats.num_refused == 6


def test_beyond_loopback_a_token_is_needed() -> None:
    with pytest.raises(errors.Unauthorised, match="give it a token"):
        GrpcServer(GrpcOptions(host="0.0.0.0"))
    GrpcServer(GrpcOptions(host="0.0.0.0", token="T"))


@run
async def test_a_message_past_the_limit_is_refused_on_either_side() -> None:
    async with serve(limits=GrpcLimits(max_message_bytes=1000)) as server:
        async with client_of(server) as client:
            with pytest.raises(errors.DataError, match="larger than max"):
                await client.call(client.stub.Start, Request(data=bytes(2000)))
            assert (await client.call(client.stub.Start, Request(data=bytes(900)))).data == bytes(900)
        async with client_of(server, max_message_bytes=500) as client:
            with pytest.raises(errors.DataError, match="larger than max"):
                await client.call(client.stub.Start, Request(data=bytes(900)))


@run
async def test_more_calls_at_once_than_the_limit_are_overloaded() -> None:
    async with serve(limits=GrpcLimits(max_calls=2)) as server, client_of(server) as client:
        open_calls = [client.stub.Play() for _ in range(2)]
        for call in open_calls:
            await call.write(Request(data=b"x"))
            assert (await call.read()).data == b"x"
        with pytest.raises(errors.Overloaded):
            await client.call(client.stub.Start, Request())
        open_calls[0].cancel()
        for _ in range(500):  # the server learns of it soon
            try:
                await client.call(client.stub.Start, Request())
                return
            except errors.Overloaded:
                await asyncio.sleep(0.01)
        pytest.fail("a call that was cancelled still counts")


@run
async def test_deadlines_are_kept_by_the_client_and_by_the_server() -> None:
    async with serve(limits=GrpcLimits(max_call_s=0.05)) as server, client_of(server) as client:
        with pytest.raises(errors.DeadlineExceeded, match="End took longer than"):
            await client.call(client.stub.End, Request(), timeout_s=30)
    async with serve() as server, client_of(server) as client:
        with pytest.raises(errors.DeadlineExceeded, match="did not answer in time"):
            await client.call(client.stub.End, Request(), timeout_s=0.05)


@run
async def test_nobody_there_is_unreachable_and_a_server_that_goes_leaves_the_outcome_unknown() -> None:
    async with serve() as server, client_of(server) as client:
        call = asyncio.create_task(client.call(client.stub.End, Request()))
        while server.stats.num_calls == 0:
            await asyncio.sleep(0.005)
        await server.stop()
        with pytest.raises(errors.OutcomeUnknown):
            await call
        with pytest.raises(errors.Unreachable, match="Is the server up"):
            await client.call(client.stub.Start, Request())


@run
async def test_tls_with_the_right_authority_works_and_without_it_does_not(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    options = {"tls_cert": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem"), "token": "T"}
    async with serve(**options) as server:
        assert server.url.startswith("grpcs://")
        async with client_of(server, token="T", ca=tmp_path / "ca.pem") as client:
            assert (await client.call(client.stub.Start, Request(data=b"x"))).data == b"x"
        async with client_of(server, token="T") as client:
            with pytest.raises(errors.RpcError):
                await client.call(client.stub.Start, Request(), timeout_s=5.0)
    with pytest.raises(errors.ConfigError, match="both a certificate and its key"):
        GrpcServer(GrpcOptions(tls_cert="cert.pem"))
    with pytest.raises(errors.ConfigError, match="No such file"):
        await serve(tls_cert="nothing.pem", tls_key="nothing.pem").start()


@run
async def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="cannot listen on"):
        await serve(port=taken.getsockname()[1]).start()


@run
async def test_health_and_reflection_say_what_is_served() -> None:
    async with serve() as server, client_of(server) as client:
        assert await client.is_serving()
        await server.set_serving("ludus.game.GameService", False)
        assert not await client.is_serving("ludus.game.GameService")
        with pytest.raises(errors.NameNotFound):
            await client.is_serving("no.such.Service")
        stub = reflection_pb2_grpc.ServerReflectionStub(client._channel)
        asks = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="ludus.game.GameService"),
        ]
        services, files = [reply async for reply in client.stream(stub.ServerReflectionInfo, asks)]
        names = {service.name for service in services.list_services_response.service}
        assert {"ludus.game.GameService", "grpc.health.v1.Health"} <= names
        file = descriptor_pb2.FileDescriptorProto.FromString(files.file_descriptor_response.file_descriptor_proto[0])
        assert file.name == "ludus/grpc/protos/game.proto"


def test_an_address_that_is_none_is_an_error() -> None:
    for url in ("http://127.0.0.1:1", "grpc://", "grpc://host", "grpc://host:port", "grpc://host:1/path"):
        with pytest.raises(errors.ConfigError, match="no address"):
            GrpcClient(url, game_pb2_grpc.GameServiceStub)


def test_without_the_library_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ludus.grpc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc_health", None)  # as if it were not installed
    with pytest.raises(errors.MissingExtra, match=r"pip install 'ludus\[grpc\]'"):
        import ludus.grpc.client  # noqa: F401
