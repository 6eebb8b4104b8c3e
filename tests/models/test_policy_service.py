from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import errors, launch
from ludus.data import nest as nests
from ludus.discovery.memory import MemoryNames
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.models.client import ModelClient
from ludus.models.ready_versions import ReadyVersions
from ludus.models.service import ModelService
from ludus.models.versions.service import WeightsService
from ludus.models.versions.store import VersionStore
from ludus.program import Program, RestartPolicy
from ludus.rpc.deferred import Deferred
from ludus.workers.server import WorkerServer

from .policies import HANGING, PLAIN, RECURRENT, Asker, call_of, observe, policy_of, wait_until


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return VersionStore(tmp_path / "versions", keep=4)


def publish(store: VersionStore, spec: PolicySpec, *numbers: int) -> None:
    for number in numbers:
        store.publish("policy", policy_of(spec, number).weights(), number=number)


def serve(store: VersionStore, spec: PolicySpec = PLAIN, **options: Any) -> ModelService:
    """A service whose turns are taken by the test."""
    server = WorkerServer("inference/0", experiment="e", trial="t", names=MemoryNames())
    service = ModelService(server, store.folder, "policy", policy=spec, **options)
    service.configure()
    return service


def forward(service: ModelService, version: Any, asked: tuple[Any, ...]) -> Deferred:
    return service.forward(version, call_of(asked), {})


def outcome(answer: Deferred) -> Any:
    found: list[Any] = []
    answer.bind(lambda value, error: found.append(error if error is not None else value))
    assert found, "not answered yet"
    return found[0]


def agrees(spec: PolicySpec, number: int, asked: tuple[Any, ...], answer: Any) -> bool:
    params, state = policy_of(spec, number).runner()(*asked)
    wanted = {"params": params} if state is None else {"params": params, "state": state}
    pairs = zip(nests.leaves(wanted), nests.leaves(answer["outputs"]), strict=True)
    return answer["version"] == number and all(np.allclose(a, b, atol=1e-5, rtol=1e-5) for a, b in pairs)


