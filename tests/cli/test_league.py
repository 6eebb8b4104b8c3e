"""`ludus league`, `ludus arena` and `ludus promote --gate`: what they print, keep, refuse, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.cli.main import main
from ludus.errors import ConfigError
from ludus.league.view import read_view
from ludus.training import api as training

GAME = "board:tic_tac_toe"
SMALL = ["--num-envs", "8", "--num-steps", "16", "--minibatch-size", "128", "--num-epochs", "1", "--hidden", "16"]
TINY = [*SMALL, "--threads", "1", "--turn-updates", "1", "--snapshot-steps", "200", "--games-per-match", "2"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one league, `kept`, that has trained a little."""
    path = tmp_path_factory.mktemp("project")
    assert main(["league", GAME, "--project", str(path), "--trial", "kept", "--steps", "1200", *TINY]) == 0
    return path


def league(project: Path, *words: str) -> int:
    action, *rest = words
    return main(["league", action, *(["kept"] if action != GAME else []), *rest, "--project", str(project)])


def view(project: Path) -> dict[str, Any]:
    found = read_view(project / "kept" / "league" / "view.json")
    assert found is not None
    return found


def test_the_same_command_goes_on_with_a_league(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = view(project)["stats"]
    capsys.readouterr()
    assert league(project, GAME, "--trial", "kept", "--steps", str(before["num_steps"] + 300), "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] >= before["num_steps"] + 300
    assert view(project)["stats"]["num_games"] > before["num_games"]
    assert {each["name"] for each in result["standings"]} >= {"main", "exploiter", "league_exploiter", "random"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hidden", "32"], "was started with hidden=(16,)"),
        (["--teams", "0,1"], "was started with teams="),
        (["--algorithm", "appo"], "was started with algorithm='alphazero'"),
        (["--bots", "alphabta"], "Did you mean 'alphabeta'"),
    ],
)
def test_a_league_that_goes_on_refuses_what_it_was_not_started_with(
    project: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert league(project, GAME, "--trial", "kept", *options) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["CartPole-v1"], "has one agent"),
        (["board:conect_four"], "connect_four"),
        ([GAME, "--teams", "0+1"], "2 teams or more"),
        ([GAME, "--bots", "alphabta"], "alphabeta"),
        ([GAME, "--decay", "0"], "decay"),
        ([GAME, "--mian", "2"], "--main"),
        ([GAME, "--algorithm", "dqn"], "replay"),
        ([GAME, "--search", "8", "--recurrent", "lstm"], "network without state"),
        (["matrix:rps", "--search", "8"], "matrix:rps has none"),
        (["matrix:rps", "--algorithm", "alphazero"], "matrix:rps has none"),
        (["pettingzoo:tictactoe_v3", "--search", "8"], "and board:tic_tac_toe is the same game. Leave it out"),
        (["openspiel:connect_four", "--algorithm", "alphazero"], "and board:connect_four is the same game. Leave it"),
        (["game://127.0.0.1:9"], "games that call"),
    ],
)
def test_what_cannot_be_played_is_refused_and_leaves_nothing(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["league", *words, "--project", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_players_are_changed_while_nobody_runs_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["add", "second"],
        ["add", "ab", "--role", "bot", "--model", "alphabeta:1"],
        ["add", "white", "--role", "league_exploiter", "--sides", "0"],
        ["add", "halver", "--role", "frozen", "--model", "main", "--search", "8", "--gumbel"],
        ["snapshot", "main"],
        ["freeze", "second"],
        ["remove", "ab"],
        ["set", "roles.main.share=3", "decay=0.9", "roles.main.matchmaking.pfsp=1"],
        ["promote", "main-1"],
    ):
        assert league(project, *words) == 0, words
    players = {player["name"]: player for player in view(project)["players"]}
    assert players["second"]["role"] == "frozen"
    assert players["white"]["sides"] == [0]
    assert (players["halver"]["search"], players["halver"]["gumbel"]) == (8, True)
    assert "ab" not in players
    assert view(project)["champion"] == "main-1"
    capsys.readouterr()
    for words, said in (
        (["add", "second"], "there is, or was"),
        (["add", "x", "--sides", "left"], "numbers of sides"),
        (["freeze", "random"], "does not learn"),
        (["remove", "mian"], "main"),
        (["set", "decay=2"], "at most 1"),
        (["set", "roles.main"], "KEY=VALUE"),
        (["promote", "nobody"], "no player"),
    ):
        assert league(project, *words) == 2, words
        assert said in capsys.readouterr().err
    assert league(project, "remove", "white") == 0


def test_status_prints_standings_and_payoff(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert league(project, "status") == 0
    printed = capsys.readouterr().out
    assert "won by row against column" in printed
    assert "main_exploiter" in printed
    assert league(project, "status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["game"] == GAME
    assert main(["league", "status", "nothing", "--project", str(project)]) == 2
    assert "nothing" in capsys.readouterr().err


def test_status_prints_who_wins_on_which_side(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for side in (None, 0, 1):
        chosen = [] if side is None else ["--side", str(side)]
        assert league(project, "status", *chosen) == 0
        assert {None: "won by row against", 0: "row as first against", 1: "row as second against"}[side] in (
            capsys.readouterr().out
        )
        assert league(project, "status", "--json", *chosen) == 0
        found.append(json.loads(capsys.readouterr().out)["payoff"])
    both, first, second = (np.array(each["games"]) for each in found)
    assert first.sum() > 0
    assert np.allclose(first + second, both, atol=0.02)
    assert np.array_equal(first, second.T), "where one is first, the other is second"
    won = [np.array(each["win_rate"]) for each in found]
    assert np.array_equal(won[1], np.round(1.0 - won[2].T, 4))
    assert not np.array_equal(won[0], won[1])
    assert league(project, "status", "--side", "2") == 2
    assert "sides are 0 to 1" in capsys.readouterr().err


def test_status_says_that_a_damaged_view_is_not_an_empty_league(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "kept" / "league" / "view.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:500])
    try:
        assert league(project, "status") == 2
        assert "cannot be read" in capsys.readouterr().err
        assert league(project, "promote") == 0  # what a person changes is seen at once
        assert league(project, "status") == 0
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "words", [["decay=0.9", "decay.x=3"], ["decay=0.9", "decay=0.8"], ["roles.main.share=2", "roles=1"]]
)
def test_a_rule_that_is_set_twice_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert league(project, "set", *words) == 2
    assert "is set twice" in capsys.readouterr().err


def test_commands_for_one_policy_point_to_those_of_leagues(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["promote", "kept", "main", "--project", str(project)]) == 2
    assert "ludus league promote kept main" in capsys.readouterr().err
    for command in ("evaluate", "watch"):
        assert main([command, "kept", "--project", str(project)]) == 2
        assert "ludus arena" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="is a league"):
        training.resume("kept", project=str(project))


def test_resume_goes_on_with_a_league(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = view(project)["stats"]["num_games"]
    assert main(["resume", "kept", "--project", str(project), "--json"]) == 0  # it has done its steps
    assert json.loads(capsys.readouterr().out)["game"] == GAME
    assert view(project)["stats"]["num_games"] >= before


def test_an_arena_plays_every_pair_as_often_as_asked_and_says_how_sure_it_is(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["arena", "main-1", "random", "alphabeta:2", "--trial", "kept", "--games", "20", "--project", str(project)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["pairs"]) == 6
    for pair in found["pairs"]:
        assert pair["wins"] + pair["draws"] + pair["losses"] >= 20
        assert pair["low"] <= pair["win_rate"] <= pair["high"]
    assert found["elo"]["alphabeta:2"][0] > found["elo"]["random"][0]
    assert main(["arena", "random", "alphabeta:2", "--project", str(project)]) == 2
    assert "--game" in capsys.readouterr().err
    assert main(["arena", "kept@nobody", "random", "--project", str(project)]) == 2
    assert "no player 'nobody'" in capsys.readouterr().err


def test_the_gate_promotes_refuses_or_says_why_it_cannot_judge_by_its_exit_code(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert league(project, "promote", "main-1") == 0
    gate = ["promote", "kept", "--gate", "--project", str(project), "--games", "20"]
    lenient = ["--min-win-rate", "0", "--exploit-steps", "300", "--max-exploit", "1"]
    strict = ["--exploit-steps", "0", "--min-win-rate", "1"]
    assert main([*gate[:2], "main", *gate[2:], *strict]) == 1
    assert "refused: it won" in capsys.readouterr().out
    assert view(project)["champion"] == "main-1"
    of_main = [player for player in view(project)["players"] if player["parent"] == "main"]
    judged = max(of_main, key=lambda player: (player["step"], int(player["version"])))["name"]
    assert main([*gate[:2], judged, *gate[2:], *lenient]) in (0, 1)  # an exploiter that wins all is refused
    assert main([*gate[:2], judged, *gate[2:], "--exploit-steps", "0", "--min-win-rate", "0"]) == 0
    assert view(project)["champion"] == judged
    assert main([*gate[:2], judged, *gate[2:], "--exploit-steps", "0"]) == 0
    assert "is the champion already" in capsys.readouterr().out
    assert main([*gate[:2], "nobody", *gate[2:]]) == 2
    assert "no player 'nobody'" in capsys.readouterr().err
