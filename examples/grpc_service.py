"""A gRPC service of one's own, in three steps: a method in a .proto file, its stubs, and the method in Python.

python -m ludus.grpc.generate examples      # after a change of examples/returns/returns.proto
python examples/grpc_service.py
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from returns import returns_pb2, returns_pb2_grpc

from ludus.errors import DataError
from ludus.grpc.arrays import pack_array, unpack_array
from ludus.grpc.client import GrpcClient
from ludus.grpc.server import GrpcOptions, GrpcServer


class Returns(returns_pb2_grpc.ReturnsServicer):
    """Step 3 of 3. What is raised here is raised at the client, too."""

    async def Discounted(self, request: returns_pb2.Rewards, context: Any) -> returns_pb2.Discounts:
        rewards = unpack_array(request.rewards)
        if not 0.0 <= request.gamma <= 1.0:
            raise DataError(f"gamma is {request.gamma}; it must be from 0 to 1")
        returns = np.zeros_like(rewards)
        rest = np.zeros(rewards.shape[1:], rewards.dtype)
        for t in reversed(range(len(rewards))):
            rest = returns[t] = rewards[t] + request.gamma * rest
        return returns_pb2.Discounts(returns=pack_array(returns))


async def main() -> None:
    server = GrpcServer(GrpcOptions(token="secret"))
    server.add(returns_pb2_grpc.add_ReturnsServicer_to_server, Returns())
    async with server, GrpcClient(server.url, returns_pb2_grpc.ReturnsStub, token="secret") as client:
        print(f"serving: {await client.is_serving('returns.Returns')}")
        rewards = pack_array(np.array([0.0, 0.0, 1.0]))
        reply = await client.call(client.stub.Discounted, returns_pb2.Rewards(rewards=rewards, gamma=0.5))
        print(f"returns: {unpack_array(reply.returns)}")
        try:
            await client.call(client.stub.Discounted, returns_pb2.Rewards(rewards=rewards, gamma=2.0))
        except DataError as error:
            print(f"refused: {error}")


if __name__ == "__main__":
    asyncio.run(main())
