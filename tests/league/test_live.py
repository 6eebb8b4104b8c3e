"""A league is changed while it runs, through its trial; asked to end, it keeps all that it has learnt."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.errors import ConfigError, LudusError
from ludus.league.view import read_view

from .games import GAME, SMALL

ENDLESS = 10**9


class Stop(Exception):
    pass


def test_players_and_rules_of_a_league_that_runs_are_changed_from_outside(tmp_path: Path) -> None:
    done: list[Any] = []

    def change(step: int, values: Any) -> None:
        if done:
            if values.get("league/steps/second"):
                raise Stop
            return
        with ludus.league.open_league(tmp_path / "live") as league:
            taken = league.snapshot("main")
            league.add_player({"name": "second", "role": "league_exploiter"})
            league.freeze_player("exploiter")
            league.remove_player("league_exploiter")
            league.update_config({"roles": {"main": {"share": 5}}})
            league.promote(taken["name"])
            with pytest.raises(LudusError, match="there is, or was"):
                league.add_player({"name": "second"})
        with pytest.raises(LudusError, match="is running"):
            ludus.league.train(GAME, project=str(tmp_path), trial="live")
        done.append(taken["name"])

    with pytest.raises(Stop):
        ludus.league.train(GAME, **SMALL, project=str(tmp_path), trial="live", steps=ENDLESS, on_progress=change)
    view = read_view(tmp_path / "live" / "league" / "view.json")
    assert view is not None
    players = {player["name"]: player for player in view["players"]}
    assert view["champion"] == done[0]
    assert players["second"]["step"] > 0, "it was trained"
    assert players["exploiter"]["role"] == "frozen"
    assert "league_exploiter" not in players


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_ends_the_turn_and_keeps_what_was_learnt(tmp_path: Path, number: int, raised: Any) -> None:
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(number)
    with pytest.raises(raised):
        ludus.league.train(
            GAME,
            **SMALL,
            project=str(tmp_path),
            trial="stopped",
            checkpoint_seconds=3600.0,
            steps=ENDLESS,
            on_progress=lambda step, values: os.kill(os.getpid(), number),
        )
    assert signal.getsignal(number) == before
    assert list((tmp_path / "stopped" / "learners" / "main" / "checkpoints").glob("*.ludus"))
    with ludus.league.open_league(tmp_path / "stopped") as league:
        assert league.statistics()["num_steps"] > 0


def test_what_is_not_a_league_is_said(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="is no league"):
        ludus.league.train(GAME, project=str(tmp_path), trial="other")
    with pytest.raises(LudusError), ludus.league.open_league(tmp_path / "other"):
        pass
