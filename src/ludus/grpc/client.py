"""`GrpcClient`: calls of a service whose failures are Ludus's errors.

async with GrpcClient("grpc://127.0.0.1:8001", scores_pb2_grpc.ScoresStub, token="…") as scores:
    best = await scores.call(scores.stub.Best, scores_pb2.BestRequest(number=3))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ludus.grpc import status
from ludus.grpc.address import GrpcAddress
from ludus.grpc.channel import MAX_MESSAGE_BYTES, bearer, open_async_channel

__all__ = ["GrpcClient"]

_Stub = TypeVar("_Stub")


class GrpcClient(Generic[_Stub]):
    """Connects when it is first used, on the running event loop. `timeout_s`: that a call may take, unless it says so.

    A base class as well: methods that make the messages and call `self.stub`'s.
    """

    def __init__(
        self,
        url: str,
        stub: Callable[[Any], _Stub],
        *,
        token: str | None = None,
        ca: str | Path | None = None,
        timeout_s: float = 10.0,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.address = GrpcAddress(url)
        self._metadata = bearer(token)
        self._timeout_s = timeout_s
        self._channel = open_async_channel(self.address, ca=ca, max_message_bytes=max_message_bytes)
        self.stub = stub(self._channel)

    async def call(self, method: Any, request: Any, *, timeout_s: float | None = None) -> Any:
        """The answer of a method with one answer; `request` is a message, or an iterable of them if it takes a stream.

        Raises what the method raised, as `RemoteError` unless it is one of Ludus's, and what became of the call if it
        brought back nothing: `Unreachable`, `OutcomeUnknown`, `DeadlineExceeded`, `Overloaded`, `Unauthorised`.
        """
        try:
            return await method(request, timeout=timeout_s or self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise status.error_of(error, where=self.address) from None

    async def stream(self, method: Any, request: Any, *, timeout_s: float | None = None) -> AsyncIterator[Any]:
        """The answers of a method with many. Without a `timeout_s` they may take as long as they do."""
        try:
            async for reply in method(request, timeout=timeout_s, metadata=self._metadata):
                yield reply
        except grpc.RpcError as error:
            raise status.error_of(error, where=self.address) from None

    async def is_serving(self, service: str = "") -> bool:
        """What the server's health service says of a service; by default of the server."""
        check = health_pb2_grpc.HealthStub(self._channel).Check
        reply = await self.call(check, health_pb2.HealthCheckRequest(service=service))
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()
