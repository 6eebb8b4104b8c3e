"""The league as a service: simulators ask for matches, report results, and learners say how far they are.

    00000003.log          what became of the league, in order
    00000003.snapshot     the league when that log was started

What is done is in the log first, with the state of the random generator after it. So a league that was killed is read
back exactly: results are counted once, matches that were in flight still are, and the next ones are the same.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.clock import SYSTEM, Clock
from ludus.data.nest import Nest
from ludus.data.record_log import RecordLog
from ludus.data.rng import restore_rng, save_rng
from ludus.errors import ConfigError, DataError, LudusError
from ludus.league.league import Advance, League, LeagueSettings, Match
from ludus.league.players import Player
from ludus.workers.register import register

__all__ = ["LeagueService", "LeagueStats", "player_of", "player_to_nest"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LeagueStats:
    num_players: int
    num_learners: int
    num_in_flight: int
    num_reported: int  # results that were counted, by this process
    num_repeated: int  # reports of matches that were not in flight: retried, aborted or unknown
    num_expired: int  # matches that nobody reported in time


class LeagueService:
    """`players` are those that a new league begins with; one that is read from its folder has its own.

    A match that is not reported within `match_timeout_s` is aborted: who played it is gone.
    """

    def __init__(
        self,
        folder: Path | str,
        settings: LeagueSettings | None = None,
        players: Sequence[Player] = (),
        *,
        seed: int = 0,
        match_timeout_s: float = 600.0,
        segment_bytes: int = 16 << 20,
        clock: Clock = SYSTEM,
    ) -> None:
        if not match_timeout_s > 0.0:
            raise ConfigError(f"match_timeout_s={match_timeout_s}: it is more than 0")
        self.league = League(settings, seed=seed)
        self._clock = clock
        self._match_timeout_s = match_timeout_s
        self._lock = threading.Lock()
        self._num_reported = self._num_repeated = self._num_expired = 0
        self._log = RecordLog(Path(folder), head={"do": "start"}, owner="league", segment_bytes=segment_bytes)
        try:
            self._read()
            self._log.start()
            self._since = dict.fromkeys(self.league.payoff.in_flight, clock.now())  # the oldest first
            if not self.league.players:
                for player in players:
                    self.add_player(player_to_nest(player))
        except BaseException:
            self._log.close()
            raise

    def _read(self) -> None:
        for record in self._log.read():
            match record["do"]:
                case "start" | "lost":  # of what is lost the log has warned
                    continue
                case "league":
                    self.league.restore(record["league"])
                    continue
                case command:
                    restore_rng(self.league.rng, record["rng"])
                    try:
                        _COMMANDS[command](self.league, *record["args"])
                    except LudusError as error:
                        _LOG.debug("%s was refused, or is of what was lost: %s", command, error)

    def _do(self, command: str, *args: Any) -> Any:
        """With the lock: write it down, then do it. What is refused is refused again when it is read."""
        self._log.append({"do": command, "args": list(args), "rng": save_rng(self.league.rng)})
        try:
            return _COMMANDS[command](self.league, *args)
        finally:
            if self._log.is_grown:
                self._log.take_snapshot([{"do": "league", "league": self.league.save()}])

    def _expire(self) -> None:
        oldest = self._clock.now() - self._match_timeout_s
        while self._since:
            match, since = next(iter(self._since.items()))
            if since > oldest:
                return
            self._num_expired += bool(self._do("abort", match))
            del self._since[match]

    # -- matches

    @register
    def request_match(self, learner: str) -> Nest:
        """`League.request_match`: `{"id", "players", "learner"}`."""
        with self._lock:
            self._expire()
            return self._begin(self.league.choose_match(learner))

    @register
    def request_evaluation(self, names: list[str] | None = None) -> Nest:
        """`League.request_evaluation`."""
        with self._lock:
            self._expire()
            return self._begin(self.league.choose_evaluation(names))

    def _begin(self, match: Match) -> Nest:
        self._do("begin", match.id, [player.name for player in match.players], match.learner)
        self._since[match.id] = self._clock.now()
        return {"id": match.id, "players": [player_to_nest(each) for each in match.players], "learner": match.learner}

    @register
    def report_result(self, match: str, scores: list[float]) -> bool:
        """Scores by side. Whether it was counted: false for one that was reported before, aborted, or is unknown."""
        _expect(str, match=match)
        if not isinstance(scores, list | tuple):
            raise DataError(f"scores must be a list with one number for each side, not {scores!r}")
        _expect((int, float), **{f"score_{side}": score for side, score in enumerate(scores)})
        with self._lock:
            is_counted = bool(self._do("report", match, [float(score) for score in scores]))
            self._since.pop(match, None)
            self._num_reported += is_counted
            self._num_repeated += not is_counted
            return is_counted

    @register
    def abort_match(self, match: str) -> bool:
        """It has no result. Whether it was in flight."""
        _expect(str, match=match)
        with self._lock:
            self._since.pop(match, None)
            return bool(self._do("abort", match))

    # -- learners

    @register
    def advance(self, name: str, step: int, version: int | None = None) -> Nest:
        """`League.advance`: `{"snapshot", "num_resets"}`."""
        _expect(str, name=name)
        _expect(int, step=step)
        _expect((int, type(None)), version=version)
        with self._lock:
            snapshot, num_resets = self._do("advance", name, step, version)
        return {"snapshot": None if snapshot is None else player_to_nest(snapshot), "num_resets": num_resets}

    @register
    def next_learner(self) -> Nest:
        """Whose turn it is, where learners take turns."""
        with self._lock:
            return player_to_nest(self.league.next_learner())

    # -- players

    @register
    def add_player(self, player: Nest) -> None:
        """`League.add`: its fields, by name."""
        player_of(player)  # before it is in the log
        with self._lock:
            self._do("add", player)

    @register
    def snapshot(self, name: str, version: int | None = None) -> Nest:
        """`League.snapshot`, whatever the rules say."""
        _expect(str, name=name)
        _expect((int, type(None)), version=version)
        with self._lock:
            return player_to_nest(self._do("snapshot", name, version))

    @register
    def freeze_player(self, name: str) -> Nest:
        """`League.freeze`."""
        _expect(str, name=name)
        with self._lock:
            return player_to_nest(self._do("freeze", name))

    @register
    def remove_player(self, name: str) -> None:
        """`League.remove`."""
        _expect(str, name=name)
        with self._lock:
            self._do("remove", name)

    # -- what is known

    @register
    def players(self) -> list[Nest]:
        with self._lock:
            return [player_to_nest(player) for player in self.league.players]

    @register
    def standings(self) -> list[Nest]:
        """The strongest first: `{"player", "mean", "std", "games", "win_rate"}`."""
        with self._lock:
            return [
                {
                    "player": player_to_nest(each.player),
                    "mean": each.rating.mean,
                    "std": each.rating.std,
                    "games": each.games,
                    "win_rate": each.win_rate,
                }
                for each in self.league.standings()
            ]

    @register
    def payoff(self, names: list[str] | None = None) -> Nest:
        """`{"players", "win_rate", "games"}`, the last two `[player, opponent]`."""
        with self._lock:
            found = [player.name for player in self.league.players] if names is None else names
            matrix = self.league.payoff.matrix(found)
            games = [[self.league.payoff.record(one, two).games for two in found] for one in found]
            return {"players": list(found), "win_rate": matrix, "games": games}

    @register
    def statistics(self) -> dict[str, Any]:
        """A `LeagueStats`."""
        with self._lock:
            return dataclasses.asdict(
                LeagueStats(
                    num_players=len(self.league.players),
                    num_learners=len(self.league.learners),
                    num_in_flight=len(self.league.payoff.in_flight),
                    num_reported=self._num_reported,
                    num_repeated=self._num_repeated,
                    num_expired=self._num_expired,
                )
            )

    def close(self) -> None:
        with self._lock:
            self._log.close()


def player_to_nest(player: Player) -> Nest:
    """For the codec."""
    return {**dataclasses.asdict(player), "sides": list(player.sides)}


def player_of(nest: Nest) -> Player:
    """Raises `ConfigError` or `DataError` for what is no player."""
    try:
        player = Player(**{**nest, "sides": tuple(nest.get("sides", ()))})
    except (AttributeError, TypeError) as error:
        raise ConfigError(f"this is no player: {error}") from None
    _expect(str, name=player.name, role=player.role)
    _expect((str, type(None)), model=player.model, parent=player.parent)
    _expect((int, type(None)), version=player.version)
    _expect(int, step=player.step, **{f"side_{number}": side for number, side in enumerate(player.sides)})
    return player


def _expect(kind: type | tuple[type, ...], **values: Any) -> None:
    """Before anything is in the log: what only fails when it is done would fail again whenever the log is read."""
    for name, value in values.items():
        if not isinstance(value, kind):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            raise DataError(
                f"{name}={value!r} must be {' or '.join(each.__name__ for each in kinds)}; nothing was changed"
            )


def _begin(league: League, match: str, names: list[str], learner: str | None) -> None:
    league.begin(Match(match, tuple(league.player(name) for name in names), learner))


def _advance(league: League, name: str, step: int, version: int | None) -> Advance:
    return league.advance(name, step=step, version=version)


# What a log has, by the name that it has there.
_COMMANDS: dict[str, Callable[..., Any]] = {
    "begin": _begin,
    "report": League.report,
    "abort": League.abort,
    "advance": _advance,
    "add": lambda league, player: league.add(player_of(player)),
    "snapshot": League.snapshot,
    "freeze": League.freeze,
    "remove": League.remove,
}
