"""The rules of the board games, against numbers and positions that are known."""

import numpy as np
import pytest

from ludus.envs.boards.connect_four import ConnectFour
from ludus.envs.boards.tic_tac_toe import TicTacToe


def expand(rules, state):
    """All boards after one more move, and which of these games are over."""
    board, action = np.nonzero(rules.legal(state))
    after, reward, over = rules.step(state[board], action)
    return after, reward, over


def played(rules, moves):
    """One board, its last rewards, and whether the game is over, after these moves."""
    state, reward, over = rules.start(1), np.zeros((1, 2), np.float32), np.zeros(1, np.bool_)
    for number, move in enumerate(moves):
        assert not over[0], f"the game was over before move {number}"
        assert rules.legal(state)[0, move]
        state, reward, over = rules.step(state, np.array([move]))
    return state, reward[0].tolist(), bool(over[0])


def test_tic_tac_toe_has_so_many_games_and_so_many_of_each_outcome():
    rules = TicTacToe()
    state, ended = rules.start(1), {1.0: 0, -1.0: 0, 0.0: 0}
    for _ in range(rules.max_moves):
        state, reward, over = expand(rules, state)
        for outcome in ended:
            ended[outcome] += int((reward[over, 0] == outcome).sum())
        state = state[~over]
    assert len(state) == 0
    assert ended == {1.0: 131184, -1.0: 77904, 0.0: 46080}  # 255168 in all


def test_connect_four_has_so_many_lines_of_play():
    rules = ConnectFour()
    state, counts = rules.start(1), []
    for _ in range(7):
        state, _, over = expand(rules, state)
        counts.append(len(state))
        state = state[~over]
    assert counts == [7, 49, 343, 2401, 16807, 117649, 823536]


@pytest.mark.parametrize(
    ("moves", "reward"),
    [
        ([0, 1, 0, 1, 0, 1, 0], [1, -1]),  # up
        ([0, 0, 1, 1, 2, 2, 3], [1, -1]),  # across, from the left edge
        ([6, 6, 5, 5, 4, 4, 3], [1, -1]),  # and from the right one
        ([0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3], [1, -1]),  # diagonally, rising to the right
        ([6, 5, 5, 4, 4, 3, 4, 3, 3, 0, 3], [1, -1]),  # and to the left
        ([0, 6, 0, 6, 0, 6, 1, 6], [-1, 1]),  # the second player wins, too
    ],
)
def test_four_in_a_line_win(moves, reward):
    state, got, over = played(ConnectFour(), moves)
    assert over
    assert got == reward
    _, before, was_over = played(ConnectFour(), moves[:-1])
    assert not was_over
    assert before == [0, 0]
    assert ConnectFour().to_move(state)[0] == len(moves) % 2


def test_a_line_does_not_run_over_the_edge():
    rules = ConnectFour()
    # three discs at the right end of the bottom row, and one at the left end of the row above
    state, _, over = played(rules, [4, 0, 5, 2, 6, 2, 0])
    assert not over
    assert rules.cells(state)[0, 4:].tolist() == [[1, 0, 2, 0, 0, 0, 0], [2, 0, 2, 0, 1, 1, 1]]


def test_games_end_where_a_plain_reading_of_the_board_says_so():
    rules, rng = ConnectFour(), np.random.default_rng(3)
    state = rules.start(200)
    while len(state):
        legal = rules.legal(state)
        action = np.argmax(rng.random(legal.shape) * legal, axis=1)
        mover = rules.to_move(state)
        state, reward, over = rules.step(state, action)
        cells = rules.cells(state)
        for board, player, points, is_over in zip(cells, mover, reward, over, strict=True):
            won = has_four(board == 1 + player)
            assert points[player] == (1 if won else 0)
            assert is_over == (won or board.all())
        state = state[~over]


def has_four(own):
    padded = np.pad(own, 3)
    places = [(row, column) for row in range(3, 9) for column in range(3, 10)]
    return any(
        all(padded[row + step * up, column + step * right] for step in range(4))
        for row, column in places
        for up, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    )


def test_a_full_board_is_a_draw_and_a_full_column_is_closed():
    rules = ConnectFour()
    state, _, over = played(rules, [3] * 6)
    assert not over
    assert rules.legal(state)[0].tolist() == [True, True, True, False, True, True, True]
    columns = [
        0,
        1,
        0,
        1,
        1,
        0,
        1,
        0,
        0,
        1,
        0,
        1,
        2,
        3,
        2,
        3,
        3,
        2,
        3,
        2,
        2,
        3,
        2,
        3,
        4,
        5,
        4,
        5,
        5,
        4,
        5,
        4,
        4,
        5,
        4,
        5,
    ]
    _, reward, over = played(rules, [*columns, 6, 6, 6, 6, 6, 6])
    assert over
    assert reward == [0, 0]


def test_the_observation_has_ones_own_plane_first():
    rules = ConnectFour()
    state, _, _ = played(rules, [3, 3, 0])
    both = rules.observe(np.repeat(state, 2, axis=0), np.array([0, 1])).reshape(2, 2, 6, 7)
    own = np.zeros((6, 7))
    own[5, 3] = own[5, 0] = 1  # the top row comes first
    other = np.zeros((6, 7))
    other[4, 3] = 1
    assert np.array_equal(both[0], [own, other])
    assert np.array_equal(both[1], [other, own])


def test_threats_are_empty_cells_that_would_win_and_then_cells_where_a_disc_falls():
    rules = ConnectFour(threats=True)
    state, _, _ = played(rules, [0, 6, 1, 6, 2, 3])  # three in the bottom row, and the other has taken both ends
    assert rules.observe(state, np.array([0])).reshape(5, 6, 7)[2:4].sum() == 0
    state, _, _ = played(rules, [0, 6, 1, 6, 2, 6])
    planes = rules.observe(state, np.array([0])).reshape(5, 6, 7)
    assert np.argwhere(planes[2]).tolist() == [[5, 3]]
    assert np.argwhere(planes[3]).tolist() == [[2, 6]]
    assert np.argwhere(planes[4]).tolist() == [[2, 6], [4, 0], [4, 1], [4, 2], [5, 3], [5, 4], [5, 5]]


def test_marks_are_where_they_were_made():
    rules = TicTacToe()
    state, _, _ = played(rules, [0, 4, 8, 2])
    assert rules.cells(state)[0].tolist() == [[1, 0, 2], [0, 2, 0], [0, 0, 1]]
    assert rules.observe(state, np.array([1]))[0].tolist() == [0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert rules.cell_actions.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert rules.legal(state)[0].nonzero()[0].tolist() == [1, 3, 5, 6, 7]


def test_no_boards_are_no_trouble():
    for rules in (TicTacToe(), ConnectFour()):
        none = rules.start(0)
        player = np.zeros(0, np.int64)
        assert rules.observe(none, player).shape == (0, *rules.obs.shape)
        assert rules.legal(none).shape == (0, rules.num_actions)
        assert rules.cells(none).shape == (0, *rules.cell_actions.shape)
        assert [len(each) for each in rules.step(none, player)] == [0, 0, 0]
