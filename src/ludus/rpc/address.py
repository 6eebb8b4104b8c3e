"""Where a server can be reached: one string that goes into the name service and picks the transport."""

from __future__ import annotations

import base64
import functools
import os
import socket
import tempfile
from pathlib import Path

import msgspec

from ludus import errors

__all__ = ["Address", "host_id", "is_loopback", "parse", "port_address", "runtime_folder", "socket_path"]


class Address(msgspec.Struct, frozen=True, omit_defaults=True):
    """One server's ends. A client takes `memory` within a process, `unix` on the same host, `tcp` otherwise."""

    instance: str = ""  # a new one for every server ever started; empty: not known (a bare host and port)
    host: str = ""  # `host_id()` of where the server runs
    pid: int = 0
    unix: str = ""  # path of its socket
    tcp: str = ""  # host:port
    curve: str = ""  # public key, when tcp is encrypted

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")


def parse(text: str) -> Address:
    """The inverse of `str(address)`; also takes a plain `host:port`."""
    host, colon, port = text.rpartition(":")
    if colon and port.isdigit():
        return port_address(host, int(port))
    try:
        return msgspec.msgpack.decode(
            base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Address, strict=True
        )
    except (ValueError, msgspec.MsgspecError) as error:
        raise errors.Unreachable(
            f"{text!r} is not a server's address (host:port, or what server.address says)"
        ) from error


def port_address(host: str, port: int) -> Address:
    """The address of a server of which only host and port are known: `RpcClient(host, port)`."""
    here = is_loopback(host) or host == socket.gethostname()
    return Address(
        host=host_id() if here else "",
        unix=str(socket_path(f"port-{port}")) if here else "",
        tcp=f"{host}:{port}",
    )


@functools.cache
def host_id() -> str:
    """The same for two processes exactly when they share a kernel and a host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def runtime_folder() -> Path:
    """A folder of this user alone, for sockets."""
    root = os.environ.get("LUDUS_RUNTIME_DIR") or os.path.join(tempfile.gettempdir(), f"ludus-{os.getuid()}")
    folder = Path(root)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise errors.Unauthorised(
            f"{folder} is open to other users, so anyone could pose as a server. "
            f"Remove it, or set LUDUS_RUNTIME_DIR to a folder with mode 0700."
        )
    return folder


def socket_path(name: str) -> Path:
    return runtime_folder() / f"{name}.sock"
