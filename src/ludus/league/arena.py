"""A round-robin: everybody against everybody, on both sides, as often as the others.

    found = play_arena(["monday", "league-board-connect_four@main-3", "alphabeta:4"], num_games=200)
    found.ratings["monday"].interval()

A contestant is a bot; a trial, whose policy or champion plays; or TRIAL@PLAYER, any player of a league. With
`+search:64` behind it, it looks 64 simulations ahead before each of its moves, and with `+gumbel:64` by a Gumbel root.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ludus import envs
from ludus.data.actions import ActionSpec
from ludus.errors import ConfigError
from ludus.experiment import config as configs
from ludus.experiment.config import Config
from ludus.league.bots import is_bot, make_bot
from ludus.league.config import LeagueRunConfig
from ludus.league.evaluations import Evaluations
from ludus.league.folder import FOLDER
from ludus.league.league import League, LeagueSettings
from ludus.league.learning_parts import LearningParts
from ludus.league.live import champion_of, find_league
from ludus.league.memory_league import MemoryLeague
from ludus.league.oracle import make_seats
from ludus.league.payoff import Record
from ludus.league.players import Player, PlayerPolicy, player_of
from ludus.league.pools import open_pool
from ludus.league.rating import Rating, elo
from ludus.league.seats import search_with
from ludus.league.view import VIEW_FILE, expect_view
from ludus.learn.search.settings import SearchSettings
from ludus.spelling import nearest, suggest
from ludus.trial.find import find

__all__ = ["Arena", "Contestant", "contestant_of", "describe", "open_contestants", "play", "play_arena"]

_MOST_ENVS = 128
_SEARCHES = ("search", "gumbel")
_SEARCH = re.compile(r"\+([A-Za-z_]+):([^:@/]*)")  # at the end of a name; a path may have a + before that


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Who plays, and which game; a bot plays any."""

    name: str
    game: Config | None
    open: Callable[[Config], PlayerPolicy]


@dataclass(frozen=True, kw_only=True)
class Arena:
    """What a round-robin has shown. `records` and `sides` are `[player, opponent]`."""

    game: str
    names: tuple[str, ...]
    records: dict[tuple[str, str], Record]
    first_side: dict[tuple[str, str], Record]  # of the games in which the player had side 0
    ratings: dict[str, Rating]  # Elo's, mean 0

    @property
    def win_rates(self) -> NDArray[np.float64]:
        return np.array([[0.5 if a == b else self.records[a, b].win_rate for b in self.names] for a in self.names])


@dataclass
class _Table:
    """Opens contestants by the names of players."""

    contestants: dict[str, Contestant]
    config: Config
    action: ActionSpec
    _open: dict[str, PlayerPolicy]

    def open(self, player: Player) -> PlayerPolicy:
        if player.name not in self._open:
            self._open[player.name] = self.contestants[player.name].open(self.config)
        return self._open[player.name]


