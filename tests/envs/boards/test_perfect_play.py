"""Games that are small enough are searched to the end."""

import numpy as np
import pytest

from ludus.data.spec import ArraySpec
from ludus.envs.boards.connect_four import ConnectFour
from ludus.envs.boards.lookahead import Lookahead
from ludus.envs.boards.openings import open_boards
from ludus.envs.boards.perfect_play import PerfectPlay
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def perfect():
    return PerfectPlay(TicTacToe())


def test_all_positions_of_tic_tac_toe_are_known(perfect):
    assert perfect.num_positions == 4520  # of 5478 that can come up, 958 are over
    assert not perfect.values(TicTacToe().start(1)).any(), "every first move is a draw"


def test_values_are_those_of_a_search_that_looks_to_the_end(perfect):
    rules = TicTacToe()
    state = open_boards(rules, 2, np.arange(40), 7)
    np.testing.assert_allclose(perfect.values(state), Lookahead(rules, depth=9).values(state), rtol=1e-5)


def test_a_fork_wins(perfect):
    rules = TicTacToe()
    state = rules.start(1)
    for move in (0, 1):
        state, _, _ = rules.step(state, np.array([move]))
    values = perfect.values(state)[0]
    assert (values[[3, 4, 6]] > 0.9).all(), "after a corner and the edge beside it, these win"


def test_large_games_are_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"too large .* more than 1,000 positions.*alphabeta"):
        PerfectPlay(ConnectFour(), max_positions=1000)


def test_a_position_that_cannot_come_up_has_no_value(perfect):
    with pytest.raises(DataError, match="cannot come up"):
        perfect.values(np.array([[0b11, 0, 2]]))


class Race:
    """Players add 1 or 2; who reaches 7 wins. The same sum comes up after different numbers of moves, by either."""

    name = "race"
    num_players = 2
    obs = ArraySpec((1,), np.float32)
    num_actions = 2
    state = ArraySpec((2,), np.int64, 0)  # the sum, whose turn it is
    max_moves = 7

    def start(self, num):
        return np.zeros((num, 2), np.int64)

    def step(self, state, action):
        total = state[:, 0] + action + 1
        over = total == 7
        reward = np.zeros((len(state), 2), np.float32)
        reward[over, state[over, 1]] = 1
        reward[over, 1 - state[over, 1]] = -1
        return np.stack([total, 1 - state[:, 1]], 1), reward, over

    def legal(self, state):
        return np.stack([np.ones(len(state), np.bool_), state[:, 0] < 6], 1)

    def to_move(self, state):
        return state[:, 1]


def test_a_position_may_come_up_after_different_numbers_of_moves():
    perfect = PerfectPlay(Race())
    assert perfect.num_positions == 12  # sums below 7, by whose turn it is
    values = perfect.values(Race().start(1))[0]
    assert values[0] > 0.9, "1, and then what makes 4 and 7"
    assert values[1] < -0.9
