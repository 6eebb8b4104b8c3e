"""Calls that wait at a server: those that are late, or that nobody waits for, do not run with a batch."""

import threading

import pytest

from ludus import errors
from ludus.rpc.batching import Batching
from ludus.rpc.client import RpcClient
from ludus.rpc.server import RpcServer
from ludus.testing.serving import ServerThread

WAIT_S = 60.0


@pytest.mark.parametrize("batching", [Batching(batch=4, straggler_s=WAIT_S), Batching(max_batch=8)], ids=str)
def test_calls_whose_deadline_has_passed_are_not_run_with_a_batch(batching):
    seen = []
    busy, release = threading.Event(), threading.Event()

    def double(x):
        seen.append(x.tolist())
        return x * 2

    def block():
        busy.set()
        release.wait(WAIT_S)

    server = RpcServer(transports=("unix",))
    server.register_handler("double", double, batching=batching)
    with ServerThread(server, block=block) as served, RpcClient(served.address) as client:
        blocked = client.submit("block", timeout_s=WAIT_S)
        assert busy.wait(WAIT_S)
        late = [client.submit("double", (i,), timeout_s=0.05) for i in range(2)]
        for pending in late:
            with pytest.raises(errors.DeadlineExceeded):
                pending.result()
        fresh = [client.submit("double", (i,), timeout_s=WAIT_S) for i in (7, 8)]
        release.set()
        blocked.result()
        assert [pending.result() for pending in fresh] == [14, 16]
        assert served.server.statistics().num_expired == 2
    assert sorted(x for batch in seen for x in batch) == [7, 8]
