"""Workers, versions and sessions of trials that run: their workers are threads of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ludus import errors, launch
from ludus.clock import FakeClock
from ludus.gateway.client import GameClient
from ludus.page.app import make_app
from ludus.page.running import RunningTrials
from ludus.page.site import Site
from ludus.program import Program

from .requests import ask
from .running import Idle, publish_versions, running_trial, wait

PART = {"x_ludus_part": "1"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A project where `monday` runs and `sunday` has ended, and the address of monday's gateway."""
    project = tmp_path_factory.mktemp("running")
    program = Program("views")
    program.add("idle", Idle)
    launch.local(program, project=project, trial="sunday", threads=True).stop()
    with running_trial(project) as url:
        yield project, url


@pytest.fixture
def site(running: tuple[Path, str]) -> Iterator[Site]:
    site = Site(running[0])
    yield site
    site.close()


def show(site: Site, path: str) -> str:
    answer = ask(make_app(site), path, **PART)
    assert answer.status == 200, answer.text
    return answer.text


def fresh(site: Site, path: str) -> str:
    """Not what was kept for a moment."""
    trials = site.part(RunningTrials)
    with trials._lock:
        trials._answers.clear()
    return show(site, path)


def test_workers_are_paused_resumed_and_restarted_and_the_outcome_is_said(site: Site) -> None:
    app, path = make_app(site), "/trials/monday/workers"
    text = show(site, path)
    assert all(worker in text for worker in ("idle/0", "idle/1", "last/0", "actor-0/0"))
    for command, seen in (("pause", "resume idle/0"), ("resume", "pause idle/0")):
        assert ask(app, f"{path}/do/{command}", method="POST", form={"worker": "idle/0"}, **PART).status == 200
        wait(lambda seen=seen: f'aria-label="{seen}"' in fresh(site, path))
        assert f"{command} idle/0: done" in show(site, path)
    assert ask(app, f"{path}/do/restart", method="POST", form={"worker": "idle/1"}, **PART).status == 200
    wait(lambda: site.part(RunningTrials).workers(site.project / "monday")["idle/1"]["restarts"] == 1)
    assert "restart idle/1: asked to; its driver starts it again" in show(site, path)
    ask(app, f"{path}/do/restart", method="POST", form={"worker": "last/0"}, **PART)
    assert "max_restarts=0, so the run ends with it" in show(site, path)


def test_commands_to_what_is_not_there_are_refused(site: Site) -> None:
    app = make_app(site)
    answer = ask(app, "/trials/monday/workers/do/pause", method="POST", form={"worker": "gone/0"}, **PART)
    assert answer.status == 409
    assert "There is no worker 'gone/0'" in answer.text
    answer = ask(app, "/trials/sunday/workers/do/pause", method="POST", form={"worker": "idle/0"}, **PART)
    assert answer.status == 409
    assert "is not running: stopped" in answer.text
    assert "Nobody drives this trial now" in show(site, "/trials/sunday/workers")


def test_sessions_and_the_steps_of_one_are_seen_as_they_come(site: Site, running: tuple[Path, str]) -> None:
    path = "/trials/monday/sessions"
    assert "No session is live" in fresh(site, path)
    with GameClient(running[1], "game-1") as game:
        game.start()
        assert "game-1" in fresh(site, path)
        game.tick(b'{"left": [1, 0.123456]}')
        text = fresh(site, f"{path}?session=game-1&worker=actor-0/0")
        assert "{&#34;left&#34;: [1, 0.1235]}" in text
        assert "25 bytes" in text  # the answer is no JSON
        assert "tick 1" in text
        game.end()
    assert "It is not live" in fresh(site, f"{path}?session=game-1&worker=actor-0/0")
    assert "It is not live" in fresh(site, f"{path}?session=game-1&worker=idle/0")


def test_versions_have_their_tags_and_shares_and_are_promoted_after_a_second_click(site: Site) -> None:
    folder = site.project / "monday"
    store = publish_versions(folder)
    app, path = make_app(site), "/trials/monday/versions"
    text = fresh(site, path)
    assert "<summary>Promote</summary>" in text
    assert "Have production be version 3 of policy" in text
    assert "75%" in text
    assert "25%" in text
    answer = ask(app, f"{path}/do/promote", method="POST", form={"model": "policy", "version": "3"}, **PART)
    assert answer.status == 200
    assert store.tags("policy")["production"] == 3
    assert "Take production back to version 1" in show(site, path)
    assert ask(app, f"{path}/do/rollback", method="POST", form={"model": "policy"}, **PART).status == 200
    assert store.tags("policy")["production"] == 1
    for form in ({"model": "../x", "version": "1"}, {"model": "policy", "version": "x"}, {"model": "policy"}):
        assert ask(app, f"{path}/do/promote", method="POST", form=form, **PART).status == 409
    assert store.tags("policy")["production"] == 1


def test_what_a_league_serves_is_not_moved_here_but_by_the_command_that_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    (folder / "league").mkdir(parents=True)
    for path in ("config.json", "league/config.json"):
        (folder / path).write_text("{}")
    store = publish_versions(folder)
    store.publish("main", {"w": np.zeros(3, np.float32)}, number=1)
    with contextlib.closing(Site(tmp_path)) as site:
        app, path = make_app(site), "/trials/kept/versions"
        text = fresh(site, path)
        assert "ludus league promote kept NAME" in text
        assert "of policy</button>" not in text
        assert "of main</button>" in text, "what is not served is as it was"
        for action in ("promote", "rollback"):
            form = {"model": "policy", "version": "3"}
            answer = ask(app, f"{path}/do/{action}", method="POST", form=form, **PART)
            assert answer.status == 409
            assert "ludus league promote kept NAME" in answer.text
    assert store.tags("policy")["production"] == 1


def test_answers_and_failures_are_kept_for_a_moment(tmp_path: Path) -> None:
    clock = FakeClock(100.0)
    trials = RunningTrials(clock)
    asked = []

    def fail() -> None:
        asked.append(1)
        raise errors.ProgramError("gone")

    for _ in range(3):
        with pytest.raises(errors.ProgramError, match="gone"):
            trials._ask(tmp_path, "x", fail)
    assert len(asked) == 1
    clock.advance(1.0)
    with pytest.raises(errors.ProgramError):
        trials._ask(tmp_path, "x", fail)
    assert len(asked) == 2
    for number in range(1000):
        clock.advance(1.0)
        trials._ask(tmp_path, str(number), lambda: 1)
    assert len(trials._locks) <= 65
    assert len(trials._answers) <= 65
