"""The socket of the page. It may be bound by another process, which then knows the address before the page is up."""

from __future__ import annotations

import ipaddress
import socket

from ludus.errors import ConfigError

__all__ = ["DEFAULT_PORT", "address_of", "bind", "is_loopback"]

DEFAULT_PORT = 8700
_MAX_PORT = 65535
_ANY = ("0.0.0.0", "::", "")


def bind(host: str, port: int | None) -> socket.socket:
    """It listens. `port`: `None` is `DEFAULT_PORT` or, if that is taken, any free one; 0 is any free one.

    Raises `ConfigError` if it cannot be had.
    """
    if port is None:
        try:
            return _listen(host, DEFAULT_PORT)
        except OSError:
            port = 0
    if not 0 <= port <= _MAX_PORT:  # the system would take 70000 for 4464
        raise ConfigError(f"the page cannot listen on {host}:{port}: a port is 0 to {_MAX_PORT}. Choose another --port")
    try:
        return _listen(host, port)
    except OSError as error:
        raise ConfigError(
            f"the page cannot listen on {host}:{port}: {error.strerror or error}. Choose another --port, or 0 for any "
            "free one"
        ) from None


def address_of(bound: socket.socket, host: str) -> str:
    """`http://host:port`, as a browser may reach it."""
    if host in _ANY:
        host = socket.gethostname()
    elif ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{bound.getsockname()[1]}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made
