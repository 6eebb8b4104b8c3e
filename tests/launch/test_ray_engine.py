"""The Ray engine on a cluster of three nodes on this machine, and without Ray."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import is_alive, parent, wait_until
from staged import Echo, Warner, crashing_program, echo_program, forever_program

from ludus import discovery, errors, launch
from ludus.data.spec import ArraySpec
from ludus.discovery import names
from ludus.launch import Phase, lifeline, ray_engine
from ludus.program import Program, Resources, RestartPolicy
from ludus.program import folder as folders
from ludus.rpc import address
from ludus.rpc.client import RpcClient
from ludus.services.buffer.replay_client import ReplayClient
from ludus.services.buffer.replay_service import ReplayService
from ludus.services.buffer.sharded_replay import ShardedReplayClient

HERE = Path(__file__).parent


def test_without_ray_the_error_says_what_to_install(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(errors.MissingExtra, match=r"pip install 'ludus\[ray\]'"):
        launch.ray(echo_program("out"), project=project)


class FakeRay:
    """As much of `ray` as a launch needs up to its lifeline, on a machine that others know as 127.0.0.2."""

    util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.2")

    def __init__(self, *, is_initialized: bool) -> None:
        self._is_initialized = is_initialized

    def is_initialized(self) -> bool:
        return self._is_initialized

    def init(self, **_options: Any) -> None:
        self._is_initialized = True

    def shutdown(self) -> None:
        self._is_initialized = False


class Listened(Exception):
    """A lifeline was about to listen on the host that is its argument."""


@pytest.fixture
def listened(monkeypatch: pytest.MonkeyPatch) -> type[Listened]:
    """What a launch raises where it would open its lifeline."""

    def listen(host: str, **_options: Any) -> Any:
        raise Listened(host)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(lifeline, "LifelineServer", listen)
    return Listened


@pytest.mark.parametrize(
    ("address", "is_connected", "expected"),
    [(None, False, "127.0.0.1"), ("127.0.0.2:6379", False, "127.0.0.2"), (None, True, "127.0.0.2")],
    ids=["its own", "given", "connected before"],
)
def test_the_lifeline_of_ones_own_cluster_listens_on_loopback_only(
    address: str | None,
    is_connected: bool,
    expected: str,
    listened: type[Listened],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: FakeRay(is_initialized=is_connected))
    with pytest.raises(listened) as caught:
        launch.ray(echo_program("out"), address=address, project=project, names_url="unused")
    assert caught.value.args == (expected,)


@pytest.mark.parametrize(("is_own", "expected"), [(True, "127.0.0.1"), (False, "127.0.0.2")])
def test_the_lifeline_of_a_trials_own_cluster_listens_on_loopback_only(
    is_own: bool, expected: str, listened: type[Listened], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: FakeRay(is_initialized=True))
    folder = folders.TrialFolder.create(project, "trial")
    place = launch.Place(folder=folder, names_url="unused", host="127.0.0.2", secret="secret", reserves=not is_own)
    with pytest.raises(listened) as caught:
        launch.ray(echo_program("out"), within=place)
    assert caught.value.args == (expected,)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 4, "object_store_memory": 80 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    for _ in range(2):
        made.add_node(**size)
    yield made
    made.shutdown()


def raylet_of(node: Any) -> int:
    (process,) = [info.process for kind, infos in node.all_processes.items() if kind == "raylet" for info in infos]
    return int(process.pid)


def pids(run: launch.Run) -> dict[str, int]:
    return {record.name: record.pid for record in run.workers() if record.pid is not None}


@pytest.mark.ray
def test_the_same_program_runs_as_actors(cluster: Any, project: Path) -> None:
    out = project / "answers"
    with launch.ray(echo_program(str(out)), address=cluster.address, project=project) as run:
        assert run.wait(60)
        found = {record.name: record.status for record in run.workers()}
        assert found == {"echo/0": Phase.RUNNING, "echo/1": Phase.RUNNING, "caller/0": Phase.DONE}
        assert run.remote("echo").echo("from the driver")["pid"] in pids(run).values()
        run.panel().connect(["echo/0", "echo/1"])  # one of them may still be on its way
        assert run.panel().auto_connect() == ["echo/0", "echo/1"]
        check_that_others_would_need_the_secret(run)
    assert ast.literal_eval(out.read_text()) == [0, 1, 2, 3, 4]
    assert "done: finished" in (run.trial_dir / "logs" / "caller-0.log").read_text()


@pytest.mark.ray
def test_replay_services_on_two_nodes_are_one_replay(cluster: Any, project: Path) -> None:
    program = Program("replay")
    spec = {"number": ArraySpec((), np.int64)}
    handle = program.add("replay", ReplayService, spec, num_slots=64, replicas=2, resources=Resources(cpus=3))
    with launch.ray(program, address=cluster.address, project=project) as run:
        remote = run.remote(handle)
        replay = ShardedReplayClient([ReplayClient(remote.replica(index)) for index in range(2)])
        for number in range(0, 30, 3):
            replay.insert({"number": np.arange(number, number + 3)})
        replay.flush()
        assert [shard["size"] for shard in replay.statistics()["shards"]] == [15, 15]
        drawn = np.concatenate([replay.sample(40)[0]["number"].copy() for _ in range(50)])
        assert set(drawn.tolist()) == set(range(30))
        replay.close()


@pytest.mark.ray
def test_warnings_and_the_result_of_a_worker_come_to_its_driver(
    cluster: Any, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program("staged")
    program.add("warner", Warner)
    with launch.ray(program, address=cluster.address, project=project) as run:
        assert run.wait(60)
        [warner] = run.workers()
    assert warner.last_end is not None
    assert warner.last_end.result == {"score": 1.5}
    [result] = [message for message in caplog.messages if "it raised" in message]
    assert result.startswith("warner/0: it raised (seed 7, step 12) in process ")


def check_that_others_would_need_the_secret(run: launch.Run) -> None:
    """From another host a worker is called over TCP; this one takes that way on purpose."""
    secret = json.loads((run.trial_dir / "trial.json").read_text())["secret"]
    with contextlib.closing(discovery.connect(run.names_url)) as known:
        here = address.parse(known.get(names.worker(run.experiment, run.trial, "echo/0")))
    assert here.tcp
    assert here.curve
    from_afar = str(address.Address(instance=here.instance, host="elsewhere", tcp=here.tcp, curve=here.curve))
    with contextlib.closing(RpcClient(from_afar, secret=secret)) as client:
        assert client.request("echo", value=1)["value"] == 1
    with (
        pytest.raises(errors.RpcError),
        contextlib.closing(RpcClient(from_afar, secret="a guess", timeout_s=1.0)) as client,
    ):
        client.request("echo", value=1)


@pytest.mark.ray
def test_without_an_address_a_cluster_that_somebody_else_runs_here_is_let_be(
    cluster: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    out = project / "answers"
    # In a process of its own: Ray's `shutdown` would end the nodes that a Cluster started in this one, too.
    command = [sys.executable, str(HERE / "staged.py"), "apart", str(project), str(out)]
    used = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True).stdout.strip()
    assert used
    assert used != cluster.address
    assert ast.literal_eval(out.read_text()) == [0, 1, 2, 3, 4]


@pytest.mark.ray
def test_a_crash_shows_its_traceback_not_that_an_actor_died(cluster: Any, project: Path) -> None:
    program = crashing_program(max_restarts=0)
    with (
        launch.ray(program, address=cluster.address, project=project) as run,
        pytest.raises(errors.ProgramError) as caught,
    ):
        run.wait(60)
    for part in ("'crasher/0' crashed once", 'raise ValueError("no reward for you")', "just before the crash"):
        assert part in str(caught.value)


@pytest.mark.ray
def test_a_worker_without_a_place_says_what_it_needs(cluster: Any, project: Path) -> None:
    program = Program("staged")
    program.add("big", Echo, resources=Resources(gpus=8), restarts=RestartPolicy(max_restarts=0))
    with (
        launch.ray(program, address=cluster.address, project=project, max_placement_s=1.0) as run,
        pytest.raises(errors.ProgramError, match=r"no place for it within 1 s.*gpus=8"),
    ):
        run.wait(60)


@pytest.mark.ray
def test_a_stopped_actor_is_killed_and_replaced(cluster: Any, project: Path) -> None:
    """Ray's own kill would wait for the process to listen."""
    program, _forever = forever_program(replicas=2, restarts=RestartPolicy(backoff_s=0.05))
    events: list[launch.Event] = []
    with launch.ray(program, address=cluster.address, project=project, on_event=events.append) as run:

        def up() -> list[launch.WorkerRecord]:
            return [record for record in run.workers() if record.name.startswith("echo") and record.activity]

        wait_until(lambda: len(up()) == 2, timeout_s=90)
        pid = up()[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: any(event.kind is launch.EventKind.CRASHED for event in events), timeout_s=60)
        wait_until(lambda: not is_alive(pid), timeout_s=60)
    (crash,) = [event for event in events if event.kind is launch.EventKind.CRASHED]
    assert "hung: its process has been stopped" in crash.text


