"""Looking ahead on many boards at once, against a plain recursion on one."""

import itertools

import numpy as np
import pytest

from ludus.core import HasHeuristic
from ludus.envs.boards import lookahead
from ludus.envs.boards.connect_four import ConnectFour
from ludus.envs.boards.lookahead import DISCOUNT, Lookahead, unique_states
from ludus.envs.boards.openings import open_boards
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.errors import ConfigError


def plain_value(rules, state, action, depth):
    """What a move leads to for the player who makes it, one board at a time."""
    player = rules.to_move(state)[0]
    after, reward, over = rules.step(state, np.array([action]))
    if over[0]:
        return reward[0, player]
    if depth == 1:
        guess = -rules.heuristic(after)[0] if isinstance(rules, HasHeuristic) else 0.0
    else:
        guess = -max(plain_value(rules, after, reply, depth - 1) for reply in np.flatnonzero(rules.legal(after)[0]))
    return reward[0, player] + DISCOUNT * guess


@pytest.mark.parametrize(
    ("rules", "depth"), [(ConnectFour(), 1), (ConnectFour(), 2), (ConnectFour(), 3), (TicTacToe(), 4)]
)
def test_values_are_those_of_plain_minimax(rules, depth):
    state = open_boards(rules, 3, np.arange(12), rules.max_moves - 5)
    values = Lookahead(rules, depth=depth).values(state)
    legal = rules.legal(state)
    assert np.array_equal(np.isfinite(values), legal)
    for board, action in zip(*legal.nonzero(), strict=True):
        expected = plain_value(rules, state[board : board + 1], action, depth)
        assert values[board, action] == pytest.approx(expected, abs=1e-5)


def test_values_do_not_depend_on_how_many_boards_are_looked_at_together(monkeypatch):
    rules = ConnectFour()
    state = open_boards(rules, 4, np.arange(40), 30)
    search = Lookahead(rules, depth=4)
    values = search.values(state)
    assert np.array_equal(values[7:8], search.values(state[7:8]))
    monkeypatch.setattr(lookahead, "_BLOCK", 9)
    assert np.array_equal(values, search.values(state))
    assert search.values(state[:0]).shape == (0, 7)


def test_a_sooner_win_is_better_and_a_later_loss():
    rules = ConnectFour()
    state = rules.start(1)
    for move in (0, 6, 0, 6, 1):  # the other is to move, and loses to three in column 0 unless ...
        state, _, _ = rules.step(state, np.array([move]))
    state, _, _ = rules.step(state, np.array([6]))  # three of its own
    values = Lookahead(rules, depth=3).values(state)[0]
    assert values.argmax() == 6, "four in column 6 must be prevented"
    for move in (6, 5):
        state, _, _ = rules.step(state, np.array([move]))
    state, _, _ = rules.step(state, np.array([0]))  # three in column 0
    state, _, _ = rules.step(state, np.array([5]))  # which is overlooked
    values = Lookahead(rules, depth=4).values(state)[0]
    assert values[0] == 1.0
    assert (np.delete(values, 0) < 1.0).all()


def test_the_heuristic_counts_lines_that_are_open():
    rules = ConnectFour()
    state = open_boards(rules, 1, np.arange(60), 34)
    points = [
        plain_heuristic(cells, mover) for cells, mover in zip(rules.cells(state), rules.to_move(state), strict=True)
    ]
    assert np.array_equal(rules.heuristic(state) * 512, points)
    assert len(set(points)) > 20


def plain_heuristic(cells, mover):
    def points(own):
        found = 3 * np.count_nonzero(cells[:, 3] == own)
        for row, column, (up, right) in itertools.product(range(6), range(7), ((0, 1), (1, 0), (1, 1), (1, -1))):
            places = [(row + step * up, column + step * right) for step in range(4)]
            if all(0 <= y < 6 and 0 <= x < 7 and cells[y, x] in (0, own) for y, x in places):
                found += {2: 2, 3: 5}.get(sum(cells[place] == own for place in places), 0)
        return found

    return points(1 + mover) - points(2 - mover)


def test_states_that_are_alike_are_looked_at_once():
    state = np.array([[3, 1, 2], [0, 1, 2], [3, 1, 2], [5, 5, 5], [0, 1, 2]])
    first, back = unique_states(state)
    assert sorted(first.tolist()) == [0, 1, 3]
    assert np.array_equal(state[first][back], state)


def test_only_games_of_two_players_are_looked_ahead_in():
    class Alone(TicTacToe):
        num_players = 1

    with pytest.raises(ConfigError, match="has 1 players"):
        Lookahead(Alone(), depth=2)
    with pytest.raises(ConfigError, match="at least 1 move"):
        Lookahead(TicTacToe(), depth=0)
