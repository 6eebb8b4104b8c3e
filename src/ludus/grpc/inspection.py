"""A server as it shows itself: its health, and the services that it has. For threads."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

__all__ = ["health_of", "services_of"]


def health_of(channel: grpc.Channel, service: str, *, timeout_s: float) -> str:
    """`SERVING`, `NOT_SERVING`, or the status that the question ends with."""
    try:
        reply = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=service), timeout=timeout_s
        )
    except grpc.RpcError as error:
        return str(error.code().name)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


def services_of(channel: grpc.Channel, metadata: Any, *, timeout_s: float) -> list[str]:
    """By reflection; empty if it has none."""
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    try:
        replies = list(stub.ServerReflectionInfo(iter([ask]), metadata=metadata, timeout=timeout_s))
    except grpc.RpcError:
        return []
    return [service.name for reply in replies for service in reply.list_services_response.service]
