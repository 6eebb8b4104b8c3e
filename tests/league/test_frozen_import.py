"""Players from other trials: their weights and their network are copied, if they fit the game."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus import envs
from ludus.cli.main import main
from ludus.errors import ConfigError, DataError, ProgramError
from ludus.experiment import config as experiment
from ludus.experiment import saved_config, wiring
from ludus.experiment.checkpoints import CheckpointStore
from ludus.league import arena, gate
from ludus.league import config as configs
from ludus.league.champion import publish_champion, why_not_served
from ludus.league.config import LeagueRunConfig
from ludus.league.frozen_import import import_player
from ludus.league.gate_settings import GateSettings
from ludus.league.live import open_league
from ludus.league.oracle import make_seats
from ludus.league.players import Player
from ludus.league.pools import open_pool
from ludus.league.running import make_service
from ludus.league.training import LeagueTraining
from ludus.learn.policies.policy import Policy
from ludus.models.versions.store import VersionStore

from .games import GAME, add_frozen, new_league, policy_of

OTHER: dict[str, Any] = {"hidden": (24, 12), "activation": "relu"}
"""A network that is not the league's."""


def trained(folder: Path, *, seed: int = 7, game: str = GAME, **settings: Any) -> Policy:
    """A trial as `ludus train` leaves it, with one checkpoint."""
    config = experiment.resolve("ppo", game, {**OTHER, **settings})
    folder.mkdir()
    saved_config.write_trial(folder, config)
    policy = Policy(wiring.make_policy_spec(config, envs.spec(game, **config.env_args)), seed=seed)
    CheckpointStore(folder / "checkpoints", keep=2).save(1000, {"weights": policy.weights()})
    return policy


@pytest.fixture
def league(tmp_path: Path) -> LeagueRunConfig:
    return new_league(tmp_path / "league", GAME, main_exploiters=0, league_exploiters=0)


def folder_of(config: LeagueRunConfig) -> Path:
    assert config.folder is not None
    return config.folder


def players(config: LeagueRunConfig) -> dict[str, Player]:
    with open_league(folder_of(config)) as service:
        return {player.name: player for player in service.league.players}


def opened(config: LeagueRunConfig, name: str) -> Any:
    """As any process of the league opens it, by what is in its folder."""
    config = configs.load(folder_of(config))
    with contextlib.closing(open_pool(config, folder_of(config))) as pool:
        return make_seats(config, pool).open(players(config)[name])


def plays_as(policy: Any, other: Policy) -> bool:
    obs = np.random.default_rng(1).random((40, *other.spec.obs.shape)).astype(np.float32)
    first, mask = np.zeros(40, np.bool_), np.ones((40, other.spec.action.num_choices), np.bool_)
    chosen = [each.act(obs, None, first, np.random.default_rng(2), mask) for each in (policy, other)]
    return all(bool((one == two).all()) for one, two in zip(chosen[0][:2], chosen[1][:2], strict=True))


def test_a_trained_policy_with_another_network_is_a_player_that_plays_as_it_did(
    league: LeagueRunConfig, tmp_path: Path
) -> None:
    policy = trained(tmp_path / "monday")
    player = ludus.league.import_player("league", "rival", "monday", project=tmp_path)
    assert player == Player("rival", role="frozen", model="rival", version=0)
    assert players(league)["rival"] == player
    shutil.rmtree(tmp_path / "monday")
    assert plays_as(opened(league, "rival"), policy)
    assert not plays_as(opened(league, "main"), policy)


def test_it_is_met_in_matches_of_the_league_and_stays_when_the_league_goes_on(
    league: LeagueRunConfig, tmp_path: Path
) -> None:
    """A league that was killed is read from the same files."""
    trained(tmp_path / "monday")
    import_player("league", "rival", "monday", project=tmp_path)
    for _ in range(2):
        config = configs.load(folder_of(league))
        with (
            contextlib.closing(make_service(config, folder_of(league))) as service,
            contextlib.closing(open_pool(config, folder_of(league))) as pool,
            LeagueTraining(config, folder_of(league), service, pool) as training,
        ):
            before = service.league.payoff.record("main", "rival").games
            for _ in range(2):
                training.turn()
            assert service.league.payoff.record("main", "rival").games > before
            assert not training._warned


