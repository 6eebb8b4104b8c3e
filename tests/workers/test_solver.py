"""The solver: least busy replica, another when one dies, never twice."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ludus import discovery, errors
from ludus.clock import FakeClock
from ludus.discovery.store import Record
from ludus.discovery.store_names import StoreNames
from ludus.discovery.table import Table
from ludus.rpc.address import Address, parse
from ludus.rpc.opening import nearest
from ludus.rpc.server import Deferred, RpcServer
from ludus.testing.serving import ServerThread
from ludus.workers.register import register
from ludus.workers.remote import Remote
from ludus.workers.server import WorkerServer
from ludus.workers.solver import Solver, let_move, service_name
from ludus.workers.worker import make_worker

REPLICA = """
import os, sys, time
from ludus import discovery
from ludus.workers.register import register
from ludus.workers.server import WorkerServer
from ludus.workers.worker import make_worker

class Replica:
    @register
    def who(self):
        return os.getpid()
    @register
    def slow(self, s):
        time.sleep(s)
        return os.getpid()
    @register
    def note(self, path, x):
        with open(path, "a") as ledger:
            ledger.write(f"{x}\\n")
        time.sleep(0.02)
        return x

names = discovery.connect(sys.argv[1])
server = WorkerServer(sys.argv[2], experiment="exp", trial="t", names=names, ttl=1.0)
make_worker(server, Replica, (), {}).run()
"""


@pytest.fixture
def replicas(tmp_path):
    url = f"file://{tmp_path}/names"
    started = {}

    def start(name):
        started[name] = subprocess.Popen([sys.executable, "-c", REPLICA, url, name])
        return started[name]

    names = discovery.connect(url)
    start.names = names
    start.processes = started
    yield start
    for process in started.values():
        process.kill()
        process.wait()
    names.close()


def _wait_for(solver, count):
    deadline = time.monotonic() + 20
    while len(solver.replicas("replica")) != count:
        assert time.monotonic() < deadline, solver.replicas("replica")
        time.sleep(0.02)


def test_calls_are_spread_over_the_replicas(replicas):
    for i in range(2):
        replicas(f"replica/{i}")
    with Solver("exp", "t", names=replicas.names) as solver:
        _wait_for(solver, 2)
        slow = [solver.submit("replica", "slow", (0.2,)) for _ in range(4)]
        assert len({pending.result() for pending in slow}) == 2
        assert {solver.retrieve("replica", "who") for _ in range(8)} == {
            process.pid for process in replicas.processes.values()
        }
        first = replicas.processes["replica/0"].pid
        assert {solver.retrieve("replica/0", "who") for _ in range(4)} == {first}


def test_a_call_waits_for_the_first_replica(replicas):
    with Solver("exp", "t", names=replicas.names, timeout_s=20.0) as solver:
        pending = solver.submit("replica", "who")
        assert solver.statistics()["replica"].num_parked == 1
        process = replicas("replica/0")
        assert pending.result() == process.pid


def test_without_a_replica_a_call_ends_at_its_deadline_and_was_not_run(replicas):
    with Solver("exp", "t", names=replicas.names) as solver:
        began = time.monotonic()
        with pytest.raises(errors.Unreachable, match="not run"):
            solver.submit("replica", "who", timeout_s=0.3).result()
        assert time.monotonic() - began < 20.0


@pytest.mark.chaos
def test_calls_a_dead_replica_had_not_started_are_run_by_another_and_none_twice(replicas, tmp_path):
    for i in range(2):
        replicas(f"replica/{i}")
    ledger = tmp_path / "ledger"
    with Solver("exp", "t", names=replicas.names, timeout_s=20.0) as solver:
        _wait_for(solver, 2)
        pendings = {i: solver.submit("replica", "note", (str(ledger), i)) for i in range(60)}
        time.sleep(0.1)
        os.kill(replicas.processes["replica/0"].pid, signal.SIGKILL)
        killed = time.monotonic()
        outcomes = {}
        for i, pending in pendings.items():
            try:
                outcomes[i] = pending.result()
            except errors.OutcomeUnknown as error:
                outcomes[i] = error
        assert time.monotonic() - killed < 10
    ran = [int(line) for line in ledger.read_text().split()]
    assert len(ran) == len(set(ran)), "a call was run twice"
    unknown = [i for i, outcome in outcomes.items() if isinstance(outcome, errors.OutcomeUnknown)]
    assert len(unknown) <= 1  # the one it was running
    assert all(i in ran for i in outcomes if i not in unknown)


def test_a_replica_that_was_killed_and_came_back_is_used_again(replicas):
    replicas("replica/0")
    with Solver("exp", "t", names=replicas.names, timeout_s=20.0) as solver:
        assert solver.retrieve("replica", "who") == replicas.processes["replica/0"].pid
        replicas.processes["replica/0"].kill()
        replicas.processes["replica/0"].wait()
        again = replicas("replica/0")
        assert solver.retrieve("replica", "who") == again.pid


def test_the_service_is_named_by_a_string_an_object_or_a_class():
    class Policy:
        pass

    class Named:
        service_name = "policy"

    assert [service_name(worker) for worker in ("policy", Policy, Policy(), Named())] == [
        "policy",
        "Policy",
        "Policy",
        "policy",
    ]


class Adder:
    service_name = "adder"

    @register
    def add(self, a, b=1):
        return a + b


def test_the_seed_s_spelling_and_a_remote_do_the_same():
    names = discovery.connect("memory://solver")
    server = WorkerServer("adder/0", experiment="exp", trial="t", names=names)
    worker = make_worker(server, Adder, (), {})
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        with Solver("exp", "t", names=names) as solver:
            assert solver.retrive(Adder(), "add", 1, b=2) == 3
        remote = Remote("adder", experiment="exp", trial="t", names=names)
        assert remote.add(5) == 6
        assert remote.submit("add", 1, b=1).result() == 2
        with pytest.raises(AttributeError):
            _ = remote._private
        remote.close()
    finally:
        worker.request_exit("over")
        thread.join(5)
        names.close()


class Blocker:
    """Says who it is; one that is shut does not, until it is opened."""

    def __init__(self, index, shut, opened):
        self.index, self.shut, self.opened = index, shut, opened

    @register
    def who(self):
        if self.shut == self.index:
            assert self.opened.wait(60)
        return self.index


@pytest.fixture
def blockers():
    """`blockers(shut)`: two replicas, of which one may be shut; their servers, and a solver that knows both."""
    names = discovery.connect("memory://blockers")
    opened, running, solvers = threading.Event(), [], []

    def start(shut=None):
        servers = [WorkerServer(f"who/{i}", experiment="exp", trial="t", names=names) for i in range(2)]
        for index, server in enumerate(servers):
            worker = make_worker(server, Blocker, (index, shut, opened), {})
            thread = threading.Thread(target=worker.run, daemon=True)
            thread.start()
            running.append((worker, thread))
        solvers.append(Solver("exp", "t", names=names))
        while len(solvers[0].replicas("who")) < 2:
            time.sleep(0.01)
        return servers, solvers[0]

    yield start
    opened.set()
    for solver in solvers:
        solver.close()
    for worker, thread in running:
        worker.request_exit("over")
        thread.join(60)
    names.close()


def _wait_held_up(solver, expected):
    until = time.monotonic() + 60
    while solver._service("who")._held_up != expected:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_replica_that_is_held_up_is_out_of_rotation_while_another_is_not(blockers):
    servers, solver = blockers()
    servers[0].show_held_up("poll")
    _wait_held_up(solver, {"who/0"})
    assert {solver.retrieve("who", "who") for _ in range(10)} == {1}
    servers[1].show_held_up("poll")
    _wait_held_up(solver, {"who/0", "who/1"})
    assert {solver.retrieve("who", "who") for _ in range(10)} == {0, 1}
    for server in servers:
        server.show_held_up("")
    _wait_held_up(solver, set())
    assert {solver.retrieve("who", "who") for _ in range(10)} == {0, 1}


@pytest.mark.parametrize("says_so", [True, False])
def test_a_call_that_may_run_twice_is_taken_away_from_a_replica_that_is_held_up(blockers, monkeypatch, says_so):
    monkeypatch.setattr("ludus.workers.solver._MOVE_AFTER_S", 0.3)
    servers, solver = blockers(shut=0)
    calls = [let_move(solver.submit("who", "who")) for _ in range(4)]
    if says_so:
        servers[0].show_held_up("who")
    assert [call.result() for call in calls] == [1, 1, 1, 1]
    assert solver.statistics()["who"].num_moved == 2
    assert solver.statistics()["who"].replicas["who/0"].num_in_flight == 0


def test_a_call_that_may_not_run_twice_stays_where_it_is(blockers, monkeypatch):
    monkeypatch.setattr("ludus.workers.solver._MOVE_AFTER_S", 0.1)
    servers, solver = blockers(shut=0)
    calls = [solver.submit("who", "who", timeout_s=2.0) for _ in range(2)]
    outcomes = [call.link for call in calls]
    servers[0].show_held_up("who")  # only now: a new call would go to the other replica
    _wait_held_up(solver, {"who/0"})
    with pytest.raises(errors.DeadlineExceeded):
        for call in calls:
            call.result()
    assert [call.link for call in calls] == outcomes


def test_a_slow_replica_that_answers_others_keeps_its_calls(blockers, monkeypatch):
    """Under a high load moving calls would only add to it."""
    monkeypatch.setattr("ludus.workers.solver._MOVE_AFTER_S", 0.2)
    _servers, solver = blockers(shut=0)
    call = next(c for c in [let_move(solver.submit("who", "who")) for _ in range(2)] if not _is_answered(c))
    link = call.link
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        link._num_answered += 1  # of other callers
        link.tend()
        time.sleep(0.01)
    assert call.link is link


def _is_answered(call):
    until = time.monotonic() + 0.1
    while not call.done and time.monotonic() < until:
        call.link.pump()
        time.sleep(0.005)
    return call.done


def test_a_replica_that_could_not_be_reached_for_a_moment_is_tried_again():
    names = discovery.connect("memory://moment")
    worker = make_worker(WorkerServer("adder/0", experiment="exp", trial="t", names=names), Adder, (), {})
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    refused = []

    def opener(address, timeout_s):
        if not refused:
            refused.append(address)
            raise errors.Unreachable("its door was full")
        return nearest(address, transport=None, secret=None, timeout_s=timeout_s, max_bytes=1 << 30)

    try:
        names.wait("exp/t/worker/adder/0", 10.0)
        with Solver("exp", "t", names=names, opener=opener) as solver:
            assert solver.submit("adder", "add", (1,), timeout_s=10.0).result() == 2
        assert refused
    finally:
        worker.request_exit("over")
        thread.join(5)
        names.close()


def test_a_replica_that_could_not_be_reached_for_a_moment_is_used_again_beside_others():
    """Calls go on at the other one; nothing waits for the first, and yet it is tried again."""
    names = discovery.connect("memory://beside")
    servers = [WorkerServer(f"adder/{i}", experiment="exp", trial="t", names=names) for i in range(2)]
    workers = [make_worker(server, Adder, (), {}) for server in servers]
    threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
    refused = []

    def opener(address, timeout_s):
        if not refused:
            refused.append(address)
            raise errors.Unreachable("its door was full")
        return nearest(address, transport=None, secret=None, timeout_s=timeout_s, max_bytes=1 << 30)

    for thread in threads:
        thread.start()
    try:
        for i in range(2):
            names.wait(f"exp/t/worker/adder/{i}", 60.0)
        with Solver("exp", "t", names=names, opener=opener) as solver:
            while len(solver.replicas("adder")) < 2:
                time.sleep(0.01)
            assert solver.submit("adder", "add", (1,), timeout_s=60.0).result() == 2
            assert refused
            deadline = time.monotonic() + 30.0
            while len(solver.replicas("adder")) < 2:
                assert time.monotonic() < deadline, "it is never tried again"
                assert solver.submit("adder", "add", (1,), timeout_s=60.0).result() == 2
                time.sleep(0.05)
    finally:
        for worker in workers:
            worker.request_exit("over")
        for thread in threads:
            thread.join(60)
        names.close()


@pytest.mark.parametrize("leaves", ["its name is deleted", "its lease lapses"])
def test_calls_at_a_replica_of_another_host_end_when_it_leaves_the_name_service(leaves):
    """No connection tells of a host that is gone; its name does. What it had may have run, so it is not run again."""
    clock = FakeClock()
    table = Table(clock=clock)
    names = StoreNames(table)
    asked = threading.Event()

    def never():
        asked.set()
        return Deferred()

    def opener(address, timeout_s):
        return nearest(parse(server.address), transport=None, secret=None, timeout_s=timeout_s, max_bytes=1 << 30)

    server = RpcServer(transports=("unix",))
    key = "exp/t/worker/far/0"
    with ServerThread(server, never=never), Solver("exp", "t", names=names, opener=opener) as solver:
        elsewhere = str(Address(instance=parse(server.address).instance, host="another host", tcp="192.0.2.1:1"))
        table.put(key, Record(elsewhere, owner="far", ttl=5.0), replace=False)
        pending = solver.submit("far", "never", timeout_s=40.0)
        assert asked.wait(60.0)
        if leaves == "its lease lapses":
            clock.advance(5.1)
            assert table.get(key) is None
        else:
            names.delete(key)
        with pytest.raises(errors.OutcomeUnknown, match="may have run"):
            pending.result()
        assert solver.replicas("far") == []
    names.close()
