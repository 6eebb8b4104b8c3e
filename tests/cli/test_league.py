"""`ludus league`, `ludus arena` and `ludus promote --gate`: what they print, keep, refuse, and their exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.cli.main import main
from ludus.errors import ConfigError
from ludus.league.champion import publish_champion
from ludus.league.view import read_view
from ludus.models.versions.store import VersionStore
from ludus.training import api as training

GAME = "board:tic_tac_toe"
AUCTION = f"{Path(__file__).parents[1] / 'league' / 'own_games.py'}:auction"  # of three
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
        (["--rules", "psro", "--oracle", "exact"], "was started with rules='alphastar'"),
        (["--oracle", "exact"], "was started with oracle='learn'"),
        (["--meta-solver", "uniform"], "was started with meta_solver='nash'"),
        (["--main", "0", "--main-exploiters", "0", "--league-exploiters", "0"], "nobody in this league learns"),
    ],
)
def test_a_league_that_goes_on_refuses_what_it_was_not_started_with(
    project: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = project / "kept" / "league" / "config.json"
    before = config.read_bytes()
    assert league(project, GAME, "--trial", "kept", *options) == 2
    assert said in capsys.readouterr().err
    assert config.read_bytes() == before, "the next run is not given it"


def test_a_port_that_a_league_must_not_open_is_refused_when_it_goes_on_and_nothing_of_it_is_kept(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LUDUS_TOKEN", "LUDUS_TOKEN_FILE", "LUDUS_SECRET", "LUDUS_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    for words, said in (
        (["--serve", "0", "--serve-host", "0.0.0.0"], "give it a token or a secret"),
        (["--secret", "S"], "--secret is for the port where games play matches"),
    ):
        assert league(project, GAME, "--trial", "kept", *words) == 2
        assert said in capsys.readouterr().err
    kept = json.loads((project / "kept" / "league" / "config.json").read_text())
    assert (kept["serve"], kept["serve_host"]) == (None, "127.0.0.1")
    assert not {"token", "secret"} & set(kept)


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
        ([GAME, "--algorithm", "mappo"], "as one team"),
        ([GAME, "--search", "8", "--recurrent", "lstm"], "network without state"),
        (["matrix:rps", "--search", "8"], "matrix:rps has none"),
        (["openspiel:tic_tac_toe", "--rules", "psro", "--oracle", "exact"], "too large for tables"),
        (["matrix:rps", "--algorithm", "alphazero"], "matrix:rps has none"),
        ([AUCTION, "--rules", "psro"], "rules=psro is for games of two sides"),
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
        ["add", "copy", "--from", "kept@main-1"],
    ):
        assert league(project, *words) == 0, words
    players = {player["name"]: player for player in view(project)["players"]}
    assert players["second"]["role"] == "frozen"
    assert (players["copy"]["role"], players["copy"]["model"], players["copy"]["version"]) == ("frozen", "copy", 0)
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
        (["add", "x", "--from", "nowhere"], "no trial 'nowhere'"),
        (["add", "x", "--from", "kept@main-1", "--role", "main"], "--role frozen"),
        (["add", "x", "--from", "kept@main-1", "--model-version", "3"], "--from TRIAL@VERSION"),
    ):
        assert league(project, *words) == 2, words
        assert said in capsys.readouterr().err
    for name in ("white", "copy"):
        assert league(project, "remove", name) == 0


def test_who_cannot_be_served_is_not_promoted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = view(project).get("champion")
    store = VersionStore(project / "kept" / "models")
    store.publish("gone", store.get("main")[1], number=1)
    assert league(project, "add", "gone", "--role", "frozen", "--model-version", "1") == 0
    shutil.rmtree(project / "kept" / "models" / "gone")
    assert league(project, "promote", "gone") == 2
    assert "gone" in capsys.readouterr().err
    assert view(project).get("champion") == before
    assert league(project, "remove", "gone") == 0


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
    assert main(["rollback", "kept", "--project", str(project)]) == 2
    assert "ludus league promote kept NAME" in capsys.readouterr().err
    for command in ("evaluate", "watch"):
        assert main([command, "kept", "--project", str(project)]) == 2
        assert "ludus arena" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="is a league"):
        training.resume("kept", project=str(project))


def test_resume_goes_on_with_a_league(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = view(project)["stats"]["num_games"]
    for words, of_whom in ((["league_exploiter"], "league_exploiter"), ([], "main")):
        assert league(project, "promote", *words) == 0
        capsys.readouterr()
        assert main(["resume", "kept", "--project", str(project), "--json"]) == 0  # it has done its steps
        result = json.loads(capsys.readouterr().out)
        assert result["game"] == GAME
        assert result["champion"].startswith(of_whom), "who was promoted, or else the best main agent"
        assert league(project, "status") == 0
        assert f"champion {result['champion']}" in capsys.readouterr().out
        number = VersionStore(project / "kept" / "models").tags("policy")["production"]
        assert number == publish_champion(project / "kept").version, "and who is served"
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
    strict = ["--exploit-steps", "0", "--min-win-rate", "1"]
    assert main([*gate[:2], "main", *gate[2:], *strict]) == 1
    assert "refused: it won" in capsys.readouterr().out
    assert view(project)["champion"] == "main-1"
    of_main = [player for player in view(project)["players"] if player["parent"] == "main"]
    judged = max(of_main, key=lambda player: (player["step"], int(player["version"])))["name"]
    assert main([*gate[:2], judged, *gate[2:], "--exploit-steps", "0", "--min-win-rate", "0"]) == 0
    assert view(project)["champion"] == judged
    assert main([*gate[:2], judged, *gate[2:], "--exploit-steps", "0"]) == 0
    assert "is the champion already" in capsys.readouterr().out
    for name, said in (("nobody", "no player 'nobody'"), ("random", "'random' is a bot")):
        assert main([*gate[:2], name, *gate[2:]]) == 2
        assert said in capsys.readouterr().err
    assert view(project)["champion"] == judged