def test_a_version_of_a_trial_a_player_of_a_league_and_its_champion_can_be_imported(
    league: LeagueRunConfig, tmp_path: Path
) -> None:
    policy = trained(tmp_path / "monday")
    versions = {number: Policy(policy.spec, seed=number) for number in (3, 4)}
    store = VersionStore(tmp_path / "monday" / "models")
    for number, version in versions.items():
        store.publish("policy", version.weights(), number=number)
    store.tag("policy", "good", 4)
    other = new_league(tmp_path / "other", GAME, hidden=(20,))
    for name, seed in (("one", 1), ("two", 2)):
        add_frozen(other, name, policy_of(other, seed=seed))
    with open_league(tmp_path / "other") as service:
        service.promote("two")
    sources = {"monday@3": versions[3], "monday@good": versions[4]}
    sources |= {"other@one": policy_of(other, seed=1), "other": policy_of(other, seed=2)}
    for number, (source, expected) in enumerate(sources.items()):
        import_player("league", f"rival_{number}", source, project=tmp_path)
        assert plays_as(opened(league, f"rival_{number}"), expected), source
    again = new_league(tmp_path / "third", GAME)
    import_player("third", "rival", "league@rival_0", project=tmp_path)
    assert plays_as(opened(again, "rival"), versions[3])


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of trials that have nothing for a league of tic-tac-toe."""
    path = tmp_path_factory.mktemp("sources")
    trained(path / "rps", game="matrix:rps")
    trained(path / "monday")
    new_league(path / "other", GAME, bots=("random",))
    with open_league(path / "other") as service:
        service.add_player({"name": "alice", "role": "human"})
    new_league(path / "exact", "openspiel:kuhn_poker", rules="psro", oracle="exact")
    return path


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("rps", r"does not fit board:tic_tac_toe.*it sees float32\[2\], and a player of that game sees"),
        ("monday@9", "'policy' has no version"),
        ("tuesday", "no trial 'tuesday'"),
        ("other@nobody", "no player 'nobody'"),
        ("other@random", "it is a bot"),
        ("other@alice", "it is a person"),
        ("other@main", "has no version yet"),
        ("exact@main", "is a table"),
    ],
)
def test_what_does_not_fit_or_has_no_network_is_refused_and_nothing_is_added(
    league: LeagueRunConfig, sources: Path, source: str, problem: str
) -> None:
    with pytest.raises((ConfigError, DataError, ProgramError), match=problem):
        import_player(folder_of(league), "rival", source, project=sources)
    assert "rival" not in players(league)
    assert VersionStore(folder_of(league) / "models").latest("rival") is None


def test_what_does_something_else_than_the_game_asks_for_is_refused(tmp_path: Path) -> None:
    new_league(tmp_path / "league", "matrix:rps")
    trained(tmp_path / "coin", game="matrix:own", env_args='{"payoff": [[0, 1], [-1, 0]]}')
    with pytest.raises(ConfigError, match=r"it does Discrete\(num_choices=2\), and a player of that game does Discr"):
        import_player("league", "rival", "coin", project=tmp_path)


def test_names_that_are_taken_are_refused_and_what_was_imported_is_no_learners(
    league: LeagueRunConfig, tmp_path: Path
) -> None:
    trained(tmp_path / "monday")
    add_frozen(league, "old", policy_of(league))
    for name, model, problem in (
        ("old", None, "there is a player 'old'"),
        ("rival", "old", "is that of 'old'"),
        ("rival", "main", "is that of 'main'"),
    ):
        with pytest.raises(ConfigError, match=problem):
            import_player("league", name, "monday", project=tmp_path, model=model)
    import_player("league", "rival", "monday", project=tmp_path)
    with open_league(folder_of(league)) as service:
        service.remove_player("rival")
        with pytest.raises(ConfigError, match="was imported from another trial"):
            service.add_player({"name": "new", "role": "main", "model": "rival"})
        service.remove_player("old")
    with pytest.raises(ConfigError, match="versions of a player that was removed"):
        import_player("league", "another", "monday", project=tmp_path, model="old")


def test_an_import_that_was_broken_off_is_done_by_the_same_call(league: LeagueRunConfig, tmp_path: Path) -> None:
    """The weights are copied, then the league refuses a player of a side that is not there."""
    first = trained(tmp_path / "monday")
    with pytest.raises(ConfigError):
        import_player("league", "rival", "monday", project=tmp_path, sides=(5,))
    assert import_player("league", "rival", "monday", project=tmp_path).version == 0
    with pytest.raises(ConfigError):
        import_player("league", "late", "monday", project=tmp_path, sides=(5,))
    shutil.rmtree(tmp_path / "monday")
    second = trained(tmp_path / "monday", seed=8, hidden=(30,))  # it has another network by then
    assert import_player("league", "late", "monday", project=tmp_path).version == 1
    assert plays_as(opened(league, "rival"), first)
    assert plays_as(opened(league, "late"), second)


def test_no_code_of_another_trial_is_run_that_is_not_this_users(
    league: LeagueRunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its game nor its network, whether it is imported or in a league that was made elsewhere."""
    monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "theirs"))
    (tmp_path / "net.py").write_text(NETWORK)
    trained(tmp_path / "monday", model=f"{tmp_path / 'net.py'}:make")
    import_player("league", "rival", "monday", project=tmp_path)
    assert opened(league, "rival") is not None
    ran = tmp_path / "net.ran"
    ran.unlink()
    monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "mine"))
    with pytest.raises(ConfigError, match="nothing was run"):
        import_player("league", "another", "monday", project=tmp_path)
    with pytest.raises(ConfigError, match="nothing was run"):
        opened(league, "rival")
    assert not ran.exists()


