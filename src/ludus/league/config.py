"""The configuration of a league: the game, who plays in it, and how those that learn are trained.

    config = resolve("board:connect_four", {"main": 2, "learning_rate": 1e-3})
    config.league.main, config.training.algorithm.learning_rate

Settings of training are those of `ludus train` with the same algorithm; a name belongs to one of the two parts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus import files, options, spelling
from ludus.errors import ConfigError
from ludus.experiment import config as configs
from ludus.experiment.config import Config
from ludus.league.folder import CONFIG_FILE, FOLDER
from ludus.league.league import LeagueSettings
from ludus.league.matchmaking import ExploitMain, Itself
from ludus.league.players import Player
from ludus.league.psro.meta_strategy import META_SOLVERS, MetaStrategy
from ludus.league.roles import DEFAULT_RULES, RoleRules, SnapshotRule
from ludus.league.teams import parse_teams
from ludus.learn.algorithms import registry
from ludus.options import option

__all__ = [
    "LeagueConfig",
    "LeagueRunConfig",
    "default_algorithm",
    "load",
    "resolve",
    "trial_name",
    "with_settings",
]

_ENDLESS = 10**15  # steps
_OF_TRAINING = (
    "env_args",
    "steps",
    "seed",
    "project",
    "trial",
    "checkpoint_seconds",
    "keep_checkpoints",
    "device",
    "threads",
)
"""The settings of a run that a league takes from `ludus train`; how it is spread is its own."""
_OF_EACH_RUN = ("steps", "checkpoint_seconds", "keep_checkpoints", "device", "threads")
"""Those that a league which goes on can be given again."""
_OF_NEW_LEAGUES = ("teams", "rules", "oracle", "meta_solver")
"""The settings of a league that it keeps. (`pools.check_pool` sees to the pool, whose URL may have a password.)"""


@dataclass(frozen=True, kw_only=True)
class LeagueConfig:
    """Who plays in a league, and how it is spread."""

    main: int = option(1, help="main agents: they become strong against all", minimum=0)
    main_exploiters: int = option(1, help="alphastar: exploiters of main agents", minimum=0)
    league_exploiters: int = option(1, help="alphastar: exploiters of anybody", minimum=0)
    bots: tuple[str, ...] = option(("random",), help="programs that play, too: random, alphabeta:4, file.py:make")
    rules: str = option(
        "alphastar",
        help="alphastar: main agents and exploiters; self_play: nobody meets but itself; psro: best responses, one "
        "after the other, to the equilibrium of those before",
        choices=("alphastar", "self_play", "psro"),
    )
    meta_solver: str = option(
        "nash",
        help="psro: how the mixture that is responded to follows from who scores what against whom",
        choices=tuple(META_SOLVERS),
    )
    oracle: str = option(
        "learn",
        help="psro: who responds. learn: the algorithm; exact: the best response is computed, in small openspiel games",
        choices=("learn", "exact"),
    )
    warm_start: bool = option(False, help="psro: a response begins with the last one's weights, not with new ones")
    evaluation_games: int = option(
        100, help="psro: games of any two snapshots before both belong to the mixture", minimum=1
    )
    snapshot_steps: int = option(
        500_000, help="a snapshot is taken after so many steps of a player at the latest", minimum=1
    )
    main_share: float = option(
        2.0, help="how much of the training a main agent gets, where an exploiter gets 1", minimum=0.0
    )
    games_per_match: int = option(4, help="games that two players play each time they meet", minimum=1)
    turn_updates: int = option(8, help="updates of a learner before it is the next one's turn", minimum=1)
    evaluation_share: float = option(
        0.1, help="the part of all games that are evaluations, from which nobody learns", minimum=0.0, maximum=0.9
    )
    decay: float = option(0.995, help="what an earlier game of the same players counts after another one", minimum=0.0)
    teams: str = option("", help="sides that one player plays together, as 0+2,1+3; empty: each side alone")
    minutes: float | None = option(None, help="end after so long; none: when all steps are done", minimum=0.0)
    learners: int = option(
        0, help="processes that learn, each its part of the learners; 0: all in one process", minimum=0
    )
    simulators: int = option(0, help="processes that play: for those that learn, and evaluations", minimum=0)
    past_segments: int = option(
        3, help="alphazero: earlier segments that are learnt from again with each new one", minimum=0
    )
    pool: str | None = option(None, help="where versions are kept: redis://HOST:PORT; none: the trial's folder")
    serve: int | None = option(
        None, help="port on which games play matches, see docs/league.md; 0: any free one", minimum=0, maximum=65535
    )
    serve_host: str = option("127.0.0.1", help="serve: host to listen on; beyond loopback a token or secret is needed")
    token_file: str | None = option(None, help="a file that has the token; or set LUDUS_TOKEN or LUDUS_TOKEN_FILE")
    secret_file: str | None = option(None, help="a file that has the secret; or set LUDUS_SECRET or LUDUS_SECRET_FILE")
    tls_cert: str | None = option(None, help="serve: TLS certificate, a PEM file")
    tls_key: str | None = option(None, help="serve: TLS key, a PEM file")
    search: int = option(
        0, help="simulations of a tree search before each move in evaluations; 0: none", minimum=0, maximum=100_000
    )

    @property
    def is_embedded(self) -> bool:
        """One process, no calls."""
        return self.learners == 0 and self.simulators == 0


@dataclass(frozen=True, kw_only=True)
class LeagueRunConfig:
    """All settings of a league."""

    league: LeagueConfig
    training: Config
    folder: Path | None = None  # of its trial, once it has one

    @property
    def game(self) -> str:
        return self.training.train.env

    def players(self) -> list[Player]:
        """Those that a new league begins with. A learner's model has its name."""
        league = self.league
        mains = [Player(name, role="main", model=name) for name in _names("main", league.main)]
        bots = [Player(_bot_name(bot), role="bot", model=bot) for bot in league.bots]
        if league.rules != "alphastar":
            return [*mains, *bots]
        learners = [
            *mains,
            *(Player(name, role="main_exploiter", model=name) for name in _names("exploiter", league.main_exploiters)),
            *(
                Player(name, role="league_exploiter", model=name)
                for name in _names("league_exploiter", league.league_exploiters)
            ),
        ]
        return [*learners, *bots]

    def settings(self, num_sides: int) -> LeagueSettings:
        """The rules of matches, snapshots and turns."""
        league = self.league
        if league.rules != "alphastar":
            return self._rules_of_mains(num_sides)
        steps = league.snapshot_steps
        snapshot = SnapshotRule(min_steps=max(1, steps // 2), timeout_steps=steps)
        rules = {}
        for role, default in DEFAULT_RULES.items():
            matchmaking, reset = default.matchmaking, default.reset
            if isinstance(matchmaking, ExploitMain) and league.main == 0:
                continue
            share = league.main_share if role == "main" else 1.0
            rules[role] = RoleRules(
                matchmaking=matchmaking, snapshot=snapshot, targets=default.targets, reset=reset, share=share
            )
        return LeagueSettings(
            num_sides=num_sides, decay=league.decay, min_games=4.0, rules=rules, teams=parse_teams(league.teams)
        )

    def _rules_of_mains(self, num_sides: int) -> LeagueSettings:
        """Self-play and PSRO: there are no exploiters, and a snapshot is taken after so many steps, won or not."""
        league = self.league
        is_exact = league.oracle == "exact"
        steps = 1 if is_exact else league.snapshot_steps
        snapshot = SnapshotRule(min_steps=steps, timeout_steps=steps)
        if league.rules == "self_play":
            rules = RoleRules(matchmaking=Itself(), snapshot=snapshot)
            return LeagueSettings(num_sides=num_sides, decay=league.decay, min_games=4.0, rules={"main": rules})
        if num_sides != 2:
            raise ConfigError(
                f"rules=psro is for games of two sides, and {self.game} has {num_sides}: what snapshots score against "
                "each other would not be a matrix. Use rules=alphastar or self_play"
            )
        needs_scores = league.meta_solver != "uniform"
        min_games = 1 if is_exact else league.evaluation_games
        meta = MetaStrategy(league.meta_solver, min_games if needs_scores else 0)
        rules = RoleRules(matchmaking=meta, snapshot=snapshot, reset=0.0 if league.warm_start else 1.0)
        return LeagueSettings(num_sides=num_sides, rules={"main": rules}, meta=meta, evaluates_learners=False)

    def write(self, folder: Path) -> None:
        """To the folder of the trial."""
        files.make_folder(folder / FOLDER)
        files.replace_json(folder / FOLDER / CONFIG_FILE, dataclasses.asdict(self.league))


def load(folder: Path) -> LeagueRunConfig:
    """What a trial's folder says. Raises `ConfigError` if it is not a league's."""
    from ludus.experiment.saved_config import load_config

    path = folder / FOLDER / CONFIG_FILE
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        league = options.replace(LeagueConfig(), saved)
    except FileNotFoundError:
        raise ConfigError(f"{folder} is not the folder of a league: it has no {FOLDER}/{CONFIG_FILE}.") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be read: {error!r}.") from None
    return LeagueRunConfig(league=league, training=load_config(folder), folder=folder)


def with_settings(
    config: LeagueRunConfig, settings: Mapping[str, Any], *, algorithm: str | None = None
) -> LeagueRunConfig:
    """With other settings of the league, and of its run those that do not change what its networks are and learn.

    Raises `ConfigError` for one that is another than the league was started with.
    """
    own = {field.name for field in dataclasses.fields(LeagueConfig)}
    league = options.replace(config.league, {name: value for name, value in settings.items() if name in own})
    for name in _OF_NEW_LEAGUES:
        _expect_same(name, getattr(config.league, name), getattr(league, name))
    training = config.training
    if algorithm is not None:
        _expect_same("algorithm", training.train.algorithm, algorithm)
    rest = {name: value for name, value in settings.items() if name not in own and name not in ("project", "trial")}
    for name, value in rest.items():
        parts = (training.train, training.algorithm, training.network)
        part = next((each for each in parts if hasattr(each, name)), None)
        if part is None:
            known = sorted({*own, *(field for each in parts for field in vars(each))})
            raise ConfigError(f"a league has no setting {name!r}. {spelling.nearest(name, known)}")
        new = options.replace(part, {name: value})
        if name not in _OF_EACH_RUN:
            _expect_same(name, getattr(part, name), getattr(new, name))
        else:
            train = options.replace(training.train, {name: value})
            training = dataclasses.replace(training, train=train)
    changed = dataclasses.replace(config, league=league, training=training)
    _check(changed, settings)
    return changed


def _expect_same(name: str, was: Any, now: Any) -> None:
    if was != now:
        raise ConfigError(
            f"this league was started with {name}={was!r}, and goes on as it is: it cannot have {now!r}. Leave "
            f"--{name.replace('_', '-')} out, or begin another league with --trial NAME"
        )


def resolve(game: str, settings: Mapping[str, Any] | None = None, *, algorithm: str | None = None) -> LeagueRunConfig:
    """All settings of a league, from what its user gave. Raises `ConfigError`."""
    given = dict(settings or {})
    own = {field.name for field in dataclasses.fields(LeagueConfig)}
    of_run = {field.name for field in dataclasses.fields(configs.TrainConfig)} - set(_OF_TRAINING)
    for name in given:
        if name in of_run - own:
            raise ConfigError(f"a league has no setting {name!r}. {spelling.nearest(name, sorted(own))}")
    league = options.replace(LeagueConfig(), {name: value for name, value in given.items() if name in own})
    rest = {name: value for name, value in given.items() if name not in own}
    algorithm = algorithm or default_algorithm(game)
    training = configs.resolve(algorithm, game, {"steps": _ENDLESS, "groups": 1, **rest})
    if training.is_replay or training.is_offline:
        raise ConfigError(f"algorithm={algorithm} learns from replay, and matches are learnt from as they are: use ppo")
    if registry.algorithm_class(algorithm).group == "env":
        raise ConfigError(
            f"algorithm={algorithm} learns from all agents of an env as one team, and those of a match are opponents: "
            "use ppo"
        )
    if training.is_game:
        raise ConfigError(f"{game} is games that call; a league plays envs. See docs/league.md for matches of games")
    config = LeagueRunConfig(league=league, training=training)
    _check(config, given)
    return config


def _check(config: LeagueRunConfig, given: Mapping[str, Any]) -> None:
    """Settings that fit each other, of a new league and of one that goes on. Raises `ConfigError`."""
    league = config.league
    if league.oracle == "exact" and (league.rules != "psro" or not config.game.startswith("openspiel:")):
        raise ConfigError("oracle=exact is for rules=psro and small games of OpenSpiel, such as openspiel:kuhn_poker")
    if league.oracle == "exact" and not league.is_embedded:
        raise ConfigError("oracle=exact computes in one process: set learners=0 and simulators=0")
    if league.rules != "alphastar" and league.teams:
        raise ConfigError(f"teams={league.teams}: rules={league.rules} is for games of two sides, each played alone")
    for name in ("main_exploiters", "league_exploiters"):
        if league.rules != "alphastar" and name in given and (num := getattr(league, name)):
            raise ConfigError(
                f"{name}={num}: rules={league.rules} has no exploiters, only rules=alphastar has. Leave "
                f"--{name.replace('_', '-')} out"
            )
    if not any(player.is_learning for player in config.players()):
        raise ConfigError("nobody in this league learns: set main=1 or more")


def _names(name: str, num: int) -> list[str]:
    return [name if number == 0 else f"{name}_{number + 1}" for number in range(num)]


def _bot_name(bot: str) -> str:
    """`alphabeta:4` → `alphabeta_4`: a player's name is a word."""
    return "".join(letter if letter.isalnum() or letter in "_-." else "_" for letter in bot)


def default_algorithm(game: str) -> str:
    """What a new league learns by: from a tree search where the game is known to have rules, which is stronger."""
    return "alphazero" if game.startswith("board:") else "ppo"


def trial_name(game: str) -> str:
    """`board:connect_four` → `league-board-connect_four`: the same game goes on where it was."""
    return "league-" + "".join(letter if letter.isalnum() or letter in "_.-" else "-" for letter in game)
