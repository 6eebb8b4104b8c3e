"""Who may listen where, and who is let in."""

import socket

import pytest

from ludus import errors
from ludus.rpc.address import parse
from ludus.rpc.client import RpcClient
from ludus.rpc.server import RpcServer
from ludus.rpc.transport import ChannelClosed
from ludus.testing.serving import ServerThread


def test_a_public_address_without_a_secret_is_refused():
    server = RpcServer(0, host="0.0.0.0", transports=("zmq",))
    with pytest.raises(errors.Unauthorised, match="secret"):
        server.start()


def test_with_a_secret_calls_are_encrypted_and_answered():
    server = RpcServer(0, host="127.0.0.1", transports=("zmq",), secret="open sesame")
    with ServerThread(server, echo=lambda x: x) as served:
        assert parse(served.address).curve
        with RpcClient(served.address, secret="open sesame") as client:
            assert client.request("echo", "hello") == "hello"


@pytest.mark.parametrize("secret", [None, "open barley"])
def test_a_wrong_or_missing_secret_is_refused(secret):
    server = RpcServer(0, transports=("zmq",), secret="open sesame")
    with ServerThread(server, echo=lambda x: x) as served, RpcClient(served.address, secret=secret) as client:
        with pytest.raises((errors.Unauthorised, errors.Unreachable)):
            client.call("echo", (1,), timeout_s=2.0)
        assert served.server.statistics().num_run == 0


def test_a_caller_that_skips_encryption_gets_nowhere():
    """The server's key can be read in the name service; a caller that leaves it out must not be let in."""
    server = RpcServer(0, transports=("zmq",), secret="open sesame")
    with ServerThread(server, echo=lambda x: x) as served:
        bare = RpcClient(parse(served.address).tcp, transport="zmq")
        with pytest.raises(errors.RpcError):
            bare.call("echo", (1,), timeout_s=1.0)
        assert served.server.statistics().num_run == 0
        bare.close()


def test_a_stranger_on_the_unix_socket_does_no_harm():
    with ServerThread(RpcServer(), echo=lambda x: x) as served:
        for junk in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x08\0\0\0\x01\0\0\0" + b"\xff" * 16):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(parse(served.address).unix)
                stranger.sendall(junk)
        with RpcClient(served.address) as client:
            assert client.request("echo", 1) == 1


def test_an_address_that_is_none_is_refused_clearly():
    with pytest.raises(errors.Unreachable, match="not a server's address"):
        RpcClient("nonsense")


class LostChannel:
    """A connection whose server is gone before anything could be sent."""

    instance = ""

    def send(self, frames, timeout_s):
        raise ChannelClosed("gone")

    def began(self, slot, seq):
        return False

    def close(self): ...


def test_a_stranger_in_the_place_of_a_lost_server_is_not_a_wrong_secret():
    opened = []

    def open_once(to, timeout_s):
        if opened:
            raise errors.Unauthorised("who listens there now knows another secret")
        opened.append(LostChannel())
        return opened[0]

    with RpcClient("127.0.0.1", 1, opener=open_once) as client, pytest.raises(errors.Unreachable, match="its place"):
        client.call("echo", (1,), timeout_s=5.0)
