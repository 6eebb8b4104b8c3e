from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ludus import envs, errors
from ludus.clock import FakeClock
from ludus.league.bots import make_bot
from ludus.league.players import Player
from ludus.league.view import read_view
from ludus.page import match_record, tables
from ludus.page.board_game import BoardGame
from ludus.page.opponents import board_game_of, opponents_of
from ludus.page.tables import Phase, Table, Tables

from .leagues import make_league

GAME = "board:tic_tac_toe"


class Bots:
    """A folder without a league: opponents that need no network."""

    def listed(self):
        return [(Player("minimax", role="bot", model="minimax"), "bot")]

    def open(self, name: str, *, search: int = 0):
        player = Player(name, role="bot", model=name)
        return player, make_bot(name, GAME)

    def rules(self):
        return envs.rules(GAME)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def at(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    monkeypatch.setattr(tables, "opponents_of", lambda folder: Bots())
    made = Tables(clock)
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def open_table(at: Tables, folder: Path, *, side: int = 0, opponent: str = "minimax") -> Table:
    table = at.open(folder, opponent=opponent, side=side, person="alice")
    until(lambda: table.phase in (Phase.PLAYING, Phase.OVER, Phase.FAILED))
    return table


def play_out(at: Tables, table: Table) -> None:
    while table.phase is not Phase.OVER:
        assert table.game is not None
        at.move(table.id, int(table.game.legal.argmax()))
        until(lambda: table.phase in (Phase.PLAYING, Phase.OVER))
    until(lambda: not table.is_counting)


def test_a_game_is_played_to_its_end_by_either_side(at: Tables, tmp_path: Path) -> None:
    for side in (0, 1):
        table = open_table(at, tmp_path, side=side)
        assert table.game is not None
        assert table.game.num_moves == side
        play_out(at, table)
        assert table.game.rewards[side] <= 0.0
        assert table.record == ""  # no league


def test_moves_that_are_not_legal_or_not_ones_turn_change_nothing(at: Tables, tmp_path: Path) -> None:
    table = open_table(at, tmp_path)
    at.move(table.id, 4)
    until(lambda: table.phase is Phase.PLAYING)
    before = table.game.cells.copy()
    for action in (4, -1, 9):
        with pytest.raises(errors.ConfigError, match="not legal"):
            at.move(table.id, action)
    assert np.array_equal(table.game.cells, before)
    play_out(at, table)
    with pytest.raises(errors.ConfigError, match="not your turn: the game is over"):
        at.move(table.id, 0)


def test_an_opponent_that_cannot_play_is_said_at_the_table(at: Tables, tmp_path: Path) -> None:
    table = open_table(at, tmp_path, opponent="nobody")
    assert table.phase is Phase.FAILED
    assert "there is no bot 'nobody'" in table.problem


def test_a_game_that_is_left_alone_is_given_up(at: Tables, clock: FakeClock, tmp_path: Path) -> None:
    table = open_table(at, tmp_path)
    clock.advance(800.0)
    assert at.find(table.id) is table
    clock.advance(800.0)
    assert at.find(table.id) is table
    clock.advance(1000.0)
    assert at.find(table.id) is None
    with pytest.raises(errors.ConfigError, match="not there any more"):
        at.move(table.id, 0)


def test_there_are_only_so_many_games_at_a_time(at: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_TABLES", 2)
    open_table(at, tmp_path)
    second = open_table(at, tmp_path)
    with pytest.raises(errors.Overloaded):
        at.open(tmp_path, opponent="minimax", side=0, person="alice")
    at.leave(second.id)
    open_table(at, tmp_path)


def test_a_game_in_a_league_counts_as_a_match_of_the_person(tmp_path: Path) -> None:
    folder = make_league(tmp_path, "three", game=GAME, rounds=1, matches=4)
    at = Tables()
    try:
        table = open_table(at, folder, opponent="random")
        play_out(at, table)
        assert table.record.startswith("Counted: your rating is ")
        view = read_view(folder / "league" / "view.json")
        alice = next(each for each in view["players"] if each["name"] == "alice")
        assert (alice["role"], alice["games"]) == ("human", 1.0)
        assert view["recent"][-1]["players"] == ["alice", "random"]
        taken = at.open(folder, opponent="random", side=0, person="main")
        until(lambda: taken.phase is not Phase.SETTING_UP)
        assert "'main' is a player of this league" in taken.problem
        main = open_table(at, folder, opponent="main", side=1)  # a network that has learnt nothing
        assert main.phase is Phase.PLAYING
    finally:
        at.close()


def test_a_match_in_flight_is_aborted_when_its_game_is_left(
    at: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "league").mkdir()
    aborted = []
    monkeypatch.setattr(match_record, "begin", lambda folder, names, person: "17")
    monkeypatch.setattr(match_record, "abort", lambda folder, match: aborted.append(match))
    table = open_table(at, tmp_path)
    assert table.match == "17"
    at.leave(table.id)
    until(lambda: aborted == ["17"])


def test_a_match_is_aborted_when_its_game_fails_is_left_at_once_or_the_page_ends(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "league").mkdir()
    aborted: list[str] = []
    started, may_begin = threading.Event(), threading.Event()
    monkeypatch.setattr(tables, "opponents_of", lambda folder: Bots())
    monkeypatch.setattr(match_record, "abort", lambda folder, match: aborted.append(match))

    def begin(folder: Path, names: list[str], person: str) -> str:
        started.set()
        assert may_begin.wait(60.0)
        return person

    monkeypatch.setattr(match_record, "begin", begin)
    at = Tables(clock)
    early = at.open(tmp_path, opponent="minimax", side=0, person="early")
    assert started.wait(60.0)
    at.leave(early.id)
    may_begin.set()
    until(lambda: aborted == ["early"])
    failed = at.open(tmp_path, opponent="minimax", side=0, person="failed")
    until(lambda: failed.phase is Phase.PLAYING)
    monkeypatch.setattr(BoardGame, "reply", lambda game: 1 / 0)
    at.move(failed.id, 0)
    until(lambda: aborted == ["early", "failed"])
    monkeypatch.undo()
    monkeypatch.setattr(tables, "opponents_of", lambda folder: Bots())
    monkeypatch.setattr(match_record, "abort", lambda folder, match: aborted.append(match))
    monkeypatch.setattr(match_record, "begin", begin)
    last = at.open(tmp_path, opponent="minimax", side=0, person="last")
    until(lambda: last.phase is Phase.PLAYING)
    at.close()
    until(lambda: aborted == ["early", "failed", "last"])


def test_a_game_that_is_left_while_the_opponent_thinks_has_no_result(
    at: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "league").mkdir()
    counted, go_on, is_aborted = [], threading.Event(), threading.Event()
    monkeypatch.setattr(match_record, "begin", lambda folder, names, person: "17")
    monkeypatch.setattr(match_record, "abort", lambda folder, match: is_aborted.set())
    monkeypatch.setattr(match_record, "finish", lambda *given: counted.append(given))
    table = open_table(at, tmp_path)
    monkeypatch.setattr(table.game, "reply", lambda: go_on.wait(60.0))
    monkeypatch.setattr(table.game, "rewards", [1.0, -1.0])
    monkeypatch.setattr(type(table.game), "is_over", property(lambda game: go_on.is_set()))
    at.move(table.id, 4)
    at.leave(table.id)
    assert is_aborted.wait(60.0)
    go_on.set()
    at.close()
    at._threads.shutdown(wait=True)
    assert counted == []


def test_two_people_may_play_the_same_opponent_which_moves_for_one_at_a_time(
    at: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving, most = [], []

    def reply(game: BoardGame) -> None:
        moving.append(game)
        most.append(len(moving))
        original(game)
        moving.remove(game)

    original = BoardGame.reply
    monkeypatch.setattr(BoardGame, "reply", reply)
    both = [open_table(at, tmp_path) for _ in range(2)]
    for cell in (0, 4):
        for table in both:
            if table.phase is Phase.PLAYING and table.game.legal[cell]:
                at.move(table.id, cell)
        until(lambda: all(table.phase is not Phase.THINKING for table in both))
    assert both[0].game is not both[1].game
    assert set(most) == {1}


def test_a_league_hears_that_a_game_is_still_played(
    at: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "league").mkdir()
    kept = []
    monkeypatch.setattr(match_record, "begin", lambda folder, names, person: "17")
    monkeypatch.setattr(match_record, "abort", lambda folder, match: None)
    monkeypatch.setattr(match_record, "keep", kept.append)
    table = open_table(at, tmp_path)
    at.keep()
    assert kept == [tmp_path]
    at.leave(table.id)
    until(lambda: table.match is None)
    at.keep()
    assert kept == [tmp_path]


def test_games_that_are_over_make_room(at: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_TABLES", 1)
    first = open_table(at, tmp_path)
    play_out(at, first)
    second = open_table(at, tmp_path)
    assert at.find(first.id) is None
    assert at.find(second.id) is second


def test_a_result_that_cannot_be_counted_is_said(at: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "league").mkdir()
    monkeypatch.setattr(match_record, "begin", lambda *given: "17")
    for answer, said in (
        (None, "given the match up"),
        (errors.Unreachable("the league is gone"), "the league is gone"),
    ):

        def finish(*given, answer=answer):
            if answer is not None:
                raise answer

        monkeypatch.setattr(match_record, "finish", finish)
        table = open_table(at, tmp_path)
        play_out(at, table)
        assert said in table.record


def test_board_games_are_known_by_their_names_alone(tmp_path: Path) -> None:
    for env, expected in (("board:connect_four", True), ("mine.py:make", True), ("CartPole-v1", False)):
        folder = tmp_path / env.replace(":", "-")
        folder.mkdir()
        (folder / "config.json").write_text(f'{{"train": {{"env": "{env}"}}}}')
        assert (board_game_of(folder) == env) is expected
    assert board_game_of(tmp_path / "nowhere") is None
    assert next(player.name for player, _ in opponents_of(tmp_path).listed()) == "policy"


def test_a_side_that_is_not_there_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="sides 0 to 1"):
        BoardGame(envs.rules(GAME), make_bot("random", GAME), human=2, is_greedy=False)
