"""Every transport passes the one kit."""

import contextlib
import errno
import os
import socket
import time
from pathlib import Path

import pytest

from ludus import errors
from ludus.rpc.client import RpcClient
from ludus.rpc.server import RpcServer
from ludus.rpc.unix import remove_stale
from ludus.testing.serving import ServerThread
from ludus.testing.transports import TransportConformance


class TestMemory(TransportConformance):
    transport = "memory"


class TestUnix(TransportConformance):
    transport = "unix"


class TestZmq(TransportConformance):
    transport = "zmq"


def test_sockets_of_the_dead_are_removed_and_of_the_deaf_are_not(tmp_path: Path) -> None:
    long_ago = time.time() - 3600
    with contextlib.ExitStack() as stack:

        def listen(name: str) -> Path:
            sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            sock.bind(str(tmp_path / name))
            sock.listen(0)
            os.utime(tmp_path / name, (long_ago, long_ago))
            if name == "dead.sock":
                sock.close()
            return tmp_path / name

        dead, deaf, young = listen("dead.sock"), listen("deaf.sock"), listen("young.sock")
        os.utime(young)
        for _ in range(5):  # it accepts nobody, so that there is no room for more
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(str(deaf))
        remove_stale(tmp_path)
        assert not dead.exists()
        assert deaf.exists()
        assert young.exists()


@pytest.mark.parametrize("missing", ["memfd_create", "ftruncate", "dup"])
def test_a_server_that_has_no_descriptor_left_turns_a_caller_away_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def fail(*args: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with ServerThread(RpcServer(transports=("unix",)), echo=lambda value: value) as served:
        with monkeypatch.context() as patch, RpcClient(served.address, transport="unix") as client:
            patch.setattr(os, missing, fail)
            with pytest.raises(errors.RpcError):
                client.submit("echo", (1,), timeout_s=1.0).result()
        with RpcClient(served.address, transport="unix") as client:
            assert client.submit("echo", (2,), timeout_s=60.0).result() == 2
