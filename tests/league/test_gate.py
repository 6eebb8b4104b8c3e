"""The gate: what is surely so counts, not what may be; and who cannot be promoted is not judged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.cli.main import main
from ludus.errors import ConfigError, DataError, EnvError
from ludus.league import arena, gate
from ludus.league.arena import Contestant
from ludus.league.bots import make_bot
from ludus.league.champion import crown
from ludus.league.config import LeagueRunConfig
from ludus.league.gate_settings import GateSettings
from ludus.league.live import open_league
from ludus.league.payoff import Record
from ludus.league.players import Player
from ludus.models.versions.store import VersionStore

from .games import GAME, add_frozen, new_league, own_game, policy_of

NARROW, CLEAR = Record(wins=55.0, losses=45.0), Record(wins=80.0, losses=20.0)
LEARNS = {"learning_rate": 0.02, "num_envs": 32, "num_steps": 16, "num_epochs": 4}
ROCK = 0


def contestant(name: str) -> Contestant:
    return Contestant(name=name, game=None, open=lambda config: make_bot("random", GAME))


@pytest.mark.parametrize(
    ("against", "exploited", "num_reasons"),
    [(CLEAR, Record(wins=20.0, losses=80.0), 0), (NARROW, CLEAR, 2), (CLEAR, NARROW, 1), (NARROW, Record(), 2)],
)
def test_who_may_be_weaker_or_may_be_exploited_is_refused(
    monkeypatch: pytest.MonkeyPatch, against: Record, exploited: Record, num_reasons: int
) -> None:
    def play(*_args: Any, fill: str, **_options: Any) -> Any:
        assert fill == "old", "in a game of more sides the candidate plays among champions"
        return SimpleNamespace(records={("new", "old"): against})

    monkeypatch.setattr(gate.arena, "play", play)
    monkeypatch.setattr(gate, "_exploit", lambda *_args: exploited)
    settings = GateSettings(min_win_rate=0.5, max_exploit=0.6, exploit_steps=1)
    config: Any = None  # of the game, which is not played
    verdict = gate._judge(contestant("new"), contestant("old"), config, settings, None)
    assert len(verdict.reasons) == num_reasons
    assert verdict.is_passed == (not num_reasons)


# --- in rock, paper, scissors: one that always plays rock, and one that does anything


@pytest.fixture(scope="module")
def rps(tmp_path_factory: pytest.TempPathFactory) -> LeagueRunConfig:
    config = new_league(tmp_path_factory.mktemp("project") / "rps", "matrix:rps", bots=("random",), **LEARNS)
    add_frozen(config, "rock", policy_of(config, favours=ROCK))
    add_frozen(config, "any", policy_of(config, favours=-1))
    with open_league(folder_of(config)) as league:
        league.add_player({"name": "alice", "role": "human"})
    return config


def folder_of(config: LeagueRunConfig) -> Path:
    assert config.folder is not None
    return config.folder


def champion(config: LeagueRunConfig) -> str | None:
    with open_league(folder_of(config)) as league:
        found: str | None = league.champion()
    return found


def test_who_can_be_exploited_is_refused_and_who_cannot_is_promoted_by_the_exit_code(
    rps: LeagueRunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that has learnt to play paper beats rock always, and one that does anything in half of its games.

    Of 400 games a win rate of 0.5 has a standard error of 0.02, so ten of them are between it and the bound, 0.7; and
    one that has learnt nothing wins half against rock as well, which would not refuse it.
    """
    words = ["--gate", "--project", str(folder_of(rps).parent), "--games", "400", "--exploit-steps", "2000"]
    assert main(["promote", "rps", "rock", *words]) == 1
    said = capsys.readouterr().out
    assert "there is no champion to beat yet" in said
    assert "refused: an exploiter won" in said
    assert champion(rps) is None
    assert main(["promote", "rps", "any", *words]) == 0
    assert "any is the champion now" in capsys.readouterr().out
    assert champion(rps) == "any"
    served = VersionStore(folder_of(rps) / "models").get("policy", "production")[1]
    assert {name: leaf.tolist() for name, leaf in served.items()} == {
        name: leaf.tolist() for name, leaf in policy_of(rps, favours=-1).weights().items()
    }


def test_the_same_seed_judges_alike(rps: LeagueRunConfig) -> None:
    first, second, other = (
        gate.judge(folder_of(rps), "any", settings=GateSettings(games=60, exploit_steps=0, seed=seed))
        for seed in (1, 1, 2)
    )
    assert first == second
    assert other.candidate == "any"


