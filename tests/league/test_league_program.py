"""A league in a program: others call it, and it goes on after it was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ludus import launch
from ludus.errors import LudusError
from ludus.league.league import LeagueSettings
from ludus.league.players import Player
from ludus.league.service import LeagueService
from ludus.program import Program, RestartPolicy


def retried(call: Any, *args: Any) -> Any:
    """As a simulator would: again while the league is being started."""
    for _ in range(50):
        try:
            return call(*args)
        except LudusError as error:
            last = error
    raise last


@pytest.mark.chaos
def test_the_league_of_a_program_goes_on_after_kill_9_and_counts_each_result_once(tmp_path: Path) -> None:
    program = Program("league")
    handle = program.add(
        "league",
        LeagueService,
        tmp_path / "kept",
        LeagueSettings(),
        [Player("main", model="net"), Player("rock", role="bot")],
        restarts=RestartPolicy(backoff_s=0.05),
    )
    with launch.local(program, project=tmp_path) as run:
        league = run.remote(handle)
        num_counted = 0
        for _kill in range(2):
            finished, flying = (retried(league.request_evaluation, ["main", "rock"]) for _ in range(2))
            assert league.report_result(finished["id"], [1.0, 0.0])
            (pid,) = [worker.pid for worker in run.workers()]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert not retried(league.report_result, finished["id"], [1.0, 0.0]), "it was counted before"
            assert retried(league.report_result, flying["id"], [0.0, 1.0]) in (True, False)
            num_counted += 2
        assert league.payoff(["main", "rock"])["games"][0][1] == num_counted
        assert [player["name"] for player in league.players()] == ["main", "rock"]
        assert {standing["player"]["name"] for standing in league.standings()} == {"main", "rock"}
