"""Ludus: games of Connect Four by the path that a league's matches take, and the same without its books.

    games = LeagueGames(folder, num_envs=256, num_snapshots=50)
    games.play()                                       # a segment; how many games ended in it

`LeagueService` keeps its log and its view on disk, chooses opponents by the rules of a main agent among all snapshots,
counts results and follows ratings. `without_books=True` plays the same share of opponents and only forgets the results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ludus import envs
from ludus.data.nest import Nest
from ludus.experiment import wiring
from ludus.league import config as configs
from ludus.league.match_book import MatchBook
from ludus.league.match_chooser import MatchChooser
from ludus.league.players import Player, player_to_nest
from ludus.league.running import make_service
from ludus.league.seats import Seats
from ludus.learn.policies.policy import Policy
from ludus.services.simulator.simulator import Simulator

__all__ = ["GAME", "LeagueGames", "PlainGames"]

GAME = "board:connect_four"


class _Pool:
    """Versions in memory: reading them from a disk happens once and is not what is compared."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self._weights = weights

    def get(self, model: str, version: int = -1) -> tuple[Any, dict[str, Any]]:
        return version, self._weights

    def latest(self, model: str) -> int | None:
        return 1


class _NoBooks:
    """As a league's service to those who play: its matches are drawn in advance, and nothing is kept."""

    def __init__(self, names: list[str], players: dict[str, Nest], learner: str, shares: np.ndarray) -> None:
        self._rng = np.random.default_rng(0)
        self._names, self._players, self._learner, self._shares = names, players, learner, shares

    def request_matches(self, learner: str, num: int, owner: str = "") -> list[Nest]:
        others = self._rng.choice(len(self._names), size=num, p=self._shares)
        sides = self._rng.integers(2, size=num)
        own = self._players[self._learner]
        found = []
        for other, side in zip(others, sides, strict=True):
            pair = [own, self._players[self._names[other]]]
            found.append({"id": "0", "players": pair if side == 0 else pair[::-1], "learner": learner})
        return found

    def request_evaluations(self, num: int, names: list[str] | None = None, owner: str = "") -> list[Nest]:
        raise AssertionError("nobody asks for them here")

    def report_series(self, results: list[Nest]) -> list[bool]:
        return [True] * len(results)

    def abort_match(self, match: str) -> bool:
        return True


class LeagueGames:
    """A main agent against `num_snapshots` of its own, all of one network."""

    def __init__(
        self,
        folder: Path,
        *,
        num_envs: int,
        num_snapshots: int,
        games_per_match: int,
        without_books: bool = False,
        self_play: bool = False,
    ) -> None:
        settings = {"num_envs": num_envs, "main_exploiters": 0, "league_exploiters": 0, "bots": ()}
        config = configs.resolve(GAME, settings, algorithm="ppo")
        training = config.training
        env = envs.spec(GAME)
        spec = wiring.make_policy_spec(training, env)
        policy = Policy(spec, seed=1)
        names = [f"main-{number + 1}" for number in range(num_snapshots)]
        players = {
            name: Player(name, role="snapshot", model="main", version=number + 1, parent="main", step=number)
            for number, name in enumerate(names)
        }
        self.service: Any = None
        if without_books:
            nests = {name: player_to_nest(player) for name, player in players.items()}
            nests["main"] = player_to_nest(Player("main", model="main"))
            shares = np.array([*np.full(num_snapshots, 0.65 / max(1, num_snapshots)), 0.35])
            league: Any = _NoBooks([*names, "main"], nests, "main", shares / shares.sum())
        else:
            (folder / "models").mkdir(parents=True, exist_ok=True)
            league = self.service = make_service(config, folder)
            league._expect_playable = lambda player: None  # the versions are in memory
            for player in players.values():
                league.add_player(player_to_nest(player))
            if self_play:
                league.update_config({"roles": {"main": {"matchmaking": "self_play"}}})
        self._book = MatchBook(
            league, num_envs=num_envs, learner="main", owner="learner/0", games_per_match=games_per_match
        )
        [group] = wiring.make_groups(training)
        self._chooser = MatchChooser(
            Seats(_Pool(policy.weights()), spec, GAME),
            self._book,
            wiring.make_chooser(training, policy, env),
            num_envs=num_envs,
            num_agents=2,
        )
        self._simulator = Simulator([group], self._chooser, num_steps=32, seed=1, state_spec=policy.state_spec)

    def play(self) -> int:
        before = self._book.num_games
        self._chooser.settle(self._simulator.collect(1).segment)
        return self._book.num_games - before

    def close(self) -> None:
        self._simulator.close()
        if self.service is not None:
            self.service.close()


class PlainGames:
    """The same simulator without players: the policy moves for both sides."""

    def __init__(self, *, num_envs: int) -> None:
        training = configs.resolve(GAME, {"num_envs": num_envs}, algorithm="ppo").training
        env = envs.spec(GAME)
        policy = Policy(wiring.make_policy_spec(training, env), seed=1)
        [group] = wiring.make_groups(training)
        self._group = group
        self._simulator = Simulator(
            [group], wiring.make_chooser(training, policy, env), num_steps=32, seed=1, state_spec=policy.state_spec
        )

    def play(self) -> int:
        before = self._group.statistics().num_episodes
        self._simulator.collect(1)
        return self._group.statistics().num_episodes - before

    def close(self) -> None:
        self._simulator.close()
