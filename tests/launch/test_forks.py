"""Workers that a template forks: as good as processes of their own, and there sooner."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path

import pytest
from processes import is_alive, members, mentioning, parent, wait_until
from staged import Echo, Seeds

from ludus import launch
from ludus.launch import Phase, local_engine
from ludus.program import Program, RestartPolicy
from ludus.services.simulator.service import SimulatorService


@pytest.fixture(autouse=True)
def _fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork workers of any class."""
    monkeypatch.setattr(local_engine, "_FORKED", ("",))


def echoes(replicas: int = 2) -> Program:
    program = Program("staged")
    program.add("echo", Echo, replicas=replicas, restarts=RestartPolicy(backoff_s=0.05))
    return program


def pid_of(run: launch.Run, worker: str) -> int:
    def find() -> int | None:
        return next((each.pid for each in run.workers() if each.name == worker), None)

    wait_until(find)
    pid = find()
    assert pid is not None
    return pid


def answer(run: launch.Run, value: int) -> int:
    return int(run.remote("echo").echo(value)["value"])


def test_a_forked_worker_is_known_by_its_command_leads_its_group_and_writes_its_own_log(project: Path) -> None:
    with launch.local(echoes(), project=project) as run:
        first, second = pid_of(run, "echo/0"), pid_of(run, "echo/1")
        for index in range(2):
            assert run.remote("echo").replica(index).submit("echo", 7).result()["value"] == 7
        assert parent(first) == parent(second) != os.getpid(), "their template"
        assert (members(first), members(second)) == ([first], [second])
        assert mentioning(f"{run.trial_dir}/workers/echo-0.spec") == [first]
        assert set(mentioning(str(run.trial_dir))) == {first, second, parent(first)}
    assert {each.status for each in run.workers()} == {Phase.EXITED}
    written = {path.name: path.read_text().count("exited") for path in (run.trial_dir / "logs").iterdir()}
    assert written == {"echo-0.log": 1, "echo-1.log": 1, "template.log": 0}


def test_a_killed_worker_is_forked_again_by_the_same_template(project: Path) -> None:
    with launch.local(echoes(), project=project) as run:
        victim = pid_of(run, "echo/0")
        template = parent(victim)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: pid_of(run, "echo/0") != victim)
        assert parent(pid_of(run, "echo/0")) == template
        [end] = [each.last_end for each in run.workers() if each.name == "echo/0"]
        assert end is not None
        assert "SIGKILL" in end.reason
        assert answer(run, 8) == 8


def test_a_template_that_is_killed_takes_its_workers_along_and_all_are_started_again(project: Path) -> None:
    with launch.local(echoes(), project=project) as run:
        before = [pid_of(run, "echo/0"), pid_of(run, "echo/1")]
        assert answer(run, 1) == 1
        template = parent(before[0])
        assert template is not None
        os.kill(template, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, before)))
        wait_until(lambda: not {pid_of(run, "echo/0"), pid_of(run, "echo/1")} & set(before))
        assert answer(run, 2) == 2
        assert parent(pid_of(run, "echo/0")) not in (template, os.getpid())


def test_a_template_that_is_stopped_is_replaced(project: Path) -> None:
    with launch.local(echoes(), project=project) as run:
        victim = pid_of(run, "echo/0")
        assert answer(run, 1) == 1
        template = parent(victim)
        assert template is not None
        os.kill(template, signal.SIGSTOP)
        os.kill(victim, signal.SIGKILL)  # which it cannot tell
        wait_until(lambda: not is_alive(template))
        assert answer(run, 2) == 2


def test_a_run_ends_though_its_template_is_stopped(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.launch.forks._END_S", 0.5)
    with launch.local(echoes(), project=project) as run:
        assert answer(run, 1) == 1
        template = parent(pid_of(run, "echo/0"))
        assert template is not None
        os.kill(template, signal.SIGSTOP)
    assert not is_alive(template)


def test_workers_draw_different_numbers_from_global_generators(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.launch.forks._LIBRARIES", ("numpy.random",))  # as gymnasium would import it
    importlib.import_module("numpy.random")
    program = Program("staged")
    program.add("seeds", Seeds, replicas=3)
    with launch.local(program, project=project) as run:
        drawn = [run.remote("seeds").replica(index).submit("draw").result() for index in range(3)]
    for numbers in zip(*drawn, strict=True):
        assert len(set(numbers)) == 3


def test_one_worker_and_code_of_a_user_have_processes_of_their_own(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with launch.local(echoes(replicas=1), project=project) as run:
        assert answer(run, 1) == 1
        assert parent(pid_of(run, "echo/0")) == os.getpid()
    monkeypatch.setattr(local_engine, "_FORKED", SimulatorService.__module__)
    with launch.local(echoes(), project=project) as run:
        assert answer(run, 1) == 1
        assert parent(pid_of(run, "echo/0")) == parent(pid_of(run, "echo/1")) == os.getpid()