@pytest.mark.parametrize("spec", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
def test_what_is_pending_is_run_at_once_and_each_by_its_own_version(store: VersionStore, spec: PolicySpec) -> None:
    publish(store, spec, 1, 2)
    store.tag("policy", "champion", 1)
    service = serve(store, spec)
    versions: list[int | str] = [1, 2, "latest", 1, "champion", 2]
    asked = [observe(spec, rows, seed) for seed, rows in enumerate([3, 1, 5, 2, 4, 7])]
    answers = [forward(service, version, rows) for version, rows in zip(versions, asked, strict=True)]
    assert service._poll() == 22
    for number, rows, answer in zip([1, 2, 2, 1, 1, 2], asked, answers, strict=True):
        assert agrees(spec, number, rows, outcome(answer))
    stats = service.kernel.stats()
    assert (stats.num_batches, stats.num_rows, stats.mean_batch_rows) == (2, 22, 11.0)
    assert (stats.versions, stats.num_loads, stats.num_pending) == ((1, 2), 2, 0)
    assert service._poll() == 0


def test_latest_is_the_newest_when_the_batch_begins(store: VersionStore) -> None:
    publish(store, PLAIN, 1)
    service = serve(store)
    asked = observe(PLAIN, 2, 0)
    answer = forward(service, "latest", asked)
    publish(store, PLAIN, 2)
    service._poll()
    assert agrees(PLAIN, 2, asked, outcome(answer))


def test_a_batch_has_no_more_rows_than_allowed_unless_one_request_has(store: VersionStore) -> None:
    publish(store, PLAIN, 1)
    service = serve(store, max_batch=8)
    answers = [forward(service, 1, observe(PLAIN, rows, rows)) for rows in (5, 3, 1, 20)]
    assert [service._poll() for _ in range(4)] == [8, 1, 20, 0]
    assert [len(outcome(answer)["outputs"]["params"]) for answer in answers] == [5, 3, 1, 20]


@pytest.mark.parametrize("spec", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
def test_a_malformed_request_is_refused_alone(store: VersionStore, spec: PolicySpec) -> None:
    publish(store, spec, 1)
    service = serve(store, spec)
    asked = observe(spec, 2, 0)
    good, (obs, *rest) = forward(service, 1, asked), call_of(observe(spec, 2, 1))
    cut, wide = nests.map(lambda leaf: leaf[:, :1], obs), nests.map(lambda leaf: leaf.astype(np.float64), obs)
    bad: list[tuple[Any, ...]] = [(bad_obs, *rest) for bad_obs in (cut, wide, {"x": obs}, None, "text")]
    bad += [(), (obs, *rest, obs)]
    if rest:
        state, first = rest
        bad += [(obs, obs, first), (obs, state, first.astype(np.int8)), (obs, state, first[:1]), (obs, state, None)]
    for arguments in bad:
        with pytest.raises(errors.DataError, match=r"does not look like its forward_args|number of rows|no array"):
            service.forward(1, arguments, {})
    with pytest.raises(errors.DataError, match="a version is a number"):
        service.forward(1.5, (obs, *rest), {})  # type: ignore[arg-type]
    beyond = service.forward(1, (nests.map(lambda leaf: leaf * 1e6, obs), *rest), {})
    service._poll()
    assert len(outcome(good)["outputs"]["params"]) == len(outcome(beyond)["outputs"]["params"]) == 2
    assert service.kernel.stats().num_failed == len(bad)


def test_a_version_that_is_gone_is_reported_to_those_who_ask_for_it(store: VersionStore) -> None:
    publish(store, PLAIN, *range(6))
    service = serve(store)
    asked = [forward(service, version, observe(PLAIN, 2, 0)) for version in (0, 5, "nobody", 0)]
    service._poll()
    outcomes = [outcome(answer) for answer in asked]
    assert outcomes[1]["version"] == 5
    for error in (outcomes[0], outcomes[3]):
        assert isinstance(error, errors.DataError)
        assert "no version 0 here; there are: 2, 3, 4, 5" in str(error)
    assert "nobody" in str(outcomes[2])


def test_before_the_first_version_callers_are_notified(store: VersionStore) -> None:
    service = serve(store)
    answer = forward(service, "latest", observe(PLAIN, 2, 0))
    service._poll()
    assert isinstance(outcome(answer), errors.DataError)


def test_more_versions_than_are_kept_are_served_by_turns(store: VersionStore) -> None:
    publish(store, PLAIN, 1, 2, 3)
    service = serve(store, keep_versions=2)
    asked = observe(PLAIN, 3, 0)
    for versions in ([1, 2, 3], [1, 3, 2], [3, 2, 1]):
        answers = [forward(service, version, asked) for version in versions]
        service._poll()
        assert all(agrees(PLAIN, n, asked, outcome(answer)) for n, answer in zip(versions, answers, strict=True))
        assert len(service.kernel.stats().versions) == 2


def test_the_version_that_nobody_has_asked_for_the_longest_makes_room(store: VersionStore) -> None:
    publish(store, PLAIN, 1, 2, 3)
    service = serve(store, keep_versions=2)
    asked = observe(PLAIN, 3, 0)
    for version, loaded in ((1, {1}), (2, {1, 2}), (1, {1, 2}), (3, {1, 3}), (2, {2, 3})):
        forward(service, version, asked)
        service._poll()
        assert set(service.kernel.stats().versions) == loaded


def test_a_loaded_version_outlives_retention(store: VersionStore) -> None:
    publish(store, PLAIN, 1)
    service = serve(store)
    asked = observe(PLAIN, 3, 0)
    forward(service, 1, asked)
    service._poll()
    publish(store, PLAIN, 2, 3, 4, 5, 6)
    answer = forward(service, 1, asked)
    service._poll()
    assert agrees(PLAIN, 1, asked, outcome(answer))


def test_after_a_rewind_a_number_is_loaded_again(store: VersionStore) -> None:
    publish(store, PLAIN, 1, 2)
    service = serve(store)
    asked = observe(PLAIN, 3, 0)
    forward(service, 2, asked)
    service._poll()
    store.rewind("policy", 1)
    store.publish("policy", policy_of(PLAIN, 22).weights(), number=2)
    answer = forward(service, 2, asked)
    service._poll()
    params, _ = policy_of(PLAIN, 22).runner()(*asked)
    assert np.allclose(outcome(answer)["outputs"]["params"], params, atol=1e-5)


def test_weights_of_another_network_are_refused_with_a_reason(store: VersionStore) -> None:
    store.publish("policy", {"w": np.zeros(3)}, number=0)
    publish(store, PLAIN, 1)
    service = serve(store)
    bad, good = forward(service, 0, observe(PLAIN, 1, 0)), forward(service, 1, observe(PLAIN, 1, 0))
    service._poll()
    assert "another network" in str(outcome(bad))
    assert outcome(good)["version"] == 1


def test_options_out_of_range_are_refused(store: VersionStore) -> None:
    with pytest.raises(errors.ConfigError, match="begin at 1"):
        serve(store, max_batch=0)


def test_the_batch_size_can_be_changed_while_it_runs_and_nothing_else(store: VersionStore) -> None:
    publish(store, PLAIN, 1)
    service = serve(store, max_batch=8)
    service.reconfigure({"max_batch": 2})
    for _ in range(3):
        forward(service, 1, observe(PLAIN, 2, 0))
    assert [service._poll() for _ in range(4)] == [2, 2, 2, 0]
    for refused in ({"max_batch": 0}, {"model": "other"}):
        with pytest.raises(errors.ConfigError, match="only max_batch"):
            service.reconfigure(refused)


def test_a_name_whose_version_was_just_removed_is_looked_up_again(
    store: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, PLAIN, 1)
    service = serve(store)
    asked = observe(PLAIN, 2, 0)
    answer, refused = forward(service, "latest", asked), forward(service, 1, asked)
    load = ReadyVersions.make

    def late(self: ReadyVersions, number: int) -> Any:
        if number == 1:  # resolved, and removed before it is loaded
            publish(store, PLAIN, 2, 3, 4, 5, 6)
        return load(self, number)

    monkeypatch.setattr(ReadyVersions, "make", late)
    assert [service._poll() for _ in range(3)] == [4, 2, 0]
    assert agrees(PLAIN, 6, asked, outcome(answer))
    assert "no version 1 here" in str(outcome(refused))


# ---- as processes


def test_many_callers_are_each_answered_by_their_version_while_others_are_published(
    tmp_path: Path, store: VersionStore
) -> None:
    publish(store, PLAIN, 1, 2)
    for number in (1, 2):
        store.tag("policy", f"pinned{number}", number)
    program = Program("inference")
    weights = program.add("weights", WeightsService, str(store.folder))
    inference = program.add("inference", ModelService, weights, "policy", policy=PLAIN, keep_versions=3)
    with launch.local(program, project=tmp_path / "trials") as run:
        remote = run.remote(inference)
        outs = [tmp_path / f"out{i}" for i in range(8)]
        askers = [Asker(remote, str(out), versions=[1, 2], num_calls=40, seed=i) for i, out in enumerate(outs)]
        threads = [threading.Thread(target=asker.run) for asker in askers]
        for thread in threads:
            thread.start()
        number = 3
        while any(thread.is_alive() for thread in threads):
            publish(store, PLAIN, number)
            asked = observe(PLAIN, 2, number)
            call = ModelClient.of(remote).ask("latest", call_of(asked), {})
            answer = {"outputs": call.result(), "version": call.version}
            assert agrees(PLAIN, number, asked, answer)
            number += 1
        for thread in threads:
            thread.join(30)
        results = [json.loads(out.read_text()) for out in outs]
        assert max(result["worst"] for result in results) < 1e-5
        assert sum(result["wrong"] for result in results) == 0
        stats = run.panel().request("inference/0", "stats")
        assert stats["num_rows"] > stats["num_batches"]
        assert stats["num_failed"] == 0
    assert number > 3


def test_calls_move_to_another_replica_when_theirs_hangs_and_it_is_replaced(
    tmp_path: Path, store: VersionStore
) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    spec = dataclasses.replace(PLAIN, network=NetworkConfig(model=f"{tmp_path}/hanging.py:Hanging"))
    store.publish("policy", Policy(spec).weights(), number=1)
    program = Program("inference")
    restarts = RestartPolicy(backoff_s=0.05, max_busy_s=2.0)
    inference = program.add(
        "inference", ModelService, str(store.folder), "policy", policy=spec, replicas=2, restarts=restarts
    )
    with launch.local(program, project=tmp_path / "trials") as run:
        remote = run.remote(inference)
        wait_until(lambda: len(remote.solver.replicas("inference")) == 2)
        client = ModelClient.of(remote, timeout_s=120.0)
        asked = call_of(observe(spec, 4, 0))

        def ask_all() -> None:
            calls = [client.ask(1, asked, {}) for _ in range(4)]
            assert all(call.result()["params"].shape == (4, 3) for call in calls)

        for index in range(2):  # the first time of both is over
            ModelClient.of(remote.replica(index), timeout_s=120.0).ask(1, asked, {}).result()
        (tmp_path / "go").touch()
        until = time.monotonic() + 120
        while not any(worker.restarts for worker in run.workers()):
            ask_all()
            assert time.monotonic() < until
            time.sleep(0.01)
        assert (tmp_path / "hung").exists()
        wait_until(lambda: len(remote.solver.replicas("inference")) == 2)


@pytest.mark.chaos
def test_calls_move_to_another_replica_when_theirs_is_killed(tmp_path: Path, store: VersionStore) -> None:
    publish(store, PLAIN, 1)
    program = Program("inference")
    restarts = RestartPolicy(backoff_s=0.05)
    inference = program.add(
        "inference", ModelService, str(store.folder), "policy", policy=PLAIN, replicas=2, restarts=restarts
    )
    with launch.local(program, project=tmp_path / "trials") as run:
        remote = run.remote(inference)
        wait_until(lambda: len(remote.solver.replicas("inference")) == 2)
        client = ModelClient.of(remote)
        asked = observe(PLAIN, 4, 0)
        killed = threading.Event()
        answered: list[bool] = []

        def ask() -> None:
            num_after = 0
            while num_after < 50:
                num_after += killed.is_set()
                outputs = client.ask(1, call_of(asked), {}).result()
                answered.append(agrees(PLAIN, 1, asked, {"outputs": outputs, "version": 1}))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answered) > 30)
        (pid,) = [worker.pid for worker in run.workers() if worker.name == "inference/0"]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        killed.set()
        began = time.monotonic()
        for thread in threads:
            thread.join(30)
        assert time.monotonic() - began < 10
        assert all(answered)