@pytest.mark.parametrize(("name", "problem"), [("random", "is a bot"), ("alice", "is a person"), ("bob", "no player")])
def test_who_has_no_network_is_refused_before_anything_is_played(
    rps: LeagueRunConfig, name: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unplayed(*_args: Any, **_options: Any) -> Any:
        raise AssertionError("a game was played")

    monkeypatch.setattr(gate, "_judge", unplayed)
    before = champion(rps)
    for promotes in (True, False):
        with pytest.raises(ConfigError, match=problem):
            gate.judge(folder_of(rps), name, promotes=promotes)
    assert champion(rps) == before


def test_whose_weights_are_gone_is_neither_champion_nor_served(rps: LeagueRunConfig) -> None:
    before, published = champion(rps), VersionStore(folder_of(rps) / "models").latest("policy")
    with open_league(folder_of(rps)) as league, pytest.raises(DataError, match="no version 7"):
        crown(folder_of(rps), Player("rock", role="frozen", model="rock", version=7), league)
    assert champion(rps) == before
    assert VersionStore(folder_of(rps) / "models").latest("policy") == published


# --- with more sides than two


@pytest.fixture(scope="module")
def auction(tmp_path_factory: pytest.TempPathFactory) -> LeagueRunConfig:
    folder = tmp_path_factory.mktemp("project") / "auction"
    config = new_league(folder, own_game("auction"), **{**LEARNS, "num_steps": 8})
    for name, bid in (("low", 0), ("high", 2)):
        add_frozen(config, name, policy_of(config, favours=bid))
    return config


def test_in_a_game_of_three_one_side_is_the_candidates_and_the_others_are_champions(auction: LeagueRunConfig) -> None:
    settings = GateSettings(games=60, exploit_steps=0)
    folder = folder_of(auction)
    with open_league(folder) as league:
        league.promote("low")
    verdict = gate.judge(folder, "high", settings=settings)
    assert verdict.is_passed
    assert verdict.against_champion is not None
    assert verdict.against_champion.win_rate == 1.0
    with open_league(folder) as league:
        league.promote("high")
    assert not gate.judge(folder, "low", settings=settings).is_passed


def test_in_a_game_of_three_an_exploiter_has_one_side_and_the_candidate_the_others(
    auction: LeagueRunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who bids nothing loses to any bid; who bids most cannot do worse than draw."""
    filled, play = [], arena.play

    def noted(*args: Any, fill: str, **options: Any) -> Any:
        filled.append(fill)
        return play(*args, fill=fill, **options)

    monkeypatch.setattr(gate.arena, "play", noted)
    with open_league(folder_of(auction)) as league:
        league.promote(None)
    settings = GateSettings(games=60, exploit_steps=400)
    found = {}
    for name in ("low", "high"):
        exploited = gate.judge(folder_of(auction), name, settings=settings).exploited
        assert exploited is not None
        found[name] = exploited
    assert found["low"].win_rate > 0.95, "0.83 without having learnt anything"
    assert found["high"].wins == 0.0
    assert filled == ["candidate", "candidate"]


def test_teams_of_the_league_are_those_of_the_gate(tmp_path: Path) -> None:
    config = new_league(
        tmp_path / "teams", own_game("auction"), env_args='{"num_bidders": 4}', teams="0+3,1+2", **LEARNS
    )
    for name, bid in (("low", 0), ("high", 2)):
        add_frozen(config, name, policy_of(config, favours=bid))
    with open_league(folder_of(config)) as league:
        league.promote("low")
    verdict = gate.judge(folder_of(config), "high", settings=GateSettings(games=20, exploit_steps=300))
    assert verdict.against_champion is not None
    assert verdict.against_champion.win_rate == 1.0
    assert verdict.exploited is not None
    assert verdict.exploited.games == pytest.approx(20.0)


def test_a_game_that_never_ends_is_an_error_while_an_exploiter_trains(tmp_path: Path) -> None:
    config = new_league(tmp_path / "endless", own_game("endless"))
    add_frozen(config, "low", policy_of(config, favours=0))
    with pytest.raises(EnvError, match="no game of the exploiter has ended"):
        gate.judge(folder_of(config), "low", settings=GateSettings(exploit_steps=10**6, max_game_steps=50))