@pytest.mark.ray
@pytest.mark.chaos
def test_no_worker_outlives_a_killed_driver_for_long(cluster: Any, project: Path) -> None:
    command = [sys.executable, str(HERE / "staged.py"), "polite", str(project), cluster.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            workers = [int(pid) for pid in process.stdout.readline().split()]
            assert len(workers) == 3
        finally:
            process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in workers), timeout_s=30.0)


@pytest.mark.ray
@pytest.mark.chaos
def test_calls_go_on_when_a_node_of_the_cluster_is_lost(cluster: Any, project: Path) -> None:
    program, forever = forever_program(replicas=3, restarts=RestartPolicy(backoff_s=0.2))
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(launch.ray(program, address=cluster.address, project=project))
        count = run.remote(forever).count
        wait_until(lambda: len(pids(run)) == 4 and count() > 10, timeout_s=300)
        before = pids(run)
        caller_raylet = parent(before["forever/0"])
        echoes = {name: pid for name, pid in before.items() if name.startswith("echo")}
        lost = next(
            node
            for node in cluster.worker_nodes
            if raylet_of(node) != caller_raylet and raylet_of(node) in map(parent, echoes.values())
        )
        hit = [name for name, pid in echoes.items() if parent(pid) == raylet_of(lost)]
        answered = count()
        cluster.remove_node(lost, allow_graceful=False)
        wait_until(lambda: count() > answered + 50)
        wait_until(lambda: all(pids(run).get(name, before[name]) != before[name] for name in hit), timeout_s=200)
        wait_until(lambda: len(run.panel().auto_connect()) == 4, timeout_s=200)
        answered = count()
        wait_until(lambda: count() > answered + 50)
