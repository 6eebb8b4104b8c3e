"""How much the gateway takes from the outside, and how much it has."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HttpLimits", "HttpStats"]


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    max_header_bytes: int = 16 * 1024
    max_headers: int = 64
    max_body_bytes: int = 16 * 1024 * 1024
    request_s: float = 10.0  # from the first byte of a request to its last
    idle_s: float = 120.0  # without a request
    max_connections: int = 10_000
    max_pipelined: int = 64
    max_pipelined_bytes: int = 1024 * 1024  # of requests that wait for the one before them; then reading pauses
    max_buffered_bytes: int = 256 * 1024 * 1024  # of unanswered requests, of all connections; see docs/gateway.md
    max_unsent_bytes: int = 64 * 1024 * 1024  # of answers that the game does not read


@dataclass(kw_only=True)
class HttpStats:
    num_connections: int = 0  # open now
    num_accepted: int = 0
    num_refused: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    buffered_bytes: int = 0  # of requests that came in several parts, or wait for the one before them
