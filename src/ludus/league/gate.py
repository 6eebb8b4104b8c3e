"""The gate before a promotion: a candidate has to beat the champion, and to withstand an exploiter of its own.

    verdict = judge("league-board-connect_four", settings=GateSettings(games=200, exploit_steps=200_000))
    verdict.is_passed, verdict.reasons

The exploiter is trained from nothing, against the candidate alone, for a fixed number of steps. What it then wins says
how well an opponent can learn to beat the candidate, which matches against those who never tried to do not say.

In a game of more than two sides, or teams, one of them is the challenger's, each as often, and all others are played by
the one it challenges: the candidate plays among champions, the exploiter among copies of the candidate. Two that play
alike then win half of their results, as in a game of two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ludus import envs
from ludus.data.actions import ActionSpec
from ludus.errors import ConfigError
from ludus.experiment import wiring
from ludus.experiment.config import Config
from ludus.league import arena
from ludus.league.arena import Contestant
from ludus.league.champion import crown, served_policy
from ludus.league.game_limits import limits_for
from ludus.league.gate_settings import GateSettings
from ludus.league.league import League, LeagueSettings
from ludus.league.learning import LearningPlayer
from ludus.league.learning_parts import LearningParts
from ludus.league.live import champion_of, find_league, open_league
from ludus.league.matchmaking import Uniform
from ludus.league.memory_league import MemoryLeague
from ludus.league.payoff import Record
from ludus.league.players import LEARNING, Player, PlayerPolicy, player_of
from ludus.league.roles import RoleRules, SnapshotRule

__all__ = ["Verdict", "judge"]

_CANDIDATE, _EXPLOITER = "candidate", "exploiter"

OnProgress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`against_champion`: the candidate's record, or `None` without another champion; `exploited`: the exploiter's."""

    candidate: str
    champion: str | None
    against_champion: Record | None
    exploited: Record | None
    reasons: tuple[str, ...]  # why it is refused

    @property
    def is_passed(self) -> bool:
        return not self.reasons


def judge(
    trial: str | Path,
    candidate: str | None = None,
    *,
    project: str | Path = "trials",
    settings: GateSettings | None = None,
    promotes: bool = False,
    on_progress: OnProgress | None = None,
) -> Verdict:
    """Of a player of a league; without a name, the main agent or snapshot of one that is rated highest.

    `promotes`: if it is passed, a snapshot of it is the champion from then on, and what `ludus serve` plays.
    """
    settings = settings or GateSettings()
    folder, config = find_league(trial, project=project)
    with open_league(folder) as league:
        standings, champion = league.standings(), league.champion()
        players = [each["player"] for each in standings]
        best = champion_of(standings)
        if best is None:
            raise ConfigError(f"nobody in the league {folder.name!r} could be promoted: all its players are bots")
        name = candidate or best["name"]
        player = next((each for each in players if each["name"] == name), None)
        if player is None:
            there = ", ".join(each["name"] for each in players)
            raise ConfigError(f"the league {folder.name!r} has no player {name!r}; there are: {there}")
        _expect_candidate(player)
        if player["role"] in LEARNING:
            player = _snapshot(league, player, players)  # what is judged is what is promoted
        name = player["name"]
    if promotes:
        served_policy(folder, player_of(player))  # raises now what would be raised after it was judged
    one = arena.contestant_of(player_of(player), config, folder)
    against = next((each for each in players if each["name"] == champion != name), None)
    other = None if against is None else arena.contestant_of(player_of(against), config, folder)
    verdict = _judge(one, other, config.training, settings, on_progress)
    if champion == name:
        verdict = dataclasses.replace(verdict, champion=champion)
    if promotes and verdict.is_passed:
        with open_league(folder) as league:
            crown(folder, player_of(player), league)
    return verdict


