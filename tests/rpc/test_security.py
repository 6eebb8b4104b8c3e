"""Who may listen where, and who is let in."""

import socket
import struct
import threading
from pathlib import Path

import pytest

from ludus import errors
from ludus.rpc import stream
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


# ---- peers that say that they will send much


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def lie_on_unix(address):
    """Declare a message of a gigabyte and send the first of it."""
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(address.unix)
    size = (1 << 30) - 4096
    peer.sendall(struct.pack("<IIQ", size, 1, size - 8) + bytes(200_000))
    return peer


def lie_on_zmq(address, *, is_encrypted):
    """The same in ZeroMQ's own protocol: as a message where all are let in, else in place of the handshake."""
    host, _, port = address.tcp.rpartition(":")
    peer = socket.create_connection((host, int(port)))
    mechanism = b"CURVE" if is_encrypted else b"NULL"
    peer.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32))
    greeting = b""
    while len(greeting) < 64:
        greeting += peer.recv(64 - len(greeting))
    if not is_encrypted:
        ready = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        peer.sendall(b"\x04" + bytes([len(ready)]) + ready)
    peer.sendall((b"\x06" if is_encrypted else b"\x02") + struct.pack(">Q", (1 << 30) - 4096) + bytes(1000))
    return peer


@pytest.mark.parametrize(("transport", "secret"), [("unix", None), ("zmq", None), ("zmq", "open sesame")])
def test_what_a_peer_only_says_that_it_will_send_takes_no_memory(transport, secret):
    server = RpcServer(0, transports=(transport,), secret=secret)
    with ServerThread(server, echo=lambda x: x) as served, RpcClient(served.address, secret=secret) as client:
        assert client.request("echo", 1) == 1
        address, before = parse(served.address), resident_bytes()
        liars = [
            lie_on_unix(address) if transport == "unix" else lie_on_zmq(address, is_encrypted=secret is not None)
            for _ in range(3)
        ]
        for _ in range(20):
            assert client.request("echo", 2) == 2  # behind what the liars sent
        assert resident_bytes() - before < 200 << 20
        for liar in liars:
            liar.close()


def receive(reader):
    messages = []
    while not messages:
        messages = reader.read()
    return messages


def test_a_large_message_is_whole_however_often_its_memory_had_to_grow(monkeypatch):
    monkeypatch.setattr(stream, "_AT_ONCE_BYTES", 200_000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        content = bytes(range(256)) * 6000
        buffers, _ = stream.pack([b"head", content, b"tail"], None)
        sender = threading.Thread(target=lambda: [theirs.sendall(buffer) for buffer in buffers])
        sender.start()
        intake = stream.Intake(2_000_000)
        (frames,) = receive(stream.Reader(ours, None, max_bytes=2_000_000, intake=intake))
        sender.join()
        assert [bytes(frame) for frame in frames] == [b"head", content, b"tail"]
        assert intake.num_bytes == 0


def test_messages_that_are_not_whole_are_bounded_together_and_given_back_when_their_peer_leaves():
    intake = stream.Intake(500_000)
    pairs = [socket.socketpair() for _ in range(2)]
    readers = [stream.Reader(ours, None, max_bytes=1 << 30, intake=intake) for ours, _ in pairs]
    for _, theirs in pairs:
        theirs.settimeout(60)
        theirs.sendall(struct.pack("<IIQ", 900_000_000, 1, 900_000_000) + bytes(120_000))
    for reader in readers:
        assert reader.read() == []
    assert 200_000 < intake.num_bytes < 300_000
    with pytest.raises(ChannelClosed, match="not whole yet"):
        for _ in range(10):
            pairs[0][1].sendall(bytes(50_000))
            assert readers[0].read() == []
    readers[0].close()
    readers[1].close()
    assert intake.num_bytes == 0
    for pair in pairs:
        for sock in pair:
            sock.close()
