from __future__ import annotations

import numpy as np
import pytest

from ludus import envs
from ludus.core import HasSymmetries, Rules
from ludus.envs.boards.connect_four import ConnectFour
from ludus.envs.boards.lookahead import Lookahead
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.errors import EnvError

GAMES = pytest.mark.parametrize(
    "rules", [ConnectFour(), ConnectFour(threats=True), TicTacToe()], ids=["connect_four", "threats", "tic_tac_toe"]
)


def random_boards(rules: Rules, num: int, num_moves: int, seed: int = 0) -> np.ndarray:
    """Boards in play, after so many moves."""
    rng = np.random.default_rng(seed)
    state = rules.start(num)
    for _ in range(num_moves):
        legal = rules.legal(state)
        state, _, over = rules.step(state, np.where(legal, rng.random(legal.shape), -1.0).argmax(1))
        state = state[~over]
    return state


@GAMES
def test_all_symmetries_are_different_and_none_is_the_identity(rules: Rules) -> None:
    assert isinstance(rules, HasSymmetries)
    seen = {tuple(actions.tolist()) for _, actions in rules.symmetries}
    assert len(seen) == len(rules.symmetries)
    assert tuple(range(rules.num_actions)) not in seen


def test_threats_are_the_moves_that_win() -> None:
    rules = ConnectFour(threats=True)
    for num_moves in (7, 14, 24):
        state = random_boards(rules, 200, num_moves)
        planes = rules.observe(state, rules.to_move(state)).reshape(len(state), 5, 6, 7)
        wins = Lookahead(rules, depth=1).values(state) >= 0.9
        assert wins.any()
        assert np.array_equal((planes[:, 2] * planes[:, 4]).any(1), wins), "a threat where the next disc falls"
        seen_by_other = rules.observe(state, 1 - rules.to_move(state)).reshape(planes.shape)
        assert np.array_equal(planes[:, 2], seen_by_other[:, 3])
        assert np.array_equal(planes[:, 3], seen_by_other[:, 2])
        assert np.array_equal(planes[:, :2], ConnectFour().observe(state, rules.to_move(state)).reshape(-1, 2, 6, 7))


def test_threats_are_an_argument_of_the_game() -> None:
    assert envs.spec("board:connect_four", threats=True).obs.shape == (210,)
    assert envs.spec("board:connect_four", threats=False, random_moves=3).obs.shape == (84,)
    with pytest.raises(EnvError, match="threats=1 must be true or false"):
        envs.spec("board:connect_four", threats=1)
    with pytest.raises(EnvError, match="takes no 'threats'"):
        envs.spec("board:tic_tac_toe", threats=True)