def play_arena(
    names: Sequence[str | Path],
    *,
    num_games: int = 200,
    project: str | Path = "trials",
    trial: str | None = None,
    game: str | None = None,
    greedy: bool = False,
    env_args: str = "{}",
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Arena:
    """So many games for each pair. `trial`: a league whose players are meant by their names. `game`: for bots alone."""
    contestants = open_contestants(names, project=project, trial=trial)
    if trial is not None and game is None and all(each.game is None for each in contestants):
        game = find_league(trial, project=project)[1].game
    config = _game_of(contestants, game, env_args)
    return play(contestants, config, num_games=num_games, greedy=greedy, seed=seed, on_progress=on_progress)


def play(
    contestants: Sequence[Contestant],
    config: Config,
    *,
    num_games: int,
    greedy: bool = False,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Arena:
    """`play_arena` of contestants that are open, in the game of `config`."""
    if len(contestants) < 2:
        raise ConfigError("an arena needs two players or more")
    env = envs.spec(config.train.env, **config.eval_env_args)
    if len(env.agents) != 2:
        raise ConfigError(f"{config.train.env} has {len(env.agents)} agents; an arena is for games of two")
    by_name = {each.name: each for each in contestants}
    if len(by_name) < len(contestants):
        raise ConfigError(f"a player is named twice: {', '.join(each.name for each in contestants)}")
    total = num_games * len(contestants) * (len(contestants) - 1) // 2
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ludus-arena-")))
        players = [Player(name, role="bot", model=name) for name in by_name]
        league = MemoryLeague(League(LeagueSettings(num_sides=2), seed=seed), players)
        parts = LearningParts(
            config=config,
            env=env,
            league=league,
            seats=_Table(by_name, config, env.action, {}),
            folder=folder,
            games_per_match=1,
        )
        evaluations = Evaluations(parts, seed=seed, num_envs=min(_MOST_ENVS, max(2, total // 4)), greedy=greedy)
        stack.enter_context(contextlib.closing(evaluations))
        payoff = league.league.payoff
        pairs = [(one, two) for one in by_name for two in by_name if one != two]
        while min(payoff.record(*pair).games for pair in pairs) < num_games:
            evaluations.play()
            if on_progress is not None:
                on_progress(min(total, evaluations.num_games), total)
        return Arena(
            game=config.train.env,
            names=tuple(by_name),
            records={pair: payoff.record(*pair) for pair in pairs},
            first_side={pair: payoff.record(*pair, side=0) for pair in pairs},
            ratings=elo(payoff, list(by_name)),
        )


# --- who plays


def open_contestants(
    names: Sequence[str | Path], *, project: str | Path = "trials", trial: str | None = None
) -> list[Contestant]:
    """Raises `ConfigError` or `ProgramError` for a name that is nobody's."""
    return [_contestant(str(name), project, trial) for name in names]


def _contestant(name: str, project: str | Path, trial: str | None) -> Contestant:
    wanted, search = _search_of(name)
    if search and is_bot(wanted):
        raise ConfigError(f"{name!r}: {wanted} is a program, and has no network to search with")
    if not search and is_bot(name):
        return Contestant(name=name, game=None, open=lambda config: make_bot(name, config.train.env, config.env_args))
    if trial is not None and "@" not in wanted:
        return _of_league(name, trial, wanted, project, search)
    of_trial, _, player = wanted.partition("@")
    folder = find(of_trial, project=project).path
    if player or (folder / FOLDER).is_dir():
        return _of_league(name, str(folder), player or None, project, search)
    return _of_training(name, folder, search)


def _search_of(name: str) -> tuple[str, SearchSettings | None]:
    """`main@league+search:64` → `main@league`, and how it searches; `+gumbel:64` likewise."""
    before, plus, _ = name.rpartition("+")
    written = _SEARCH.fullmatch(name, len(before))
    if not plus or written is None:
        return name, None
    kind, number = written.groups()
    if kind not in _SEARCHES:
        if not suggest(kind, _SEARCHES):
            return name, None
        raise ConfigError(f"{name!r}: there is no search '+{kind}:'. {nearest(kind, _SEARCHES)}")
    if not before or not number.isdecimal() or int(number) < 1:
        raise ConfigError(f"{name!r}: after +{kind}: comes how many simulations it looks ahead, as in +{kind}:64")
    return before, SearchSettings.at_play(int(number), gumbel=kind == "gumbel")


def _of_league(
    name: str, trial: str, wanted: str | None, project: str | Path, search: SearchSettings | None
) -> Contestant:
    folder, config = find_league(trial, project=project)
    view = expect_view(folder / FOLDER / VIEW_FILE)
    fields = ("name", "role", "model", "version", "parent", "step", "sides", "search", "gumbel")
    standings = [{"player": {field: each[field] for field in fields if field in each}} for each in view["players"]]
    if wanted is None:
        found = champion_of(standings, view.get("champion"))
    else:
        found = next((each["player"] for each in standings if each["player"]["name"] == wanted), None)
    if found is None:
        there = ", ".join(each["player"]["name"] for each in standings)
        raise ConfigError(f"the league {folder.name!r} has no player {wanted!r}; there are: {there}")
    player = player_of(found)
    if search:
        player = dataclasses.replace(player, search=search.simulations, gumbel=search.gumbel)
    return contestant_of(player, config, folder, name=name)


def contestant_of(player: Player, config: LeagueRunConfig, folder: Path, *, name: str | None = None) -> Contestant:
    """A player of the league in this folder."""

    def open_player(_config: Config) -> PlayerPolicy:
        with contextlib.closing(open_pool(config, folder)) as pool:
            return make_seats(config, pool).open(player)

    return Contestant(name=name or player.name, game=config.training, open=open_player)


def _of_training(name: str, folder: Path, search: SearchSettings | None) -> Contestant:
    from ludus.experiment.player import load_player
    from ludus.experiment.saved_config import load_config

    def open_player(config: Config) -> PlayerPolicy:
        policy = load_player(folder).policy
        if search:
            return search_with(config.train.env, config.env_args)(policy, search)
        return cast("PlayerPolicy", policy)

    return Contestant(name=name, game=load_config(folder), open=open_player)


def _game_of(contestants: Sequence[Contestant], game: str | None, env_args: str) -> Config:
    """What they play: all of them must play the same."""
    known = {each.game.train.env: each.game for each in contestants if each.game is not None}
    if game is not None:
        known.setdefault(game, configs.resolve("ppo", game, {}))
    if not known:
        raise ConfigError("bots play any game: say which, with --game, for example --game board:connect_four")
    if len(known) > 1:
        raise ConfigError(f"these players play different games: {', '.join(sorted(known))}")
    config = next(iter(known.values()))
    given = configs.parse_env_args(env_args, setting="env_args")
    own = configs.parse_env_args(config.train.eval_env_args, setting="eval_env_args")
    joined = json.dumps({**own, **given})
    return dataclasses.replace(config, train=dataclasses.replace(config.train, eval_env_args=joined))


def describe(record: Record) -> dict[str, Any]:
    """For JSON."""
    low, high = record.interval()
    return {
        "win_rate": record.win_rate,
        "low": low,
        "high": high,
        "wins": record.wins,
        "draws": record.draws,
        "losses": record.losses,
    }
