"""Whom a person can play against: the players of a league, or the policy of a trial that was trained on a board game.

opponents = opponents_of(folder)
opponents.listed()                                 # the one to beat first
opponents.open("main-3", search=0)                 # (player, what chooses its moves); brings torch
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from ludus import envs, files
from ludus.core import Rules
from ludus.errors import ConfigError
from ludus.experiment.results import CONFIG_FILE
from ludus.league.folder import FOLDER
from ludus.league.live import champion_of
from ludus.league.players import Player, PlayerPolicy
from ludus.league.view import VIEW_FILE, read_view
from ludus.spelling import nearest

if TYPE_CHECKING:
    from ludus.league.seats import GameSeats

__all__ = ["Opponents", "board_game_of", "made_at", "opponents_of"]

_BOTS = ("alphabeta:4", "alphabeta:2", "random")


class Opponents(Protocol):
    """Of one trial. Safe from any thread."""

    def listed(self) -> list[tuple[Player, str]]:
        """Players that can be met, each with a word on it; the one to beat first."""
        ...

    def open(self, name: str, *, search: int = 0) -> tuple[Player, PlayerPolicy]:
        """Raises `LudusError` if it is not there or cannot play."""
        ...

    def rules(self) -> Rules: ...


def made_at(folder: Path) -> int:
    """Tells a trial from a later one in the same folder; 0 if it has no configuration."""
    try:
        return (folder / CONFIG_FILE).stat().st_mtime_ns
    except OSError:
        return 0


def board_game_of(folder: Path) -> str | None:
    """The game of a trial, if it may be one that is played on a board. Runs nothing."""
    env = _env_of(folder / CONFIG_FILE, made_at(folder))
    return env if env.startswith("board:") or ".py:" in env else None


def opponents_of(folder: Path) -> Opponents:
    return _LeagueOpponents(folder) if (folder / FOLDER).is_dir() else _TrainedOpponents(folder)


@functools.lru_cache(maxsize=1024)
def _env_of(path: Path, made_at: int) -> str:
    del made_at  # tells one content of the file from another
    try:
        return str(files.read_json(path)["train"]["env"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class _Opponents:
    """What both have: seats that are made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._seats: GameSeats | None = None

    def open(self, name: str, *, search: int = 0) -> tuple[Player, PlayerPolicy]:
        with self._lock:
            players = {player.name: player for player, _ in self.listed()}
            if name not in players:
                raise ConfigError(f"There is no player {name!r} here. {nearest(name, players)}")
            player = players[name]
            if search and player.role != "bot":
                player = dataclasses.replace(player, search=search)
            if self._seats is None:
                self._seats = self._make_seats()
            return player, self._seats.open(player)

    def rules(self) -> Rules:
        from ludus.experiment.saved_config import load_config

        config = load_config(self._folder)
        rules = envs.rules(config.train.env, **config.env_args)
        if rules is None:
            raise ConfigError(f"{config.train.env} has no rules of a board game: it cannot be drawn and played here.")
        return rules

    def listed(self) -> list[tuple[Player, str]]:
        raise NotImplementedError

    def _make_seats(self) -> GameSeats:
        raise NotImplementedError


class _LeagueOpponents(_Opponents):
    def listed(self) -> list[tuple[Player, str]]:
        view = read_view(self._folder / FOLDER / VIEW_FILE)
        if view is None:
            return []
        standings = [{"player": each} for each in view["players"]]
        champion = champion_of(standings, view.get("champion"))
        first = None if champion is None else champion["name"]
        found = []
        for each in view["players"]:
            if each["role"] == "human":
                continue
            names = (field.name for field in dataclasses.fields(Player))
            player = Player(**{**{name: each[name] for name in names if name in each}, "sides": tuple(each["sides"])})
            rank = "champion, " if each["name"] == first else ""
            found.append((player, f"{rank}{each['role'].replace('_', ' ')}, rating {each['mean']:.1f}"))
        return sorted(found, key=lambda pair: pair[0].name != first)

    def _make_seats(self) -> GameSeats:
        from ludus.league.config import load
        from ludus.league.oracle import make_seats
        from ludus.league.pools import open_pool

        config = load(self._folder)
        return make_seats(config, open_pool(config, self._folder))


class _TrainedOpponents(_Opponents):
    def listed(self) -> list[tuple[Player, str]]:
        bots = [(Player(bot, role="bot", model=bot), "bot") for bot in _BOTS]
        return [(Player("policy", role="frozen", model="policy"), "as it is trained now"), *bots]

    def _make_seats(self) -> GameSeats:
        from ludus.experiment.saved_config import load_config
        from ludus.experiment.wiring import make_policy_spec
        from ludus.league.seats import Seats, search_with

        config = load_config(self._folder)
        spec = make_policy_spec(config, envs.spec(config.train.env, **config.env_args))
        game, args = config.train.env, config.env_args
        return Seats(_Checkpoints(self._folder), spec, game, args, search=search_with(game, args))


class _Checkpoints:
    """The checkpoints of a trial, as a pool of one model: a version is a step."""

    def __init__(self, folder: Path) -> None:
        from ludus.experiment.checkpoints import CheckpointStore

        self._store = CheckpointStore(folder / "checkpoints")

    def get(self, model: str, version: int = -1) -> tuple[Any, Mapping[str, NDArray[Any]]]:
        del model, version  # the newest that is intact
        step, content = self._store.load()
        return step, content["weights"]

    def latest(self, model: str) -> int:
        del model
        return int(self._store.load()[0])
