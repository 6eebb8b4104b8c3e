"""Which way to a server: the nearest transport that both ends share."""

from __future__ import annotations

import os
from collections.abc import Callable

from ludus import errors
from ludus.rpc.address import Address, host_id
from ludus.rpc.memory import MemoryChannel
from ludus.rpc.transport import Channel
from ludus.rpc.unix import UnixChannel

__all__ = ["OpenChannel", "nearest"]

OpenChannel = Callable[[Address, float], Channel]
"""Opens a channel to an address within some seconds; raises `Unreachable`. Tests give one that injects faults."""


def nearest(
    address: Address, *, transport: str | None, secret: str | None, timeout_s: float, max_bytes: int
) -> Channel:
    """The nearest way to `address`, or the one asked for. Raises `Unreachable`."""
    here = address.host == host_id()
    if transport in (None, "memory") and address.instance and MemoryChannel.is_here(address.instance):
        return MemoryChannel(address.instance)
    unix_error: errors.Unreachable | None = None
    if transport in (None, "unix") and address.unix and (here or transport):
        try:
            return UnixChannel(address.unix, timeout_s=timeout_s, max_bytes=max_bytes)
        except errors.Unreachable as error:
            if not address.tcp or transport:
                raise
            unix_error = error
    if transport in (None, "zmq") and address.tcp:
        if here and _is_dead(address):
            raise unix_error or errors.Unreachable(f"the server's process {address.pid} is gone")
        from ludus.rpc.zmq import ZmqChannel

        return ZmqChannel(
            address.tcp, secret=secret, server_key=address.curve, timeout_s=timeout_s, max_bytes=max_bytes
        )
    raise errors.Unreachable(
        f"no way there: the server offers {', '.join(_offers(address)) or 'nothing'}"
        + (f", and {transport} was asked for" if transport else " to this host")
    )


def _offers(address: Address) -> list[str]:
    ways = (("memory", address.instance), ("unix", address.unix), ("zmq", address.tcp))
    return [name for name, value in ways if value]


def _is_dead(address: Address) -> bool:
    """Whether a server of this host is known to be gone, so that waiting for its tcp port is idle."""
    if not address.pid:
        return False
    try:
        os.kill(address.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
