"""What the head of a request must be, beyond what the parser checks. Each rule returns a refusal, or `None`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ludus.gateway.http.limits import HttpLimits
from ludus.gateway.http.wire import Answer, problem

__all__ = ["check_coding", "check_headers", "check_version"]

_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:%\[\]-]*")
_ONCE = frozenset(
    b"session game_id game-id step_kind step-kind step run host content-length transfer-encoding expect authorization "
    b"key time token model version deadline_ms deadline-ms".split()
)


def check_headers(headers: Mapping[bytes, bytes], repeated: Iterable[bytes], limits: HttpLimits) -> Answer | None:
    """Refuse too many headers, too large ones, and those that may be there only once."""
    repeated = list(repeated)
    if len(headers) + len(repeated) > limits.max_headers:
        return problem("too_large", f"more than {limits.max_headers} headers")
    if len(b"".join((*headers, *headers.values()))) + 4 * len(headers) > limits.max_header_bytes:
        return problem("too_large", f"headers may have {limits.max_header_bytes} bytes")
    twice = next((name for name in repeated if name in _ONCE), None)
    return None if twice is None else problem("bad_request", f"the header {twice.decode()} is there twice")


def check_version(version: str, headers: Mapping[bytes, bytes]) -> Answer | None:
    """Refuse other versions of HTTP, and what RFC 9112 has a server refuse in each."""
    if version not in ("1.1", "1.0"):
        return problem("version_not_supported", f"this server speaks HTTP/1.1 and HTTP/1.0, not HTTP/{version}")
    host = headers.get(b"host")
    if host is None and version == "1.1":
        return problem("bad_request", "HTTP/1.1 needs the header host")
    if host is not None and not _HOST.fullmatch(host):
        return problem("bad_request", "the header host does not name a host")
    if b"transfer-encoding" in headers and version == "1.0":
        return problem("bad_request", "HTTP/1.0 has no transfer-encoding; send a content-length")
    return None


def check_coding(coding: bytes) -> Answer | None:
    """Refuse any transfer-encoding but chunked."""
    codings = [each.strip() for each in coding.lower().split(b",")]
    if codings == [b"chunked"]:
        return None
    if codings[-1] == b"chunked" and b"chunked" not in codings[:-1]:
        return problem("not_implemented", "of transfer-encodings, this server knows chunked alone")
    return problem("bad_request", "the transfer-encoding must end in chunked, and have it once")
