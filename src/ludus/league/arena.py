"""An arena: everybody against everybody, on all sides, as often as the others.

    found = play_arena(["monday", "league-board-connect_four@main-3", "alphabeta:4"], num_games=200)
    found.ratings["monday"].interval()

A contestant is a bot; a trial, whose policy or champion plays; or TRIAL@PLAYER, any player of a league. With
`+search:64` behind it, it looks 64 simulations ahead before each of its moves, and with `+gumbel:64` by a Gumbel root.
How the sides of a game of more than two are filled is said in `round_robin.py`.
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
from ludus.league.game_limits import GAME_MINUTES, limits_for
from ludus.league.learning_parts import LearningParts
from ludus.league.live import find_league
from ludus.league.oracle import make_seats
from ludus.league.payoff import Record
from ludus.league.players import Player, PlayerPolicy
from ludus.league.pools import open_pool
from ludus.league.rating import Rating, elo
from ludus.league.round_robin import RoundRobin
from ludus.league.seats import search_with
from ludus.league.teams import Teams, parse_teams
from ludus.league.viewed_players import viewed_player
from ludus.learn.search.settings import SearchSettings
from ludus.spelling import nearest, suggest
from ludus.trial.find import find

__all__ = ["Arena", "Contestant", "contestant_of", "describe", "open_contestants", "play", "play_arena"]

_MOST_ENVS = 128
_STEPS = 16  # of each env between two looks at what has been played
_SEARCHES = ("search", "gumbel")
_SEARCH = re.compile(r"\+([A-Za-z_]+):([^:@/]*)")  # at the end of a name; a path may have a + before that


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Who plays, and which game; a bot plays any. `teams` are those of its league; `None`: it is of none."""

    name: str
    game: Config | None
    open: Callable[[Config], PlayerPolicy]
    teams: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Arena:
    """What a round-robin has shown. `records` and `first_side` are `[player, opponent]`."""

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
    teams: str | None = None,
    seed: int = 0,
    max_game_steps: int = 0,
    max_game_minutes: float = GAME_MINUTES,
    on_progress: Callable[[int, int], None] | None = None,
) -> Arena:
    """So many games for each pair. `trial`: a league whose players are meant by their names. `game`: for bots alone.

    `teams`: sides that one contestant plays together, as "0+2,1+3"; by default those of the contestants' league.
    """
    contestants = open_contestants(names, project=project, trial=trial)
    if trial is not None and all(each.game is None for each in contestants):
        league = find_league(trial, project=project)[1]
        if game is None or game == league.game:
            game, teams = league.game, league.league.teams if teams is None else teams
    config = _game_of(contestants, game, env_args)
    return play(
        contestants,
        config,
        num_games=num_games,
        teams=_teams_of(contestants) if teams is None else parse_teams(teams),
        greedy=greedy,
        seed=seed,
        max_game_steps=max_game_steps,
        max_game_minutes=max_game_minutes,
        on_progress=on_progress,
    )


def play(
    contestants: Sequence[Contestant],
    config: Config,
    *,
    num_games: int,
    teams: tuple[tuple[int, ...], ...] = (),
    fill: str | None = None,
    greedy: bool = False,
    seed: int = 0,
    max_game_steps: int = 0,
    max_game_minutes: float = GAME_MINUTES,
    on_progress: Callable[[int, int], None] | None = None,
) -> Arena:
    """`play_arena` of contestants that are open, in the game of `config`. `fill`: see `RoundRobin`.

    Raises `EnvError` if games do not end: see `game_limits.py`.
    """
    if len(contestants) < 2:
        raise ConfigError("an arena needs two players or more")
    env = envs.spec(config.train.env, **config.eval_env_args)
    if len(env.agents) < 2:
        raise ConfigError(f"{config.train.env} has one agent; an arena is for games of two or more")
    by_name = {each.name: each for each in contestants}
    if len(by_name) < len(contestants):
        raise ConfigError(f"a player is named twice: {', '.join(each.name for each in contestants)}")
    of_sides = Teams(len(env.agents), teams)
    games = RoundRobin(list(by_name), of_sides, num_games, seed=seed, fill=fill)
    limits = limits_for(config.train.env, config.eval_env_args, steps=max_game_steps, minutes=max_game_minutes)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ludus-arena-")))
        parts = LearningParts(
            config=config,
            env=env,
            league=games,
            seats=_Table(by_name, config, env.action, {}),
            folder=folder,
            games_per_match=1,
        )
        num_envs = min(_MOST_ENVS, max(2, games.num_planned // 4))
        evaluations = Evaluations(parts, seed=seed, num_envs=num_envs, greedy=greedy)
        stack.enter_context(contextlib.closing(evaluations))
        watch = limits.watch(f"{config.train.env}: no game has ended that counts")
        while not games.is_done:
            evaluations.play(_STEPS)
            if on_progress is not None:
                on_progress(games.num_counted, games.num_planned)
            if not games.is_done:
                watch.look(games.num_counted, num_steps=_STEPS)
    pairs = [(one, two) for one in by_name for two in by_name if one != two]
    first = next(team for team, sides in enumerate(of_sides.sides) if 0 in sides)
    return Arena(
        game=config.train.env,
        names=tuple(by_name),
        records={pair: games.record(*pair) for pair in pairs},
        first_side={pair: games.record(*pair, team=first) for pair in pairs},
        ratings=elo(games, list(by_name)),
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
    player = viewed_player(folder, wanted)
    if search:
        player = dataclasses.replace(player, search=search.simulations, gumbel=search.gumbel)
    return contestant_of(player, config, folder, name=name)


def contestant_of(player: Player, config: LeagueRunConfig, folder: Path, *, name: str | None = None) -> Contestant:
    """A player of the league in this folder."""

    def open_player(_config: Config) -> PlayerPolicy:
        with contextlib.closing(open_pool(config, folder)) as pool:
            return make_seats(config, pool).open(player)

    teams = parse_teams(config.league.teams)
    return Contestant(name=name or player.name, game=config.training, open=open_player, teams=teams)


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


def _teams_of(contestants: Sequence[Contestant]) -> tuple[tuple[int, ...], ...]:
    """Those of the leagues that they come from: all of them must have the same."""
    known = {each.teams for each in contestants if each.teams is not None}
    if len(known) > 1:
        raise ConfigError(
            "the leagues of these players have different teams: say which sides are played together with --teams, for "
            "example --teams 0+2,1+3"
        )
    return next(iter(known), ())


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
