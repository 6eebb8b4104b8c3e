"""The league as a service: simulators ask for matches, report results, and learners say how far they are.

    00000003.log          what was asked of the league, in order
    00000003.snapshot     the league when that log was started

What is asked is in the log before it is done and answered. The same calls in the same order make the same league, so
one that was killed is read back exactly, results counted once, with the matches that were in flight still in flight.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.clock import SYSTEM, Clock
from ludus.data.nest import Nest
from ludus.data.record_log import RecordLog
from ludus.errors import ConfigError, LudusError
from ludus.league.league import League, LeagueSettings, Match
from ludus.league.players import Player
from ludus.workers.register import register

__all__ = ["LeagueService", "LeagueStats", "player_of", "player_to_nest"]


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
        clock: Clock = SYSTEM,
    ) -> None:
        if not match_timeout_s > 0.0:
            raise ConfigError(f"match_timeout_s={match_timeout_s}: it is more than 0")
        self.league = League(settings, seed=seed)
        self._clock = clock
        self._match_timeout_s = match_timeout_s
        self._lock = threading.Lock()
        self._num_reported = self._num_repeated = self._num_expired = 0
        self._log = RecordLog(Path(folder), head={"do": "start"}, owner="league")
        try:
            self._read()
            self._log.start()
        except BaseException:
            self._log.close()
            raise
        now = clock.now()
        self._since = dict.fromkeys(self.league.payoff.in_flight, now)  # matches in flight, the oldest first
        if not self.league.players:
            for player in players:
                self.add_player(player_to_nest(player))

    def _read(self) -> None:
        for record in self._log.read():
            match record["do"]:
                case "start":
                    pass
                case "league":
                    self.league.restore(record["league"])
                case "lost":
                    pass  # the log has said so; what is left is a league, too
                case command:
                    try:
                        getattr(self, f"_do_{command}")(*record["args"])
                    except LudusError:
                        pass  # it was refused then, as well

    def _ask(self, command: str, *args: Any) -> Any:
        with self._lock:
            self._expire()
            return self._write(command, *args)

    def _write(self, command: str, *args: Any) -> Any:
        self._log.append({"do": command, "args": list(args)})
        try:
            return getattr(self, f"_do_{command}")(*args)
        finally:
            if self._log.is_grown:
                self._log.take_snapshot([{"do": "league", "league": self.league.save()}])

    def _expire(self) -> None:
        oldest = self._clock.now() - self._match_timeout_s
        while self._since:
            match, since = next(iter(self._since.items()))
            if since > oldest:
                return
            self._num_expired += self._write("abort", match)
            self._since.pop(match, None)

    # -- matches

    @register
    def request_match(self, learner: str) -> Nest:
        """`League.request_match`: `{"id", "players", "learner"}`."""
        return self._begun(self._ask("request_match", learner))

    @register
    def request_evaluation(self, names: list[str] | None = None) -> Nest:
        """`League.request_evaluation`."""
        return self._begun(self._ask("request_evaluation", names))

    def _begun(self, match: Match) -> Nest:
        with self._lock:
            self._since[match.id] = self._clock.now()
        return {"id": match.id, "players": [player_to_nest(each) for each in match.players], "learner": match.learner}

    @register
    def report_result(self, match: str, scores: list[float]) -> bool:
        """Scores by side. Whether it was counted: false for one that was reported before, aborted, or is unknown."""
        is_counted = bool(self._ask("report", match, [float(score) for score in scores]))
        with self._lock:
            self._since.pop(match, None)
            self._num_reported += is_counted
            self._num_repeated += not is_counted
        return is_counted

    @register
    def abort_match(self, match: str) -> bool:
        """It has no result. Whether it was in flight."""
        was_in_flight = bool(self._ask("abort", match))
        with self._lock:
            self._since.pop(match, None)
        return was_in_flight

    # -- learners

    @register
    def advance(self, name: str, step: int, version: int | None = None) -> Nest:
        """`League.advance`: `{"snapshot", "num_resets"}`."""
        snapshot, num_resets = self._ask("advance", name, int(step), version)
        return {"snapshot": None if snapshot is None else player_to_nest(snapshot), "num_resets": num_resets}

    @register
    def next_learner(self) -> Nest:
        """Whose turn it is, where learners take turns."""
        with self._lock:
            return player_to_nest(self.league.next_learner())

    # -- players

    @register
    def add_player(self, player: Nest) -> None:
        player_of(player)  # before it is in the log
        self._ask("add", player)

    @register
    def snapshot(self, name: str, version: int | None = None) -> Nest:
        """`League.snapshot`, whatever the rules say."""
        return player_to_nest(self._ask("snapshot", name, version))

    @register
    def freeze_player(self, name: str) -> Nest:
        return player_to_nest(self._ask("freeze", name))

    @register
    def remove_player(self, name: str) -> None:
        self._ask("remove", name)

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

    # -- what the log names

    def _do_request_match(self, learner: str) -> Match:
        return self.league.request_match(learner)

    def _do_request_evaluation(self, names: list[str] | None) -> Match:
        return self.league.request_evaluation(names)

    def _do_report(self, match: str, scores: list[float]) -> bool:
        return self.league.report(match, scores)

    def _do_abort(self, match: str) -> bool:
        return self.league.abort(match)

    def _do_advance(self, name: str, step: int, version: int | None) -> Any:
        return self.league.advance(name, step=step, version=version)

    def _do_add(self, player: Nest) -> None:
        self.league.add(player_of(player))

    def _do_snapshot(self, name: str, version: int | None) -> Player:
        return self.league.snapshot(name, version)

    def _do_freeze(self, name: str) -> Player:
        return self.league.freeze(name)

    def _do_remove(self, name: str) -> None:
        self.league.remove(name)


def player_to_nest(player: Player) -> Nest:
    """For the codec."""
    return {**dataclasses.asdict(player), "sides": list(player.sides)}


def player_of(nest: Nest) -> Player:
    """Raises `ConfigError` for what is no player."""
    try:
        return Player(**{**nest, "sides": tuple(nest.get("sides", ()))})
    except (AttributeError, TypeError) as error:
        raise ConfigError(f"this is no player: {error}") from None
