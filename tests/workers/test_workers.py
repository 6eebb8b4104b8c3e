"""Workers, the control panel and `@register`."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ludus import discovery, errors
from ludus.core import WorkerStatus
from ludus.workers.panel import WorkerControlPanel
from ludus.workers.register import commands_of, register
from ludus.workers.server import WorkerServer
from ludus.workers.worker import ServiceWorker, Worker, make_worker


@pytest.fixture
def names(request):
    connected = discovery.connect(f"memory://{request.node.name}")
    yield connected
    connected.close()


class Counter(Worker):
    def _configure(self, config):
        if config.get("step", 1) < 0:
            raise ValueError("step must not be negative")
        self.step = config.get("step", 1)
        self.total = getattr(self, "total", 0)
        self.left = False

    def _poll(self):
        self.total += self.step
        time.sleep(0.002)
        if self.total >= self.config.get("end", 1 << 60):
            self.finish()

    def _stats(self):
        return {"total": self.total}

    def _exit(self):
        self.left = True


class Policy:
    def __init__(self, scale=2):
        self.scale = scale
        self.sizes = []

    @register(max_batch=16)
    def act(self, obs):
        self.sizes.append(len(obs))
        return obs * self.scale

    @register
    def name(self):
        return "policy"

    @register(response=False)
    def note(self, x):
        self.sizes.append(x)

    def hidden(self):
        raise AssertionError("not a command")


class Running:
    """Workers in threads, each stopped at the end."""

    def __init__(self, names):
        self.names = names
        self.workers = {}
        self._threads = []
        self.errors = {}

    def add(self, name, cls, *args, config=None, start=True, **kwargs):
        server = WorkerServer(name, experiment="exp", trial="t", names=self.names)
        worker = make_worker(server, cls, args, kwargs)
        if config is not None:
            worker.configure(config)

        def run():
            try:
                worker.run(start=start)
            except Exception as error:
                self.errors[name] = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)
        self.workers[name] = worker
        deadline = time.monotonic() + 60
        while not worker.status.is_final and not self.names.find_subtree(f"exp/t/worker/{name}"):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return worker

    def panel(self):
        return WorkerControlPanel("exp", "t", names=self.names)

    def stop(self):
        for worker in self.workers.values():
            worker.request_exit("test over")
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()


@pytest.fixture
def running(names):
    run = Running(names)
    yield run
    run.stop()


def test_commands_lead_a_worker_through_its_phases(running):
    worker = running.add("counter/0", Counter, start=False)
    with running.panel() as panel:
        panel.connect(["counter/0"])
        assert panel.request("counter/0", "ping")["status"] == "created"
        with pytest.raises(errors.WorkerError, match="created"):
            panel.request("counter/0", "pause")
        panel.request("counter/0", "configure", config={"step": 3})
        panel.request("counter/0", "start")
        assert panel.request("counter/0", "ping")["status"] == "running"
        panel.request("counter/0", "pause")
        before = panel.request("counter/0", "stats")["total"]
        time.sleep(0.05)
        assert panel.request("counter/0", "stats")["total"] == before
        panel.request("counter/0", "resume")
        time.sleep(0.05)
        assert panel.request("counter/0", "stats")["total"] > before
        panel.request("counter/0", "exit")
    running.stop()
    assert worker.status is WorkerStatus.EXITED
    assert worker.left


def test_an_interrupted_worker_leaves_at_once_without_its_exit(running):
    worker = running.add("counter/0", Counter)
    with running.panel() as panel:
        panel.request("counter/0", "interrupt")
    running.stop()
    assert worker.status is WorkerStatus.EXITED
    assert worker.exit_reason in ("interrupted", "test over")
    assert not worker.left


def test_reconfigure_changes_a_live_worker_and_a_refused_change_leaves_it(running):
    worker = running.add("counter/0", Counter, config={"step": 1, "other": 5})
    with running.panel() as panel:
        panel.request("counter/0", "reconfigure", config={"step": 2})
        assert worker.config == {"step": 2, "other": 5}
        with pytest.raises(ValueError, match="negative"):
            panel.request("counter/0", "reconfigure", config={"step": -1})
        assert worker.config == {"step": 2, "other": 5}


def test_a_worker_that_finishes_is_done_and_its_name_goes(running, names):
    worker = running.add("counter/0", Counter, config={"end": 5})
    deadline = time.monotonic() + 60
    while worker.status is not WorkerStatus.DONE and time.monotonic() < deadline:
        time.sleep(0.01)
    running.stop()
    assert worker.status is WorkerStatus.DONE
    assert names.find_subtree("exp") == []


def test_a_worker_that_raises_has_failed(running):
    class Broken(Worker):
        def _poll(self):
            raise RuntimeError("broken")

    worker = running.add("broken/0", Broken)
    deadline = time.monotonic() + 60
    while not worker.status.is_final and time.monotonic() < deadline:
        time.sleep(0.005)
    running.stop()
    assert worker.status is WorkerStatus.FAILED
    assert str(running.errors["broken/0"]) == "broken"


BUSY = """
import sys, time
from ludus import discovery
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

class Busy(Worker):
    def _poll(self):
        until = time.perf_counter() + 0.005
        while time.perf_counter() < until:
            pass

