"""Simulators play matches: who moves where, what is learnt from, what is reported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import envs
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError
from ludus.experiment import wiring
from ludus.league import config as configs
from ludus.league.evaluations import Evaluations
from ludus.league.league import LeagueSettings
from ludus.league.learning import LearningPlayer
from ludus.league.learning_parts import LearningParts
from ludus.league.match_book import MatchBook
from ludus.league.match_chooser import MatchChooser
from ludus.league.players import Player
from ludus.league.service import LeagueService
from ludus.learn.policies.policy import Policy
from ludus.services.simulator.chooser import InlineChooser
from ludus.services.simulator.simulator import Simulator

from .games import GAME, SMALL


class Lowest:
    """Plays the lowest square that is free, and counts how often it was asked."""

    state_spec = None

    def __init__(self) -> None:
        self.num_asked = 0

    def act(self, obs: Any, state: Any, first: Any, rng: Any, mask: Any = None, *, greedy: bool = False) -> Any:
        self.num_asked += len(mask)
        return mask.argmax(1), np.zeros(len(mask), np.float32), None


class Table:
    """Opens players by name."""

    def __init__(self, **players: Any) -> None:
        self.players = players
        self.action = envs.spec(GAME).action

    def open(self, player: Player) -> Any:
        return self.players[player.name]


@contextlib.contextmanager
def league_of(folder: Path, *players: Player) -> Iterator[LeagueService]:
    with contextlib.closing(LeagueService(folder / "league", LeagueSettings(), players, seed=1)) as service:
        yield service


def collect(folder: Path, service: LeagueService, table: Table, num: int) -> tuple[list[Segment], MatchChooser]:
    """Segments of `main`'s matches, each settled."""
    config = configs.resolve(GAME, SMALL, algorithm="ppo").training
    env = envs.make(GAME, 8)
    policy = Policy(wiring.make_policy_spec(config, env.spec), seed=1)
    book = MatchBook(service, num_envs=8, learner="main", owner="sim", games_per_match=2)
    chooser = MatchChooser(table, book, InlineChooser(policy), num_envs=8, num_agents=2)
    simulator = Simulator([env], chooser, num_steps=16, seed=1, num_slots=num)
    segments = []
    for _ in range(num):
        segments.append(simulator.collect(0).segment)
        chooser.settle(segments[-1])
    simulator.close()
    return segments, chooser


def test_only_the_learners_own_moves_are_learnt_from_and_every_game_is_reported_once(tmp_path: Path) -> None:
    with league_of(tmp_path, Player("main", model="main"), Player("low", role="frozen", model="low")) as service:
        low = Lowest()
        segments, chooser = collect(tmp_path, service, Table(low=low), 12)
        payoff = service.league.payoff
        record = payoff.record("main", "low")
        assert record.games > 20, "frozen players are met"
        assert low.num_asked > 0
        for segment in segments:
            active, is_free = segment.active[:-1], segment.mask[:-1].sum(-1) > 1
            assert segment.num_active == active.sum() > 0
            assert (segment.logp[active & is_free] < 0).all(), "drawn by the learner"
            assert (active.reshape(16, 8, 2).sum(-1) <= 1).all(), "one of the two moves"
        assert chooser.book.num_games >= service.league.num_games
        scores = {score for played in service.league.recent for game in played.games for score in game}
        assert scores <= {-1.0, 0.0, 1.0}, "each game begins at 0"
        assert sum(_expect_own_ends(segment) for segment in segments) > 0
        for segment in segments:
            mask, action = segment.mask[:-1], segment.action
            legal = np.take_along_axis(mask, action[..., None], -1)[..., 0]
            assert legal[segment.active[:-1]].all()


def _expect_own_ends(segment: Segment) -> int:
    """Where another is to move at the end, the learner's last own observation of that game; how often that is so."""
    found = 0
    for row in np.flatnonzero(~segment.active[-1]):
        acts = np.flatnonzero(segment.active[:-1, row])
        ends = np.flatnonzero((segment.terminated | segment.truncated)[:, row])
        if len(acts) and (not len(ends) or acts[-1] > ends[-1]):
            assert (segment.obs[-1, row] == segment.obs[acts[-1], row]).all()
            found += 1
    return found


def test_the_opponents_moves_are_its_own(tmp_path: Path) -> None:
    """A side without an active row in a game has all its moves from `Lowest`."""
    with league_of(tmp_path, Player("main", model="main"), Player("low", role="frozen", model="low")) as service:
        segments, _ = collect(tmp_path, service, Table(low=Lowest()), 1)
        segment = segments[0]
        # In the first game of each env: a side whose first rows are not the learner's.
        for env in range(8):
            rows = [2 * env, 2 * env + 1]
            until = int(np.argmax(segment.first[1:, rows[0]])) + 1
            is_own = [bool(segment.active[:until, row].any()) for row in rows]
            for row, own in zip(rows, is_own, strict=True):
                if own or not any(is_own):
                    continue
                other = rows[1 - rows.index(row)]
                played = [
                    step
                    for step in range(until - 1)
                    if not segment.active[step, row] and not segment.active[step, other]
                ]
                for step in played[:-1]:
                    free = segment.mask[step, row]
                    assert segment.action[step, row] == int(free.argmax()) or not free.all()


