"""Bots: by their names, and how they play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import envs
from ludus.envs.boards.openings import open_boards
from ludus.envs.boards.perfect_play import PerfectPlay
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.errors import ConfigError
from ludus.league import arena
from ludus.league.bots import LookaheadBot, RandomBot, is_bot, make_bot
from ludus.league.players import Player
from ludus.learn.search.settings import SearchSettings

TIC_TAC_TOE, CONNECT_FOUR = "board:tic_tac_toe", "board:connect_four"


def act(bot: Any, boards: Any, *, seed: int = 0, greedy: bool = False) -> Any:
    first = np.zeros(len(boards), np.bool_)
    action, logp, state = bot.act(None, None, first, np.random.default_rng(seed), greedy=greedy, boards=boards)
    assert not logp.any()
    assert state is None
    return action


def test_bots_are_made_by_their_names(tmp_path: Path) -> None:
    assert isinstance(make_bot("random", CONNECT_FOUR), RandomBot)
    for name, depth in (("alphabeta", 4), ("alphabeta:1", 1), ("alphabeta:6", 6)):
        bot: Any = make_bot(name, CONNECT_FOUR, {"random_moves": 2})
        assert isinstance(bot, LookaheadBot)
        assert bot.search.depth == depth  # type: ignore[attr-defined]
    file = tmp_path / "mine.py"
    file.write_text("class Mine:\n    state_spec = None\n    needs_boards = True\n    def act(self): ...\n")
    assert make_bot(f"{file}:Mine", CONNECT_FOUR).needs_boards  # type: ignore[attr-defined]
    assert all(is_bot(name) for name in ("random", "minimax", "alphabeta", "alphabeta:2", "mine.py:make"))
    assert not is_bot("main")


@pytest.mark.parametrize(
    ("name", "game", "said"),
    [
        ("alphabta", CONNECT_FOUR, "alphabeta"),
        ("alphabeta:0", CONNECT_FOUR, "1 to 12"),
        ("alphabeta:deep", CONNECT_FOUR, "1 to 12"),
        ("alphabeta:", CONNECT_FOUR, "1 to 12"),
        ("random:3", CONNECT_FOUR, "no settings"),
        ("minimax:3", CONNECT_FOUR, "no settings"),
        ("minimax", CONNECT_FOUR, "too large"),
        ("alphabeta:4", "CartPole-v1", "has none: only board games"),
        ("minimax", "CartPole-v1", "has none: only board games"),
    ],
)
def test_what_cannot_be_a_bot_is_refused_with_what_to_do(name: str, game: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_bot(name, game)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("np.full(len(first), 77), 0.0, state", r"bot.py:make' cannot play: it chose 77; legal are \[1, 2"),
        ("np.full(len(first), -1), 0.0, state", "it chose -1"),
        ("np.zeros(len(first), int), 0.0, state", "it chose 0; legal"),
        ("np.zeros(1, int), 0.0, state", "one is needed for each of 2"),
        ("np.full(len(first), 1.5), 0.0, state", "must be integers"),
        ("None", "it must return"),
    ],
)
def test_what_a_bot_of_ones_own_returns_is_checked_and_the_bot_is_named(
    tmp_path: Path, returned: str, said: str
) -> None:
    path = tmp_path / "bot.py"
    act = f"    def act(self, obs, state, first, rng, mask=None, *, greedy=False):\n        return {returned}\n"
    path.write_text(f"import numpy as np\nclass Bot:\n    state_spec = None\n{act}\ndef make():\n    return Bot()\n")
    bot = make_bot(f"{path}:make", TIC_TAC_TOE)
    mask = np.ones((2, 9), bool)
    mask[:, 0] = False
    with pytest.raises(ConfigError, match=said):
        bot.act(np.zeros((2, 3, 3, 2), np.float32), None, np.ones(2, bool), np.random.default_rng(0), mask)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def make(): return 5", "returned a int"),
        ("def make(x): return 5", "without arguments"),
        ("make = 5", "must be a function"),
    ],
)
def test_what_makes_no_bot_is_refused(tmp_path: Path, code: str, said: str) -> None:
    path = tmp_path / "bot.py"
    path.write_text(code)
    with pytest.raises(ConfigError, match=said):
        make_bot(f"{path}:make", TIC_TAC_TOE)


def test_players_that_could_not_be_played_are_refused() -> None:
    with pytest.raises(ConfigError, match="from 0 to 100,000"):
        Player("main", search=4_000_000_000)
    with pytest.raises(ConfigError, match="no network to search with"):
        Player("random", role="bot", model="random", search=4)
    with pytest.raises(ConfigError, match="at most 128"):
        Player("x" * 300)
    with pytest.raises(ConfigError, match="at most 100,000"):
        SearchSettings(simulations=4_000_000_000)


def test_a_bot_that_is_shown_no_boards_says_so() -> None:
    with pytest.raises(ConfigError, match="boards=states"):
        make_bot("alphabeta:1", TIC_TAC_TOE).act(None, None, np.zeros(1, np.bool_), np.random.default_rng(0))


def test_moves_are_legal_and_among_the_best_and_equally_good_ones_are_all_played() -> None:
    rules = TicTacToe()
    bot = make_bot("minimax", TIC_TAC_TOE)
    boards = open_boards(rules, 1, np.arange(300), 7)
    values = PerfectPlay(rules).values(boards)
    best = values == values.max(1, keepdims=True)
    played = np.zeros_like(best)
    for seed in range(60):
        played[np.arange(300), act(bot, boards, seed=seed)] = True
    assert not (played & ~best).any()
    assert played.sum() > 0.99 * best.sum()
    greedy = act(bot, boards, greedy=True)
    assert np.array_equal(greedy, best.argmax(1))


def test_minimax_loses_no_game_of_tic_tac_toe() -> None:
    found = arena.play_arena(["minimax", "random", "alphabeta:3"], game=TIC_TAC_TOE, num_games=60, seed=1)
    for other in ("random", "alphabeta:3"):
        record = found.records["minimax", other]
        assert record.losses == 0
        assert record.wins > 0


def test_looking_further_ahead_wins_at_connect_four() -> None:
    found = arena.play_arena(["random", "alphabeta:1", "alphabeta:4"], game=CONNECT_FOUR, num_games=30, seed=1)
    assert found.records["alphabeta:4", "random"].win_rate > 0.95
    assert found.records["alphabeta:4", "alphabeta:1"].win_rate > 0.6
    assert found.records["alphabeta:1", "random"].win_rate > 0.8


def test_games_of_ones_own_have_such_bots_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from ludus.envs.boards.tic_tac_toe import TicTacToe\ndef make():\n    return TicTacToe()\n")
    game = f"{file}:make"
    rules: Any = envs.rules(game)
    assert act(make_bot("alphabeta:2", game), rules.start(3)).shape == (3,)
