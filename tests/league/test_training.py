"""The loop of a league: who is trained, what is published, and what becomes of players that change in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.errors import ConfigError, DataError
from ludus.league import config as configs
from ludus.league.pools import open_pool
from ludus.league.running import TrialLeague, make_service
from ludus.league.training import LeagueTraining

from .games import GAME, SMALL


@contextlib.contextmanager
def league_in(folder: Path, **settings: Any) -> Iterator[tuple[LeagueTraining, TrialLeague, Any]]:
    until, algorithm = settings.pop("until", None), settings.pop("algorithm", None)
    config = configs.resolve(GAME, {**SMALL, **settings}, algorithm=algorithm)
    with (
        contextlib.closing(make_service(config, folder)) as service,
        contextlib.closing(open_pool(config, folder)) as pool,
        LeagueTraining(config, folder, service, pool, until=until) as training,
    ):
        assert isinstance(service, TrialLeague)
        yield training, service, pool


def turns(training: LeagueTraining, num: int) -> None:
    for _ in range(num):
        assert training.turn()


def weights_of(folder: Path, *, seed: int, num_starts: int = 1) -> bytes:
    """Of all learners, after a few hundred steps of a league with exploiters that begin again and evaluations."""
    for _ in range(num_starts - 1):
        with league_in(folder, seed=seed):
            pass
    with league_in(folder, seed=seed, algorithm="ppo", snapshot_steps=60, evaluation_share=0.3) as found:
        training, service, pool = found
        turns(training, 6)
        assert any(player["num_resets"] for player in service.players())
        assert training.num_evaluated
        learners = [player["name"] for player in service.players() if player["role"] != "snapshot"]
        return b"".join(leaf.tobytes() for name in learners for leaf in pool.get(name)[1].values())


def test_the_same_seed_ends_with_the_same_weights_another_does_not_and_a_second_start_plays_other_games(
    tmp_path: Path,
) -> None:
    weights = weights_of(tmp_path / "one", seed=3)
    assert weights_of(tmp_path / "same", seed=3) == weights
    assert weights_of(tmp_path / "other", seed=4) != weights
    assert weights_of(tmp_path / "again", seed=3, num_starts=2) != weights


@pytest.mark.parametrize("change", ["freeze_player", "remove_player"])
def test_a_learner_that_is_frozen_or_removed_in_its_turn_learns_no_more_and_the_others_do(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with league_in(tmp_path) as (training, service, _):
        turns(training, 3)
        whose = service.next_learner()["name"]
        publish = training._publish
        monkeypatch.setattr(
            training, "_publish", lambda *args: (getattr(service, change)(whose), publish(*args), None)[-1]
        )
        turns(training, 1)
        monkeypatch.undo()
        before = {player["name"]: player["step"] for player in service.players()}
        turns(training, 4)
        after = {player["name"]: player["step"] for player in service.players()}
        assert whose not in training._learners
        assert before.get(whose) == after.get(whose)
        assert all(after[name] > before[name] for name in after if service.league.player(name).is_learning)
        assert service.league.owned("learner/0")


def test_a_learner_that_is_reset_begins_again_once_and_keeps_its_snapshot(tmp_path: Path) -> None:
    with league_in(tmp_path, main_exploiters=0, league_exploiters=0) as (training, service, pool):
        service.update_config({"roles": {"main": {"reset": 1, "snapshot": {"min_steps": 0, "timeout_steps": 1}}}})
        turns(training, 1)
        learner = training._learners["main"]
        assert learner.num_resets == 1
        [taken] = [player for player in service.players() if player["role"] == "snapshot"]
        snapshot = pool.get("main", taken["version"])[1]
        assert any((snapshot[name] != array).any() for name, array in learner.weights().items())


def test_a_learner_that_was_killed_before_it_could_begin_again_does_so_when_it_is_started(tmp_path: Path) -> None:
    with league_in(tmp_path, algorithm="ppo", main_exploiters=0, league_exploiters=0) as (training, service, _):
        turns(training, 1)
        training.checkpoint()
        service.update_config({"roles": {"main": {"reset": 1, "snapshot": {"min_steps": 0, "timeout_steps": 1}}}})
        learner = training._learners["main"]
        assert service.advance("main", learner.num_steps + 100, 1)["num_resets"] == 1  # killed before it hears of it
        trained = learner.weights()
    with league_in(tmp_path, algorithm="ppo", main_exploiters=0, league_exploiters=0) as (training, service, _):
        learner = training._learner(service.league.player("main"))
        assert learner.num_resets == 1
        assert any((trained[name] != array).any() for name, array in learner.weights().items())


def test_a_learner_that_begins_again_plays_matches_that_are_counted(tmp_path: Path) -> None:
    with league_in(tmp_path, algorithm="ppo", main_exploiters=0, league_exploiters=0, evaluation_share=0.0) as found:
        training, service, _ = found
        service.update_config({"roles": {"main": {"reset": 1, "snapshot": {"min_steps": 0, "timeout_steps": 1}}}})
        turns(training, 4)
        assert training._learners["main"].num_resets == 4
        assert service.statistics()["num_repeated"] == 0, "what the league has aborted is not played on"


def test_a_league_whose_learners_all_go_waits_for_one_and_trains_it(tmp_path: Path) -> None:
    with league_in(tmp_path, main_exploiters=0, league_exploiters=0) as (training, service, pool):
        turns(training, 1)
        version = service.freeze_player("main")["version"]
        assert version == pool.latest("main")
        assert not training.turn()
        service.add_player({"name": "second", "role": "league_exploiter"})
        turns(training, 2)
        assert service.league.player("second").step > 0
        assert pool.latest("second") == 2, "a learner's model has its name"


def test_one_player_alone_is_not_evaluated_and_is_as_soon_as_there_is_another(tmp_path: Path) -> None:
    with league_in(tmp_path, main_exploiters=0, league_exploiters=0, evaluation_share=0.5, snapshot_steps=10**6) as (
        training,
        service,
        _,
    ):
        turns(training, 3)
        assert training.num_evaluated == 0
        service.snapshot("main")
        turns(training, 3)
        assert training.num_evaluated > 0


def test_players_that_could_not_play_are_refused_before_they_end_a_match(tmp_path: Path) -> None:
    with league_in(tmp_path) as (training, service, _):
        turns(training, 1)
        before = service.players()
        wrong: list[dict[str, Any]] = [
            {"name": "a", "role": "bot", "model": "alphabta:2"},
            {"name": "b", "role": "frozen", "model": "main", "version": 77},
            {"name": "c", "role": "frozen", "model": "nobody"},
            {"name": "d", "role": "main", "model": "main"},
            {"name": "../d", "role": "main"},
        ]
        for player in wrong:
            with pytest.raises((ConfigError, DataError)):
                service.add_player(player)
        with pytest.raises(DataError):
            service.snapshot("main", 77)
        assert service.players() == before
        service.add_player({"name": "e", "role": "frozen", "model": "main", "version": 1})
        service.add_player({"name": "f", "role": "bot", "model": "alphabeta:1"})
        turns(training, 2)


def test_a_match_of_a_player_that_was_removed_with_its_weights_is_aborted_and_another_is_played(tmp_path: Path) -> None:
    with league_in(tmp_path, snapshot_steps=100) as (training, service, pool):
        turns(training, 12)
        snapshots = [player for player in service.players() if player["role"] == "snapshot"]
        assert len(snapshots) > 2
        for player in snapshots[:-1]:
            service.remove_player(player["name"])
            if player["version"] != pool.latest(player["model"]):
                pool.remove(player["model"], player["version"])
        training._oracle.seats._open.clear()
        turns(training, 8)
        assert not training._warned


def test_a_learner_without_a_checkpoint_goes_on_from_its_newest_version(tmp_path: Path) -> None:
    with league_in(tmp_path) as (training, _, pool):
        turns(training, 3)
        weights = pool.get("main")[1]
    with league_in(tmp_path) as (training, service, _):
        learner = training._learner(service.league.player("main"))
        assert all(np.array_equal(learner.weights()[name], weights[name]) for name in weights)
        assert learner.num_steps == service.league.player("main").step > 0
        assert training.total_steps == service.league.total_steps > 0


def test_it_ends_at_the_time_that_was_set_however_often_it_is_started(tmp_path: Path) -> None:
    with league_in(tmp_path, until=time.time() + 3600.0) as (training, _, _):
        assert not training.is_done
    with league_in(tmp_path, until=time.time() - 1.0) as (training, _, _):
        assert training.is_done


def test_what_an_earlier_run_did_not_have_joins_a_league_that_goes_on_unless_it_was_removed(tmp_path: Path) -> None:
    with league_in(tmp_path, bots=("random",)) as (_, service, _):
        service.remove_player("random")
    with league_in(tmp_path, bots=("random", "alphabeta:1"), main=2) as (_, service, _):
        names = {player["name"] for player in service.players()}
        assert names == {"main", "main_2", "exploiter", "league_exploiter", "alphabeta_1"}