names = discovery.connect(sys.argv[1])
Busy(WorkerServer("busy/0", experiment="exp", trial="t", names=names)).run()
"""


def test_control_commands_are_answered_within_50_ms_while_poll_is_busy(tmp_path):
    url = f"file://{tmp_path}/names"
    names = discovery.connect(url)
    process = subprocess.Popen([sys.executable, "-c", BUSY, url])
    try:
        with WorkerControlPanel("exp", "t", names=names) as panel:
            panel.connect("busy/0", timeout=60.0)
            taken = []
            for _ in range(30):
                began = time.perf_counter()
                panel.request("busy/0", "ping")
                taken.append(time.perf_counter() - began)
            assert sorted(taken)[len(taken) // 2] < 0.05
            panel.request("busy/0", "exit")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        names.close()


def test_a_group_call_gives_one_outcome_for_each_worker(running, names):
    for i in range(3):
        running.add(f"counter/{i}", Counter, config={"step": i})
    names.add("exp/t/worker/ghost/0", WorkerServerOfTheDead.address())
    with running.panel() as panel:
        assert panel.auto_connect() == ["counter/0", "counter/1", "counter/2", "ghost/0"]
        outcomes = panel.group_request("ping", timeout=3.0)
        assert [outcome.worker for outcome in outcomes] == ["counter/0", "counter/1", "counter/2", "ghost/0"]
        assert [outcome.ok for outcome in outcomes] == [True, True, True, False]
        assert isinstance(outcomes[3].error, errors.RpcError)
        chosen = panel.group_request(
            "reconfigure",
            worker_regex="counter/[12]",
            worker_kwargs=[{"config": {"step": 7}}, {"config": {"step": -1}}],
        )
        assert [outcome.ok for outcome in chosen] == [True, False]
        shared = panel.group_request("reconfigure", worker_regex="counter/.", config={"step": 4})
        assert [outcome.ok for outcome in shared] == [True, True, True]
        assert {worker.config["step"] for worker in running.workers.values()} == {4}
        assert isinstance(chosen[1].error, ValueError)
        with pytest.raises(ValueError, match="2 entries for 3 workers"):
            panel.group_request("ping", worker_regex="counter/.*", worker_kwargs=[{}, {}])


class WorkerServerOfTheDead:
    @staticmethod
    def address():
        from ludus.rpc.server import RpcServer

        with RpcServer() as server:
            return server.address


def test_a_late_worker_does_not_hide_the_others(running):
    polling, release = threading.Event(), threading.Event()

    class Slow(Worker):
        def _poll(self):
            polling.set()
            release.wait(60.0)

    running.add("slow/0", Slow)
    running.add("counter/0", Counter)
    with running.panel() as panel:
        panel.connect(["slow/0", "counter/0"])
        assert polling.wait(60.0)
        outcomes = panel.group_request("ping", worker_names=["slow/0", "counter/0"], timeout=3.0)
        release.set()
        assert isinstance(outcomes[0].error, errors.DeadlineExceeded)
        assert outcomes[1].ok


def test_async_request_is_had_later(running):
    running.add("counter/0", Counter)
    with running.panel() as panel:
        panel.connect("counter/0")
        pendings = [panel.async_request("counter/0", "ping") for _ in range(5)]
        assert all(pending.result()["status"] == "running" for pending in pendings)


def test_the_panel_finds_a_worker_that_came_back_elsewhere(running):
    running.add("counter/0", Counter)
    with running.panel() as panel:
        panel.connect("counter/0")
        assert panel.request("counter/0", "ping")
        running.stop()
        running.add("counter/0", Counter)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                assert panel.request("counter/0", "ping")["status"] == "running"
                return
            except errors.Unreachable:
                time.sleep(0.02)
        raise AssertionError("the worker was not found again")


def test_registered_methods_become_commands():
    commands = commands_of(Policy)
    assert set(commands) == {"act", "name", "note"}
    assert commands["act"].batching.max_batch == 16
    assert commands["note"].response is False


def test_register_refuses_what_makes_no_sense():
    with pytest.raises(ValueError, match="not both"):
        register(batch=2, max_batch=3)
    with pytest.raises(ValueError, match="begin at 1"):
        register(batch=0)


def test_a_plain_class_is_served(running):
    worker = running.add("policy/0", Policy, scale=3)
    assert isinstance(worker, ServiceWorker)
    with running.panel() as panel:
        panel.connect("policy/0")
        client = panel._client("policy/0")
        np.testing.assert_array_equal(client.request("act", np.ones(2)), np.full(2, 3.0))
        assert client.request("name") == "policy"
        with pytest.raises(errors.UnknownCommand):
            client.request("hidden")
        assert panel.request("policy/0", "stats")["batches"]["act"] == [1, 1]


def test_a_service_with_run_is_done_when_run_returns_and_fails_when_it_raises(running):
    class Once:
        def run(self):
            time.sleep(0.05)

    class Never:
        def run(self):
            raise KeyError("never")

    once = running.add("once/0", Once)
    never = running.add("never/0", Never)
    deadline = time.monotonic() + 60
    while not (once.status.is_final and never.status.is_final) and time.monotonic() < deadline:
        time.sleep(0.01)
    running.stop()
    assert once.status is WorkerStatus.DONE
    assert never.status is WorkerStatus.FAILED
    assert isinstance(running.errors["never/0"], KeyError)
