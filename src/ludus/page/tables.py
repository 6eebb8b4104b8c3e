"""The games that persons play here: what is slow is done in threads of its own, and what is left is given up in time.

tables = site.part(Tables)
table = tables.open(folder, opponent="main-3", side=0, person="alice", search=0)
tables.move(table.id, 3)
tables.find(table.id).phase
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import enum
import logging
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from ludus.clock import SYSTEM, Clock
from ludus.errors import ConfigError, LudusError, Overloaded
from ludus.league.folder import FOLDER
from ludus.page import match_record
from ludus.page.board_game import BoardGame
from ludus.page.opponents import Opponents, made_at, opponents_of

__all__ = ["Phase", "Table", "Tables"]

_LOG = logging.getLogger(__name__)
_MOST_TABLES = 64
_MOST_TRIALS = 4  # whose networks are kept
_IDLE_S = 900.0
_TEND_EVERY_S = 60.0
_CLOSE_WITHIN_S = 3.0


class Phase(enum.StrEnum):
    """How far a game is.

    setting_up ──▶ playing ⇄ thinking ──▶ over
        └────────────┴──────────┴───────▶ failed
    """

    SETTING_UP = "setting up"
    PLAYING = "playing"  # the person's turn
    THINKING = "thinking"  # the opponent's
    OVER = "over"
    FAILED = "failed"


_ENDED = (Phase.OVER, Phase.FAILED)


class Table:
    """One game. `lock` is held while it changes."""

    def __init__(self, folder: Path, opponent: str, side: int, person: str, search: int) -> None:
        self.id = secrets.token_urlsafe(9)
        self.folder = folder
        self.opponent = opponent
        self.side = side
        self.person = person
        self.search = search
        self.lock = threading.Lock()
        self.phase = Phase.SETTING_UP
        self.problem = ""  # why it failed
        self.record = ""  # what became of its result
        self.is_counting = False  # that is not known yet
        self.game: BoardGame | None = None
        self.names: list[str] = []  # by side
        self.match: str | None = None  # in flight
        self.is_left = False
        self.seen = 0.0


class Tables:
    """A part of the site. Safe from any thread."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tables: dict[str, Table] = {}
        self._opponents: dict[tuple[Path, int], Opponents] = {}
        self._turns: dict[Path, threading.Lock] = {}  # a search is not for two games at once
        self._threads = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="ludus-table")
        self._closed = threading.Event()
        self._tender: threading.Thread | None = None

    def opponents(self, folder: Path) -> Opponents:
        key = folder, made_at(folder)
        with self._lock:
            found = self._opponents.pop(key, None) or opponents_of(folder)
            self._opponents[key] = found  # the last one used goes last
            if len(self._opponents) > _MOST_TRIALS:
                del self._opponents[next(iter(self._opponents))]
            return found

    def open(self, folder: Path, *, opponent: str, side: int, person: str, search: int = 0) -> Table:
        """Comes back at once; what follows is seen at the table. Raises `Overloaded` if there are too many."""
        self.sweep()
        table = Table(folder, opponent, side, person, search)
        table.seen = self._clock.now()
        with self._lock:
            if len(self._tables) >= _MOST_TABLES:
                over = [id for id, each in self._tables.items() if each.phase in _ENDED]
                if not over:
                    raise Overloaded(f"{_MOST_TABLES} games are being played here; end one, or try again later.")
                del self._tables[over[0]]
            self._tables[table.id] = table
            if self._tender is None:
                self._tender = threading.Thread(target=self._tend, name="ludus-table-tender", daemon=True)
                self._tender.start()
        self._do(table, self._set_up)
        return table

    def find(self, id: str) -> Table | None:
        self.sweep()
        with self._lock:
            table = self._tables.get(id)
        if table is not None:
            table.seen = self._clock.now()
        return table

    def move(self, id: str, action: int) -> None:
        """The person's move; the reply follows. Raises `ConfigError` if it cannot be made now."""
        table = self.find(id)
        if table is None:
            raise ConfigError("This game is not there any more: it was left for too long. Start another one.")
        with table.lock:
            if table.game is None or table.phase is not Phase.PLAYING:
                raise ConfigError(f"It is not your turn: the game is {table.phase}.")
            table.game.play(action)
            table.phase = Phase.THINKING
        self._do(table, self._reply)

    def leave(self, id: str) -> None:
        """The game is given up; its match has no result."""
        with self._lock:
            table = self._tables.pop(id, None)
        if table is not None:
            self._give_up(table)

    def sweep(self) -> None:
        """Give up the games that nobody has looked at for long."""
        now = self._clock.now()
        with self._lock:
            idle = [table.id for table in self._tables.values() if now - table.seen > _IDLE_S]
        for id in idle:
            self.leave(id)

    def keep(self) -> None:
        """Say to each league that its games are still played here, or it would give up those that take long."""
        with self._lock:
            folders = {table.folder for table in self._tables.values() if table.match is not None}
        for folder in folders:
            try:
                match_record.keep(folder)
            except (LudusError, OSError) as error:  # it has ended: what becomes of the result is said at the table
                _LOG.debug("the league of %s does not hear that games are played: %s", folder, error)

    def _tend(self) -> None:
        """Also when no browser asks any more."""
        while not self._closed.wait(_TEND_EVERY_S):
            self.sweep()
            self.keep()

    def close(self) -> None:
        """Matches in flight are aborted, as far as that goes quickly; the league aborts the others in time."""
        self._closed.set()
        with self._lock:
            tables, self._tables = list(self._tables.values()), {}
        ends = [end for table in tables if (end := self._give_up(table)) is not None]
        self._threads.shutdown(wait=False)
        concurrent.futures.wait(ends, _CLOSE_WITHIN_S)

    def _give_up(self, table: Table) -> concurrent.futures.Future[None] | None:
        with table.lock:
            table.is_left = not table.is_counting  # what is being counted is counted
        return self._do(table, self._abort) if table.is_left and table.match is not None else None

    def _do(self, table: Table, what: Callable[[Table], None]) -> concurrent.futures.Future[None]:
        def run() -> None:
            try:
                what(table)
            except (LudusError, OSError) as error:
                self._fail(table, str(error))
            except Exception as error:
                _LOG.exception("a game against %s of %s failed", table.opponent, table.folder)
                self._fail(table, f"{type(error).__name__}: {error}. The log has more.")

        return self._threads.submit(run)

    def _fail(self, table: Table, problem: str) -> None:
        with table.lock:
            table.phase, table.problem = Phase.FAILED, problem
        with contextlib.suppress(LudusError, OSError):  # the league aborts it in time
            self._abort(table)

    def _set_up(self, table: Table) -> None:
        opponents = self.opponents(table.folder)
        rules = opponents.rules()
        player, policy = opponents.open(table.opponent, search=table.search)
        is_greedy = player.role != "bot"  # of moves that are as good a bot would always play the same
        seed = secrets.randbits(32)
        game = BoardGame(rules, policy, human=table.side, is_greedy=is_greedy, seed=seed)
        table.names = [table.person if side == table.side else table.opponent for side in range(rules.num_players)]
        if (table.folder / FOLDER).is_dir():
            table.match = match_record.begin(table.folder, table.names, table.person)
        if table.is_left:
            return self._abort(table)
        with table.lock:
            table.game, table.phase = game, Phase.THINKING
        return self._reply(table)

    def _reply(self, table: Table) -> None:
        game = table.game
        assert game is not None
        with self._turn_of(table.folder):
            game.reply()
        with table.lock:
            if table.is_left:  # while it was waited for: it has no result
                return
            if not game.is_over:
                table.phase = Phase.PLAYING
                return
            table.phase = Phase.OVER
            table.is_counting = table.match is not None or (table.folder / FOLDER).is_dir()
        if table.is_counting:
            record = self._record(table, game)
            with table.lock:
                table.record, table.is_counting = record, False

    def _turn_of(self, folder: Path) -> threading.Lock:
        with self._lock:
            return self._turns.setdefault(folder, threading.Lock())

    def _record(self, table: Table, game: BoardGame) -> str:
        """Count the result. What hinders that is said at the table: the game was played all the same."""
        match, table.match = table.match, None
        assert game.rewards is not None
        try:
            rating = match_record.finish(table.folder, match, table.names, table.person, game.rewards)
        except (LudusError, OSError) as error:
            return f"It was not counted: {error}"
        if rating is None:
            return "It was not counted: the league had given the match up after waiting for its result."
        return f"Counted: your rating is {rating[0]:.1f} ± {1.96 * rating[1]:.1f}."

    def _abort(self, table: Table) -> None:
        match, table.match = table.match, None
        if match is not None:
            match_record.abort(table.folder, match)
