"""The league as a service: simulators ask for matches, report results, and learners say how far they are.

    00000003.log          what became of the league, in order
    00000003.snapshot     the league when that log was started

What is done is in the log first, with the state of the random generator after it. So a league that was killed is read
back exactly: results are counted once, matches that were in flight still are, and the next ones are the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ludus.clock import SYSTEM, Clock
from ludus.data.nest import Nest
from ludus.data.record_log import RecordLog
from ludus.data.rng import restore_rng, save_rng
from ludus.errors import ConfigError, DataError, LudusError
from ludus.league.league import Advance, League, LeagueSettings, Match
from ludus.league.league_stats import LeagueStats
from ludus.league.log_commands import COMMANDS
from ludus.league.payoff import ANY_SIDE
from ludus.league.players import Player, player_of, player_to_nest
from ludus.league.settings import changed, merged
from ludus.league.validation import expect, expect_names, expect_number_of_matches, expect_part, result_of
from ludus.league.view import VIEW_FILE, write_view
from ludus.workers.register import register

__all__ = ["LeagueService"]

_LOG = logging.getLogger(__name__)
_VIEW_EVERY_S = 1.0
_LIVE_TIMEOUTS = 6.0  # a match of a process that still calls is aborted after so many times the others' time-out
_MOST_SEEN = 1000  # owners whose last call is kept, before those that play nothing are left out


class LeagueService:
    """`players` are those that a new league begins with; one that is read from its folder has its own.

    A match that is not reported within `match_timeout_s` is aborted if who plays it has not called for as long, and in
    any case after six times that. What pages show is in the folder, too (`view.py`), a second old at most while matches
    end; `game` is said there.
    """

    def __init__(
        self,
        folder: Path | str,
        settings: LeagueSettings | None = None,
        players: Sequence[Player] = (),
        *,
        seed: int = 0,
        game: str = "",
        match_timeout_s: float = 600.0,
        segment_bytes: int = 1 << 20,
        clock: Clock = SYSTEM,
    ) -> None:
        if not match_timeout_s > 0.0:
            raise ConfigError(f"match_timeout_s={match_timeout_s}: it is more than 0")
        self.league = League(settings, seed=seed)
        self._clock = clock
        self._game = game
        self._view = Path(folder) / VIEW_FILE
        self._viewed = -_VIEW_EVERY_S
        self._match_timeout_s = match_timeout_s
        self._lock = threading.Lock()
        self._change: Nest = {}  # of the constructor's settings, all that were made in one
        self._began: dict[str, float] = {}  # of matches that go on past the time-out because their owner calls
        self._seen: dict[str, float] = {}  # when each owner of matches called last
        self._is_closed = False
        self._num_reported = self._num_repeated = self._num_expired = 0
        sides = [list(team) for team in self.league.teams.sides]
        head = {"do": "start", "sides": sides}
        self._log = RecordLog(Path(folder), head=head, owner="league", segment_bytes=segment_bytes)
        try:
            self._read()
            if not self.league.players and self._view.exists():
                _LOG.warning(
                    "%s has no log that can be read, so this league begins with no results. Versions of its players "
                    "and checkpoints of its learners are used",
                    folder,
                )
            self._log.start()
            self._since = dict.fromkeys(self.league.payoff.in_flight, clock.now())  # the oldest first
            if not self.league.players:
                for player in players:
                    self._do("add", player_to_nest(player))
            if self.league.players:
                self._write_view()
                self._viewed = clock.now() - _VIEW_EVERY_S  # the next one is that of the first result
        except BaseException:
            self._log.close()
            raise

    def _read(self) -> None:
        for record in self._log.read():
            match record["do"]:
                case "lost":  # of which the log has warned
                    continue
                case "start":
                    self._expect_sides(record["sides"])
                case "league":
                    self.league.restore(record["league"])
                    self._reconfigure(record["change"])
                case "configure":
                    restore_rng(self.league.rng, record["rng"])
                    self._reconfigure(record["args"][0])
                case command:
                    restore_rng(self.league.rng, record["rng"])
                    try:
                        COMMANDS[command](self.league, *record["args"])
                    except LudusError as error:
                        _LOG.debug("%s was refused, or is of what was lost: %s", command, error)

    def _expect_sides(self, sides: Sequence[Sequence[int]]) -> None:
        if tuple(tuple(team) for team in sides) != self.league.teams.sides:
            raise ConfigError(
                f"the matches in {self._view.parent} are between teams of the sides {sides}, and now they would be "
                f"between {self.league.teams.sides}: give the same teams, or begin another league"
            )

    def _reconfigure(self, change: Nest) -> None:
        """The settings are the constructor's, which may be others than last time, with all changes since."""
        joined = merged(self._change, change)
        try:
            self.league.configure(changed(self.league.settings, change))
        except LudusError as error:
            _LOG.warning("a change of the rules does not fit the settings of today, and is left out: %s", error)
            return
        self._change = joined

    def _do(self, command: str, *args: Any) -> Any:
        """With the lock: write it down, then do it. What is refused is refused again when it is read."""
        self._log.append({"do": command, "args": list(args), "rng": save_rng(self.league.rng)})
        try:
            done = COMMANDS[command](self.league, *args)
            if command == "configure":
                self._change = merged(self._change, args[0])
            return done
        finally:
            if self._log.is_grown:
                record = {"do": "league", "league": self.league.save(), "change": self._change}
                self._log.take_snapshot([record])

    def _expire(self) -> None:
        now = self._clock.now()
        while self._since:
            match, since = next(iter(self._since.items()))
            if now - since < self._match_timeout_s:
                return
            owner = self.league.owner_of(match)
            seen = self._seen.get(owner, since) if owner is not None else since
            is_alive = now - seen < self._match_timeout_s
            if is_alive and now - self._began.get(match, since) < _LIVE_TIMEOUTS * self._match_timeout_s:
                self._began.setdefault(match, since)
                del self._since[match]
                self._since[match] = seen  # to the end: looked at again when its owner has been silent for as long
                continue
            self._num_expired += bool(self._do("abort", match))
            self._forget(match)

    def _forget(self, match: str) -> None:
        self._since.pop(match, None)
        self._began.pop(match, None)

    def _note_call(self, owner: str | None) -> None:
        """A process that calls is alive, and so are the matches that it plays."""
        if not owner:
            return
        self._seen[owner] = self._clock.now()
        if len(self._seen) > _MOST_SEEN:
            playing = self.league.owners
            self._seen = {each: seen for each, seen in self._seen.items() if each in playing}

    # -- matches

    @register
    def request_match(self, learner: str) -> Nest:
        """For a learner, by its rules: `{"id", "players", "learner"}`."""
        return self.request_matches(learner, 1)[0]

    @register
    def request_matches(self, learner: str, num: int, owner: str = "") -> list[Nest]:
        """Several at once. `owner` names the process that plays them: see `release`."""
        expect(str, learner=learner, owner=owner)
        expect_number_of_matches(num)
        with self._lock:
            self._note_call(owner)
            self._expire()
            return self._begin(self.league.choose_matches(learner, num, owner=owner))

    @register
    def request_evaluation(self, names: list[str] | None = None, owner: str = "") -> Nest:
        """The pair that has met least, of all or of those named; nobody learns."""
        return self.request_evaluations(1, names, owner)[0]

    @register
    def request_evaluations(self, num: int, names: list[str] | None = None, owner: str = "") -> list[Nest]:
        """Several at once."""
        expect(str, owner=owner)
        expect_number_of_matches(num)
        if names is not None:
            expect_names(names)
        with self._lock:
            self._note_call(owner)
            self._expire()
            return self._begin(self.league.choose_evaluations(num, names, owner=owner))

    @register
    def request_for(
        self, name: str | None = None, role: str | None = None, owner: str = "", without: list[str] | None = None
    ) -> Nest:
        """A match of this player, or of one in this role: its opponents are chosen here, and not from `without`."""
        left_out = frozenset(without or ())
        expect(str, owner=owner, **{f"without_{number}": each for number, each in enumerate(left_out)})
        expect((str, type(None)), name=name, role=role)
        if (name is None) == (role is None):
            raise DataError("say either which player, or which role, is to play")
        with self._lock:
            self._note_call(owner)
            self._expire()
            found = self.league.in_role(str(role), without=left_out) if name is None else str(name)
            return self._begin([self.league.choose_for(found, owner=owner, without=left_out)])[0]

    @register
    def request_named(self, names: list[str], owner: str = "") -> Nest:
        """A match of these players, by side, from which nobody learns."""
        expect(str, owner=owner)
        expect_names(names)
        with self._lock:
            self._note_call(owner)
            self._expire()
            return self._begin([self.league.choose_named(names, owner=owner)])[0]

    def _begin(self, matches: Sequence[Match]) -> list[Nest]:
        rows = [[each.id, [player.name for player in each.players], each.learner, each.owner] for each in matches]
        self._do("begin", rows)
        for each in matches:
            self._since[each.id] = self._clock.now()
        return [
            {"id": each.id, "players": [player_to_nest(player) for player in each.players], "learner": each.learner}
            for each in matches
        ]

    @register
    def report_result(self, match: str, scores: list[float]) -> bool:
        """Scores by side. Whether it was counted: false for one that was reported before, aborted, or is unknown."""
        return self.report_series([[match, [scores]]])[0]

    @register
    def report_series(self, results: list[Nest]) -> list[bool]:
        """Of each match its id and its games, each the scores by side; which were counted, as in `report_result`.

        A match without a game is aborted. What cannot be a result raises `DataError` when the others have been counted;
        its match is still in flight, so that it can be reported as it was.
        """
        expect((list, tuple), results=results)
        found: list[tuple[str, list[list[float]]]] = []
        refused: list[DataError] = []
        with self._lock:
            for each in results:
                try:
                    match, games = result_of(each)
                    self.league.check_series(match, games)
                except DataError as error:
                    refused.append(error)
                else:
                    found.append((match, games))
            for owner in {self.league.owner_of(match) for match, _ in found}:
                self._note_call(owner)
            counted: list[bool] = self._do("report", [[match, games] for match, games in found]) if found else []
            for match, _ in found:
                self._forget(match)
            self._num_reported += sum(counted)
            self._num_repeated += len(counted) - sum(counted)
            if self._clock.now() - self._viewed >= _VIEW_EVERY_S:
                self._write_view()
        if refused:
            raise refused[0] if not found else _others_counted(refused, len(results))
        return counted

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """What a person has changed is seen at once, whether or not matches end."""
        yield
        self._write_view()

    def _write_view(self) -> None:
        """For those who only look: what it costs them if it cannot be written is no reason to stop a league."""
        began = self._clock.now()
        try:
            write_view(self._view, self.league, game=self._game, stats=self._stats())
        except (OSError, DataError) as error:  # DataError: the mixture has no solution
            _LOG.warning("%s cannot be written: %s. The league goes on", self._view, error)
        self._viewed = self._clock.now() + 20.0 * (self._clock.now() - began)  # a twentieth of the time at most

    @register
    def keep(self, owner: str) -> None:
        """Its process still plays: its matches last on, up to six times the time-out."""
        expect(str, owner=owner)
        with self._lock:
            self._note_call(owner)

    @register
    def release(self, owner: str) -> int:
        """A process plays nothing: what it was playing is aborted. How many matches that were."""
        expect(str, owner=owner)
        with self._lock:
            return self._release(owner)

    def _release(self, owner: str) -> int:
        owned = self.league.owned(owner)
        for match in owned:
            self._do("abort", match)
            self._forget(match)
        return len(owned)

    @register
    def start_process(self, owner: str) -> int:
        """`release`, by a process that has been started: how often it was, this time included."""
        expect(str, owner=owner)
        with self._lock:
            self._release(owner)
            return int(self._do("start_process", owner))

    @register
    def abort_match(self, match: str) -> bool:
        """It has no result. Whether it was in flight."""
        expect(str, match=match)
        with self._lock:
            self._forget(match)
            return bool(self._do("abort", match))

    @register
    def can_evaluate(self) -> bool:
        """Whether there are two players that can meet."""
        with self._lock:
            return self.league.can_evaluate

    # -- learners

    @register
    def advance(self, name: str, step: int, version: int | None = None) -> Nest:
        """`League.advance`: `{"snapshot", "num_resets", "total_steps"}`."""
        expect(str, name=name)
        expect(int, step=step)
        expect((int, type(None)), version=version)
        with self._lock:
            found: Advance = self._do("advance", name, step, version)
        snapshot = None if found.snapshot is None else player_to_nest(found.snapshot)
        return {"snapshot": snapshot, "num_resets": found.num_resets, "total_steps": found.total_steps}

    @register
    def next_learner(self, part: int = 0, num_parts: int = 1) -> Nest:
        """Whose turn it is, where learners take turns: of this part of them, a player or `None`."""
        expect_part(part, num_parts)
        with self._lock:
            player = self.league.next_learner(part, num_parts)
            return None if player is None else player_to_nest(player)

    # -- players

    @register
    def add_player(self, player: Nest) -> None:
        """`League.add`: its fields, by name."""
        player_of(player)  # before it is in the log
        with self._lock, self._shown():
            self._do("add", player)

    @register
    def snapshot(self, name: str, version: int | None = None) -> Nest:
        """`League.snapshot`, whatever the rules say."""
        expect(str, name=name)
        expect((int, type(None)), version=version)
        with self._lock, self._shown():
            return player_to_nest(self._do("snapshot", name, version))

    @register
    def freeze_player(self, name: str) -> Nest:
        """`League.freeze`."""
        expect(str, name=name)
        with self._lock, self._shown():
            return player_to_nest(self._do("freeze", name))

    @register
    def update_config(self, change: Nest) -> None:
        """Other rules, from the next match on: what `settings.changed` takes. They stay when it is started again."""
        with self._lock:
            changed(self.league.settings, change)  # before it is in the log
            self._do("configure", change)

    @register
    def promote(self, name: str | None) -> None:
        """This player is the champion from here on; `None`: the one that is rated highest."""
        expect((str, type(None)), name=name)
        with self._lock, self._shown():
            self._do("promote", name)

    @register
    def champion(self) -> str | None:
        """Who was promoted last, if it is still there."""
        with self._lock:
            return self.league.champion

    @register
    def remove_player(self, name: str) -> None:
        """`League.remove`."""
        expect(str, name=name)
        with self._lock, self._shown():
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
    def payoff(self, names: list[str] | None = None, side: int | None = None) -> Nest:
        """`{"players", "win_rate", "games"}`, the last two `[player, opponent]`: of all sides, or the player's in one.

        Where there are teams, a side is a team's.
        """
        if names is not None:
            expect_names(names)
        expect((int, type(None)), side=side)
        with self._lock:
            num_sides = self.league.teams.num
            if side is not None and not 0 <= side < num_sides:
                raise DataError(f"side={side}: results are of the sides 0 to {num_sides - 1}, or of all without one")
            found = [player.name for player in self.league.players if names is None]
            found += [self.league.player(name).name for name in names or ()]
            win_rate, games = self.league.payoff.results(found, ANY_SIDE if side is None else side)
            return {"players": found, "win_rate": win_rate, "games": games.tolist()}

    @register
    def mixture(self) -> dict[str, float]:
        """`League.mixture`: probabilities by name."""
        with self._lock:
            return self.league.mixture()

    @register
    def num_missing_evaluations(self) -> int:
        """`League.num_missing_evaluations`."""
        with self._lock:
            return self.league.num_missing_evaluations()

    @register
    def statistics(self) -> dict[str, Any]:
        """A `LeagueStats`."""
        with self._lock:
            return self._stats()

    def _stats(self) -> dict[str, Any]:
        return dataclasses.asdict(
            LeagueStats(
                num_players=len(self.league.players),
                num_learners=len(self.league.learners),
                num_in_flight=self.league.payoff.num_in_flight,
                num_steps=self.league.total_steps,
                num_reported=self._num_reported,
                num_repeated=self._num_repeated,
                num_expired=self._num_expired,
            )
        )

    def stats(self) -> dict[str, Any]:
        """For `ludus ctl`."""
        return self.statistics()

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self.league.players:
                self._write_view()
            self._log.close()


def _others_counted(refused: Sequence[DataError], num_results: int) -> DataError:
    return DataError(f"of {num_results} results {len(refused)} could not be counted; the others were. {refused[0]}")