class Counting:
    """Remembers how often it has looked at each game."""

    state_spec = ArraySpec((), np.int64)

    def __init__(self) -> None:
        self.num_wrong = self.num_right = 0

    def act(self, obs: Any, state: Any, first: Any, rng: Any, mask: Any = None, *, greedy: bool = False) -> Any:
        seen = np.where(first, 0, state)
        is_over = mask.sum(1) == 0
        num_discs = obs.reshape(len(obs), -1).sum(1)
        self.num_wrong += int((seen != num_discs)[~is_over].sum())
        self.num_right += int((seen == num_discs)[~is_over].sum())
        return mask.argmax(1), np.zeros(len(mask), np.float32), seen + 1


def test_one_that_remembers_sees_all_of_each_game_from_its_beginning_whichever_side_moves(tmp_path: Path) -> None:
    counting = Counting()
    with league_of(tmp_path, *(Player(name, role="frozen", model=name) for name in "ab")) as service:
        parts = LearningParts(
            config=configs.resolve(GAME, SMALL, algorithm="ppo").training,
            env=envs.spec(GAME),
            league=service,
            seats=Table(a=counting, b=Lowest()),
            folder=tmp_path,
            games_per_match=1,
        )
        with contextlib.closing(Evaluations(parts, seed=1, num_envs=2)) as evaluations:
            evaluations.play_games(20)
    assert counting.num_right > 50
    assert counting.num_wrong == 0


def test_in_self_play_both_sides_are_learnt_from(tmp_path: Path) -> None:
    with league_of(tmp_path, Player("main", model="main")) as service:
        segments, _ = collect(tmp_path, service, Table(), 2)
        sides = np.concatenate([segment.active[:-1].reshape(-1, 8, 2).any((0, 1)) for segment in segments])
        assert sides.all()
        assert service.league.payoff.record("main", "main").games == 0, "against itself says nothing"


def test_evaluations_meet_all_pairs_alike(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    with league_of(tmp_path, *(Player(name, role="frozen", model=name) for name in names)) as service:
        config = configs.resolve(GAME, SMALL, algorithm="ppo").training
        table = Table(a=Lowest(), b=Lowest(), c=Lowest())
        parts = LearningParts(
            config=config,
            env=envs.spec(GAME),
            league=service,
            seats=table,
            folder=tmp_path,
            games_per_match=1,
        )
        with contextlib.closing(Evaluations(parts, seed=1)) as evaluations:
            evaluations.play_games(90)
            chooser = evaluations._chooser
            matches = [chooser.book.match_of(env) for env in range(len(chooser._who) // 2)]
            sides = [player.name for match in matches for player in match.players]
            assert [chooser._players[number] for number in chooser._who] == [table.players[name] for name in sides]
        games = [service.league.payoff.record(one, two).games for one, two in (("a", "b"), ("a", "c"), ("b", "c"))]
        assert min(games) > 0.7 * max(games) > 0
        record = service.league.payoff.record("a", "b", side=0)
        assert record.wins == record.games, "of two that play the lowest square, the first wins"


def test_a_player_that_learns_gets_better_goes_on_from_its_checkpoint_and_begins_again(tmp_path: Path) -> None:
    settings = {**SMALL, "num_envs": 32, "num_epochs": 4, "learning_rate": 3e-3, "hidden": (64,)}
    with league_of(tmp_path, Player("main", model="main"), Player("low", role="frozen", model="low")) as service:
        service.update_config({"roles": {"main": {"matchmaking": "uniform"}}})
        parts = LearningParts(
            config=configs.resolve(GAME, settings, algorithm="ppo").training,
            env=envs.spec(GAME),
            league=service,
            seats=Table(low=Lowest()),
            folder=tmp_path,
        )
        player = LearningPlayer("main", parts)
        for _ in range(60):
            player.update()
        assert player.mean_return is not None
        assert player.mean_return > 0.6, "an opponent that always does the same is soon beaten"
        player.checkpoint()
        weights = player.weights()
        player.close()
        again = LearningPlayer("main", parts)
        assert any(not np.array_equal(again.weights()[name], weights[name]) for name in weights)
        assert again.restore()
        assert again.num_steps == player.num_steps
        assert all(np.array_equal(again.weights()[name], weights[name]) for name in weights)
        fresh = LearningPlayer("main", parts).weights()
        again.begin_again(1)
        assert any(not np.array_equal(again.weights()[name], weights[name]) for name in weights)
        assert any(not np.array_equal(again.weights()[name], fresh[name]) for name in fresh), "another beginning"
        again.update()
        again.close()


def test_settings_that_cannot_be_are_refused() -> None:
    for settings, said in (
        ({"mains": 2}, "main"),
        ({"flow": "async"}, "no setting 'flow'"),
        ({"main": 0, "main_exploiters": 0, "league_exploiters": 0}, "nobody"),
        ({"rules": "alphastr"}, "alphastar"),
    ):
        with pytest.raises(ConfigError, match=said):
            configs.resolve(GAME, settings)
    with pytest.raises(ConfigError, match="replay"):
        configs.resolve(GAME, {}, algorithm="dqn")


def test_a_segment_ends_with_what_the_learner_saw_when_it_acted_last(tmp_path: Path) -> None:
    with league_of(tmp_path, Player("main", model="main")) as service:
        segments, _ = collect(tmp_path, service, Table(), 4)
        num_waiting = 0
        for segment in segments:
            last = len(segment.reward)
            for row in range(segment.num_rows):
                acts = np.flatnonzero(segment.active[:-1, row])
                ends = np.flatnonzero(segment.terminated[:, row])
                if not segment.active[last, row] and len(acts) and (not len(ends) or acts[-1] > ends[-1]):
                    assert np.array_equal(segment.obs[last, row], segment.obs[acts[-1], row])
                    num_waiting += 1
        assert num_waiting > 0
