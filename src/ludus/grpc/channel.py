"""Channels to a gRPC server: with and without an event loop, with and without TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from ludus import errors
from ludus.grpc.address import GrpcAddress

__all__ = ["MAX_MESSAGE_BYTES", "bearer", "open_async_channel", "open_channel"]

MAX_MESSAGE_BYTES = 64 * 1024 * 1024


def open_channel(
    address: GrpcAddress, *, ca: str | Path | None = None, max_message_bytes: int = MAX_MESSAGE_BYTES
) -> grpc.Channel:
    """For threads. `ca`: a file of certificates that are trusted, if not those of the system."""
    return _open(grpc, address, ca, max_message_bytes)


def open_async_channel(
    address: GrpcAddress, *, ca: str | Path | None = None, max_message_bytes: int = MAX_MESSAGE_BYTES
) -> grpc.aio.Channel:
    """For the running event loop."""
    return _open(grpc.aio, address, ca, max_message_bytes)


def bearer(token: str | None) -> tuple[tuple[str, str], ...]:
    """The metadata of a call."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def _open(kind: Any, address: GrpcAddress, ca: str | Path | None, max_message_bytes: int) -> Any:
    options = [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
        ("grpc.enable_retries", 0),  # who repeats a call knows whether it may
        ("grpc.initial_reconnect_backoff_ms", 50),  # a worker is started again within a moment
        ("grpc.min_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    if not address.is_tls:
        return kind.insecure_channel(address.target, options=options)
    try:
        trusted = None if ca is None else Path(ca).read_bytes()
    except OSError as error:
        raise errors.ConfigError(f"{ca}: no certificates could be read from it: {error}") from None
    return kind.secure_channel(address.target, grpc.ssl_channel_credentials(trusted), options=options)