def _expect_candidate(player: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for one that cannot be judged or promoted, before anything is played."""
    name, role = player["name"], player["role"]
    if role == "human":
        raise ConfigError(f"{name!r} is a person, whom no exploiter can be trained against: name another player")
    if role == "bot":
        raise ConfigError(
            f"{name!r} is a bot: it has no network that could be served, so the gate does not judge it. `ludus league "
            f"promote TRIAL {name}` makes it the champion that later candidates have to beat"
        )


def _snapshot(league: Any, learner: Mapping[str, Any], players: Sequence[Mapping[str, Any]]) -> Any:
    """Of a learner as it is now: the last one, if it was taken at this very step."""
    for each in players:
        if each["role"] == "snapshot" and each["parent"] == learner["name"] and each["step"] == learner["step"]:
            return each
    return league.snapshot(learner["name"])


def _judge(
    candidate: Contestant,
    champion: Contestant | None,
    game: Config,
    settings: GateSettings,
    on_progress: OnProgress | None,
) -> Verdict:
    reasons = []
    against = exploited = None
    if champion is not None:
        found = arena.play(
            [candidate, champion],
            game,
            num_games=settings.games,
            teams=candidate.teams or (),
            fill=champion.name,
            seed=settings.seed,
            max_game_steps=settings.max_game_steps,
            max_game_minutes=settings.max_game_minutes,
            on_progress=on_progress and functools.partial(on_progress, "against the champion"),
        )
        against = found.records[candidate.name, champion.name]
        low, high = against.interval()
        if low <= settings.min_win_rate:
            reasons.append(
                f"it won {against.win_rate:.1%} ({low:.1%} to {high:.1%}) of {against.games:.0f} games against the "
                f"champion {champion.name}, which is not surely above {settings.min_win_rate:.1%}"
            )
    if settings.exploit_steps:
        exploited = _exploit(candidate, game, settings, on_progress)
        low, high = exploited.interval()
        if high >= settings.max_exploit:
            reasons.append(
                f"an exploiter won {exploited.win_rate:.1%} ({low:.1%} to {high:.1%}) of {exploited.games:.0f} games "
                f"against it after {settings.exploit_steps:,} steps, not surely below {settings.max_exploit:.1%}"
            )
    return Verdict(
        candidate=candidate.name,
        champion=None if champion is None else champion.name,
        against_champion=against,
        exploited=exploited,
        reasons=tuple(reasons),
    )


def _exploit(candidate: Contestant, game: Config, settings: GateSettings, on_progress: OnProgress | None) -> Record:
    """What one wins against the candidate that has learnt to beat it, and nothing else."""
    game = dataclasses.replace(game, train=dataclasses.replace(game.train, seed=settings.seed))
    env = envs.spec(game.train.env, **game.env_args)
    opponent = candidate.open(game)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ludus-gate-")))
        parts = LearningParts(
            config=game,
            env=env,
            league=_league_of_two(len(env.agents), candidate.teams or (), settings.seed),
            seats=_One(opponent, env.action),
            folder=folder,
            games_per_match=1,
        )
        wiring.use_threads(game)
        learner = stack.enter_context(contextlib.closing(LearningPlayer(_EXPLOITER, parts)))
        _train(learner, game, settings, on_progress)
        trained = cast("PlayerPolicy", learner.policy)
        exploiter = Contestant(name=_EXPLOITER, game=None, open=lambda _config: trained)
        own = Contestant(name=_CANDIDATE, game=None, open=lambda _config: opponent)
        found = arena.play(
            [exploiter, own],
            game,
            num_games=settings.games,
            teams=candidate.teams or (),
            fill=_CANDIDATE,
            seed=settings.seed,
            max_game_steps=settings.max_game_steps,
            max_game_minutes=settings.max_game_minutes,
        )
        return found.records[_EXPLOITER, _CANDIDATE]


def _league_of_two(num_sides: int, teams: tuple[tuple[int, ...], ...], seed: int) -> MemoryLeague:
    """The exploiter has any one team, the candidate all others."""
    players = (Player(_EXPLOITER, model=_EXPLOITER), Player(_CANDIDATE, role="frozen", model=_CANDIDATE))
    rules = RoleRules(matchmaking=Uniform(), snapshot=SnapshotRule())
    settings = LeagueSettings(num_sides=num_sides, teams=teams, rules={"main": rules})
    return MemoryLeague(League(settings, seed=seed), players)


def _train(learner: LearningPlayer, game: Config, settings: GateSettings, on_progress: OnProgress | None) -> None:
    """For as many steps as it is given. Raises `EnvError` if games do not end, or if it never has a move in them."""
    limits = limits_for(game.train.env, game.env_args, steps=settings.max_game_steps, minutes=settings.max_game_minutes)
    games = limits.watch(f"{game.train.env}: no game of the exploiter has ended")
    moves = limits.watch(f"{game.train.env}: the exploiter has had no move")
    while learner.num_steps < settings.exploit_steps:
        learner.update()
        games.look(learner.num_games, num_steps=game.algorithm.num_steps)
        moves.look(learner.num_steps, num_steps=game.algorithm.num_steps)
        if on_progress is not None:
            done = min(learner.num_steps, settings.exploit_steps)
            on_progress("train an exploiter", done, settings.exploit_steps)


@dataclass(frozen=True)
class _One:
    """The candidate is the one that is not the exploiter."""

    policy: PlayerPolicy
    action: ActionSpec

    def open(self, player: Player) -> PlayerPolicy:
        return self.policy