NETWORK = """
import pathlib
import torch

class Net(torch.nn.Module):
    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.both = torch.nn.Linear(num_inputs, num_outputs + 1)

    def forward(self, obs):
        found = self.both(obs)
        return found[:, :-1], found[:, -1]

def make(obs, num_outputs):
    pathlib.Path(__file__).with_suffix(".ran").touch()
    return Net(obs.shape[0], num_outputs)
"""


def test_an_imported_champion_is_served_only_if_it_has_the_leagues_network(
    league: LeagueRunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "monday", hidden=(16,), activation="tanh")  # as many weights, and other answers
    own = trained(tmp_path / "tuesday", hidden=(16,))
    rival, like = (import_player("league", name, name, project=tmp_path) for name in ("monday", "tuesday"))
    folder = folder_of(league)
    assert why_not_served(folder, like) is None
    publish_champion(folder, like)
    assert VersionStore(folder / "models").get("policy")[1].keys() == own.weights().keys()
    with pytest.raises(ConfigError, match="with another network than the league's own"):
        publish_champion(folder, rival)
    settings = GateSettings(games=10, exploit_steps=0)
    with pytest.raises(ConfigError, match="with another network"):
        gate.judge(folder, "monday", settings=settings, promotes=True)
    assert gate.judge(folder, "monday", settings=settings).is_passed
    assert main(["league", "promote", "league", "monday", "--project", str(tmp_path)]) == 0
    assert "`ludus serve` does not play it" in capsys.readouterr().out
    with open_league(folder) as service:
        assert service.champion() == "monday"
    found = arena.play_arena(["monday", "tuesday", "random"], trial="league", project=tmp_path, num_games=4)
    assert found.records["monday", "tuesday"].games == 4


def test_a_league_of_tables_takes_no_networks(sources: Path) -> None:
    with pytest.raises(ConfigError, match="are tables"):
        import_player("exact", "rival", "monday", project=sources)
