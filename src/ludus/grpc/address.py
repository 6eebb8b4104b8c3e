"""Where a gRPC server is: `grpc://HOST:PORT`, or `grpcs://HOST:PORT` with TLS."""

from __future__ import annotations

import urllib.parse

from ludus import errors

__all__ = ["SCHEMES", "GrpcAddress"]

SCHEMES = ("grpc", "grpcs")


class GrpcAddress:
    """Taken apart. Raises `ConfigError` for what is none; a plain `HOST:PORT` is one without TLS."""

    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url if "://" in url else f"grpc://{url}")
            port = parts.port
        except ValueError as error:
            raise errors.ConfigError(f"{url!r} is no address: {error}. It is like grpc://127.0.0.1:8001") from None
        if parts.scheme not in SCHEMES or not parts.hostname or port is None or parts.path.strip("/"):
            raise errors.ConfigError(f"{url!r} is no address of a gRPC server; it is like grpc://127.0.0.1:8001")
        self.is_tls = parts.scheme == "grpcs"
        self.host = parts.hostname
        self.port = port

    @property
    def target(self) -> str:
        """As gRPC has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{'grpcs' if self.is_tls else 'grpc'}://{self.target}"
