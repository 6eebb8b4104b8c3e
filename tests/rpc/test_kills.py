"""What a caller learns when its server is killed -9, dropped or replaced."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from ludus import errors
from ludus.rpc.address import parse
from ludus.rpc.batching import Batching
from ludus.rpc.client import RpcClient
from ludus.rpc.server import RpcServer
from ludus.rpc.transport import ChannelClosed
from ludus.rpc.unix import UnixChannel
from ludus.testing.faults import Faults
from ludus.testing.serving import ServerThread

SERVER = """
import sys, time
from ludus.rpc.server import RpcServer
server = RpcServer(int(sys.argv[2]) if sys.argv[2] else None, transports=(sys.argv[1],))
server.register_handler("echo", lambda x: x)
def hang():
    print("started", flush=True)
    time.sleep(600)
server.register_handler("hang", hang)
server.start()
print(server.address, flush=True)
while True:
    server.handle_requests(timeout_s=1.0)
"""


@pytest.fixture
def start():
    started = []

    def run(transport="unix", port=""):
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, transport, str(port)], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def _kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_a_call_that_had_started_ends_in_outcome_unknown_at_once(start):
    process, address = start()
    with RpcClient(address) as client:
        client.request("echo", 1)
        pending = client.submit("hang", timeout_s=300.0)
        assert process.stdout.readline() == "started\n"
        began = time.monotonic()
        _kill(process)
        with pytest.raises(errors.OutcomeUnknown):
            pending.result()
        assert time.monotonic() - began < 30.0


def test_a_call_that_had_not_started_is_known_not_to_have_run(start):
    process, address = start()
    with RpcClient(address) as client:
        client.request("echo", 1)
        hanging = client.submit("hang", timeout_s=300.0)
        queued = client.submit("echo", (2,))
        assert process.stdout.readline() == "started\n"
        _kill(process)
        with pytest.raises(errors.Unreachable):
            queued.result()
        with pytest.raises(errors.OutcomeUnknown):
            hanging.result()


def test_over_tcp_a_kill_is_noticed_and_the_outcome_is_unknown(start):
    process, address = start("zmq", 0)
    with RpcClient(address) as client:
        client.request("echo", 1)
        pending = client.submit("hang", timeout_s=300.0)
        assert process.stdout.readline() == "started\n"
        began = time.monotonic()
        _kill(process)
        with pytest.raises(errors.OutcomeUnknown):
            pending.result()
        assert time.monotonic() - began < 60.0


def test_a_new_server_at_the_same_port_is_used_for_new_calls(start):
    process, address = start("unix", 0)
    del address
    _kill(process)
    with RpcServer(0) as probe:
        port = probe.port
    first, _ = start("unix", port)
    client = RpcClient("localhost", port, transport="unix")
    assert client.request("echo", 1) == 1
    _kill(first)
    start("unix", port)
    assert client.request("echo", 2) == 2
    client.close()


def test_lost_replies_are_asked_for_again_and_nothing_runs_twice():
    ran = []

    def note(x):
        ran.append(x)
        return x

    faults = Faults(seed=1, drop=0.2, delay=0.2, duplicate=0.2)
    with ServerThread(RpcServer(), note=note) as server, RpcClient(server.address, opener=faults.open) as client:
        pendings = [client.submit("note", (i,), timeout_s=30.0) for i in range(200)]
        assert [pending.result() for pending in pendings] == list(range(200))
        assert sorted(ran) == list(range(200))
    assert faults.statistics.num_dropped > 10
    assert faults.statistics.num_duplicated > 10


def test_lost_calls_are_sent_again():
    ran = []
    faults = Faults(seed=2, drop=0.2, duplicate=0.2, on_calls=True)
    with (
        ServerThread(RpcServer(), note=ran.append) as server,
        RpcClient(server.address, opener=faults.open) as client,
    ):
        pendings = [client.submit("note", (i,), timeout_s=30.0) for i in range(50)]
        for pending in pendings:
            pending.result()
        assert sorted(ran) == list(range(50))


def test_only_the_other_end_s_goodbye_proves_that_a_call_was_not_started():
    """A server that we hung up on may still run what it has in its queue; so a call must not be given to another."""
    with ServerThread(RpcServer(transports=("unix",)), echo=lambda x: x) as server:
        ours = UnixChannel(parse(server.address).unix, timeout_s=5.0, max_bytes=1 << 20)
        theirs = UnixChannel(parse(server.address).unix, timeout_s=5.0, max_bytes=1 << 20)
        ours.close()
        assert ours.began(0, 1) is None
    with pytest.raises(ChannelClosed):
        for _ in range(100):
            theirs.receive(0.1)
    assert theirs.began(0, 1) is False
    theirs.close()


def test_a_notified_batched_command_sees_a_batch_of_one():
    seen = []
    server = RpcServer()
    server.register_handler("note", lambda x: seen.append(x.shape), batching=Batching(max_batch=4))
    with ServerThread(server, sync=lambda: None) as served, RpcClient(served.address) as client:
        client.notify("note", np.zeros(3))
        client.request("sync")
        assert seen == [(1, 3)]
