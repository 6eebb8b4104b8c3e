"""Matches in envs of other libraries: moves in turn or at once, two sides or more, teams, vectors as actions."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import envs
from ludus.league import config as configs
from ludus.league.evaluations import Evaluations
from ludus.league.league import LeagueSettings
from ludus.league.learning import LearningParts
from ludus.league.players import Player
from ludus.league.pools import open_pool
from ludus.league.running import make_service
from ludus.league.service import LeagueService
from ludus.league.training import LeagueTraining

from .games import SMALL

SHORT = json.dumps({"max_cycles": 4})
CONTINUOUS = json.dumps({"max_cycles": 4, "continuous_actions": True})


class Always:
    """Plays one action, or the lowest that is legal."""

    state_spec = None

    def __init__(self, action: int | None = None) -> None:
        self.action = action

    def act(self, obs: Any, state: Any, first: Any, rng: Any, mask: Any = None, *, greedy: bool = False) -> Any:
        chosen = mask.argmax(1) if self.action is None else np.full(len(first), self.action)
        return chosen, np.zeros(len(first), np.float32), None


class Table:
    def __init__(self, game: str, **players: Any) -> None:
        self.players = players
        self.action = envs.spec(game).action

    def open(self, player: Player) -> Any:
        return self.players[player.name]


def play(game: str, folder: Path, table: Table, num_games: int, **settings: Any) -> LeagueService:
    players = [Player(name, role="bot") for name in table.players]
    config = configs.resolve(game, {**SMALL, "num_steps": 8, **settings}, algorithm="ppo").training
    with contextlib.closing(LeagueService(folder / "league", LeagueSettings(), players)) as service:
        parts = LearningParts(config=config, env=envs.spec(game), league=service, seats=table, folder=folder)
        with contextlib.closing(Evaluations(parts, seed=1)) as evaluations:
            evaluations.play_games(num_games)
    return service


def test_in_games_in_turns_of_pettingzoo_a_result_is_of_the_side_that_had_it(tmp_path: Path) -> None:
    game = "pettingzoo:tictactoe_v3"
    payoff = play(game, tmp_path, Table(game, a=Always(), b=Always()), 60).league.payoff
    for one, two in (("a", "b"), ("b", "a")):
        record = payoff.record(one, two, side=0)
        assert record.wins == record.games > 0, "of two that play the lowest square, the first wins"


def test_in_games_of_moves_at_once_a_result_is_of_the_player_that_had_it(tmp_path: Path) -> None:
    game = "pettingzoo:rps_v2"
    table = Table(game, rock=Always(0), paper=Always(1), scissors=Always(2))
    payoff = play(game, tmp_path, table, 40, env_args=SHORT).league.payoff
    for winner, loser in (("paper", "rock"), ("scissors", "paper"), ("rock", "scissors")):
        for side in range(2):
            record = payoff.record(winner, loser, side=side)
            assert record.wins == record.games > 0


@pytest.mark.parametrize(
    ("game", "settings", "num_teams"),
    [
        ("board:tic_tac_toe", {"recurrent": "lstm", "recurrent_size": 8}, 2),
        ("mpe2:simple_adversary_v3", {"env_args": SHORT}, 3),
        ("mpe2:simple_tag_v3", {"env_args": CONTINUOUS, "teams": "0+1+2,3"}, 2),
    ],
)
def test_leagues_of_other_games_train_evaluate_and_count(
    tmp_path: Path, game: str, settings: dict[str, Any], num_teams: int
) -> None:
    given = {**SMALL, "bots": ("random",), "evaluation_share": 0.5, "decay": 1.0, **settings}
    config = configs.resolve(game, given, algorithm="ppo")
    with (
        contextlib.closing(make_service(config, tmp_path)) as service,
        contextlib.closing(open_pool(config, tmp_path)) as pool,
        LeagueTraining(config, tmp_path, service, pool) as training,
    ):
        for _ in range(8):
            training.turn()
        assert not training._warned
        assert training.num_evaluated > 0
        league = service.league
        assert league.num_games > 20
        assert all(player.step > 0 for player in league.learners)
        pairs = list(itertools.permutations([player.name for player in league.players], 2))
        for one, two in pairs:
            record, other = league.payoff.record(one, two), league.payoff.record(two, one)
            assert (record.wins, record.draws, record.losses) == (other.losses, other.draws, other.wins)
        by_side = [sum(league.payoff.record(*pair, side=side).games for pair in pairs) for side in range(num_teams)]
        assert min(by_side) > 0
        assert sum(by_side) == sum(league.payoff.record(*pair).games for pair in pairs)
