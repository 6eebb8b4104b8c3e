"""Board games as envs: turns, ends, openings, illegal moves."""

import numpy as np
import pytest

from ludus import envs
from ludus.core import Rules
from ludus.envs.boards.connect_four import ConnectFour
from ludus.envs.boards.openings import Openings, open_boards
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.envs.boards.vector_env import BoardVectorEnv
from ludus.errors import EnvError
from ludus.testing.rules import RulesConformance
from ludus.testing.vector_envs import RandomPlayer, VectorEnvConformance

OWN_GAME = '''
from ludus.envs.boards.tic_tac_toe import TicTacToe

class MyGame(TicTacToe):
    """A user's own."""

def small(size=3):
    assert size == 3
    return MyGame()

class Unfinished:
    def __init__(self):
        for name in ("name", "num_players", "obs", "num_actions", "state", "start", "legal", "to_move", "observe"):
            setattr(self, name, None)
'''


@pytest.fixture
def own_game(tmp_path):
    path = tmp_path / "my_games.py"
    path.write_text(OWN_GAME)
    return path


class TestConnectFourRules(RulesConformance):
    def make(self):
        return ConnectFour()


class TestConnectFourRulesWithThreats(RulesConformance):
    def make(self):
        return ConnectFour(threats=True)


class TestTicTacToeRules(RulesConformance):
    def make(self):
        return TicTacToe()


class TestConnectFour(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("board:connect_four", num_envs)


class TestTicTacToe(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("board:tic_tac_toe", num_envs)


class TestRandomOpenings(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("board:connect_four", num_envs, random_moves=6)


class TestOwnRules(VectorEnvConformance):
    @pytest.fixture(autouse=True)
    def _write(self, own_game):
        self.path = own_game

    def make(self, num_envs):
        return envs.make(f"{self.path}:MyGame", num_envs, random_moves=2)


def moves(vector_env, *columns):
    """Actions for all rows: env `w` makes the move `columns[w]`, no matter whose turn it is."""
    return np.repeat(np.array(columns), len(vector_env.spec.agents))


def test_a_game_from_start_to_end_and_on():
    vector_env = envs.make("board:tic_tac_toe", 2)
    now = vector_env.reset(seed=1)
    assert vector_env.spec.agents == ("player_0", "player_1")
    assert now.active.tolist() == [True, False, True, False]
    assert now.mask.all()
    for first, second in ((0, 0), (3, 1), (1, 2), (4, 3)):
        now = vector_env.step(moves(vector_env, first, second))
    assert now.active.tolist() == [True, False, True, False]
    assert now.mask[0].tolist() == [False, False, True, False, False, True, True, True, True]
    assert np.array_equal(now.mask[0], now.mask[1])
    now = vector_env.step(moves(vector_env, 2, 5))  # env 0: 0, 1, 2 in a row
    assert now.terminated.tolist() == [True, True, False, False]
    assert now.reward.tolist() == [1, -1, 0, 0]
    assert now.active.tolist() == [False, False, False, True]
    assert now.mask[:2].all()
    assert now.obs[0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0]  # the final observation
    assert now.obs[1].tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert not now.first.any()
    now = vector_env.step(moves(vector_env, -7, 4))  # of env 0 it is ignored
    assert now.first.tolist() == [True, True, False, False]
    assert not now.obs[:2].any()
    assert not now.reward.any()
    assert not now.terminated.any()
    assert now.active.tolist() == [True, False, True, False]
    stats = vector_env.statistics()
    assert (stats.num_steps, stats.num_episodes) == (11, 1)


def test_global_state_has_the_boards_that_the_rules_can_read():
    vector_env, rules = envs.make("board:connect_four", 3), envs.rules("board:connect_four")
    player = RandomPlayer(vector_env.spec, seed=0)
    now = vector_env.reset(seed=1)
    for _ in range(60):
        assert now.global_state.shape == (3, *rules.state.shape)
        both = rules.observe(np.repeat(now.global_state, 2, axis=0), np.tile([0, 1], 3))
        assert np.array_equal(both, now.obs)
        in_play = now.active.reshape(3, 2).any(axis=1)
        assert np.array_equal(
            rules.to_move(now.global_state)[in_play], now.active.reshape(3, 2)[in_play].argmax(axis=1)
        )
        now = vector_env.step(player(now))


@pytest.mark.parametrize("move", [3, -1, 7, 1000])
def test_an_illegal_move_is_an_error_that_names_player_and_move_and_changes_nothing(move):
    vector_env = envs.make("board:connect_four", 2)
    vector_env.reset(seed=1)
    for _ in range(6):
        vector_env.step(moves(vector_env, 0, 3))
    with pytest.raises(
        EnvError, match=rf"board:connect_four: player_0 of env 1 cannot make the move {move}; legal are"
    ):
        vector_env.step(moves(vector_env, 2, move))
    now = vector_env.step(moves(vector_env, 2, 2))
    assert now.obs.reshape(2, 2, 2, 6, 7)[:, 0, 0, 5, 2].tolist() == [1, 1]
    assert vector_env.statistics().num_steps == 14


@pytest.mark.parametrize("action", [np.zeros(3, np.int64), np.zeros((4, 1), np.int64), np.zeros(4, np.float32)])
def test_actions_that_do_not_fit_are_refused(action):
    vector_env = envs.make("board:connect_four", 2)
    vector_env.reset(seed=1)
    with pytest.raises(EnvError, match="actions"):
        vector_env.step(action)


def test_calls_out_of_order_are_refused():
    vector_env = envs.make("board:tic_tac_toe", 1)
    with pytest.raises(EnvError, match="`reset`"):
        vector_env.send(np.zeros(2, np.int64))
    assert vector_env.save() is None
    vector_env.reset(seed=1)
    with pytest.raises(EnvError, match="nothing to `recv`"):
        vector_env.recv()
    vector_env.send(np.zeros(2, np.int64))
    assert vector_env.save() is None
    with pytest.raises(EnvError, match="under way"):
        vector_env.send(np.zeros(2, np.int64))
    vector_env.close()
    for call in (lambda: vector_env.reset(1), lambda: vector_env.send(np.zeros(2, np.int64))):
        with pytest.raises(EnvError, match="closed"):
            call()


# ── openings


def test_openings_are_of_every_length_and_end_no_game():
    rules, numbers = TicTacToe(), np.arange(4000)
    state = open_boards(rules, 3, numbers, 4)
    assert (abs(np.bincount(state[:, 2], minlength=5) - 800) < 120).all()  # 4.7 times its std
    after_one = state[state[:, 2] == 1]
    assert (np.bincount(np.log2(after_one[:, 1]).astype(int), minlength=9) > 40).all()  # all nine cells, about 89 each
    full = open_boards(rules, 3, numbers, 8)
    assert full[:, 2].max() == 8
    lines = [0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100]
    for side in (full[:, 0], full[:, 1]):
        assert not any(((side & line) == line).any() for line in lines)


def test_an_opening_follows_from_its_number_and_the_seed_alone():
    rules = ConnectFour()
    one, other = Openings(rules, 10), Openings(rules, 10)
    one.restart(9)
    other.restart(9)
    at_once = one.take(3000)
    by_parts = np.concatenate([other.take(num) for num in (1, 500, 0, 700, 1500, 299)])
    assert np.array_equal(at_once, by_parts)
    other.restart(9, 2000)
    assert np.array_equal(other.take(1000), at_once[2000:])
    other.restart(10)
    assert not np.array_equal(other.take(3000), at_once)


def test_episodes_begin_after_random_moves():
    vector_env = envs.make("board:connect_four", 200, random_moves=3)
    now = vector_env.reset(seed=4)
    num_moves = now.obs.reshape(200, 2, -1)[:, 0].sum(axis=1)
    assert set(num_moves.tolist()) == {0, 1, 2, 3}
    assert now.first.all()
    assert np.array_equal(now.active.reshape(200, 2).argmax(axis=1), num_moves.astype(int) % 2)


@pytest.mark.parametrize("random_moves", [-1, 42, 1.5, True, "3"])
def test_an_invalid_number_of_random_moves_is_refused(random_moves):
    with pytest.raises(EnvError, match="random_moves"):
        envs.make("board:connect_four", 1, random_moves=random_moves)


# ── names


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("board:conect_four", {}, "Did you mean 'connect_four'"),
        ("bord:connect_four", {}, "Did you mean 'board'"),
        ("board:connect_four", {"random_move": 2}, "Did you mean 'random_moves'"),
        ("board:chess", {}, "There are: connect_four, tic_tac_toe"),
    ],
)
def test_a_misspelt_game_or_setting_is_answered_with_the_nearest(name, kwargs, message):
    with pytest.raises(EnvError, match=message):
        envs.make(name, 1, **kwargs)


def test_rules_are_found_by_the_name_of_the_env(own_game):
    assert isinstance(envs.rules("board:connect_four", random_moves=3), ConnectFour)
    assert isinstance(envs.rules("board:tic_tac_toe"), TicTacToe)
    assert isinstance(envs.rules(f"{own_game}:MyGame"), Rules)
    assert isinstance(envs.rules(f"{own_game}:small", size=3, random_moves=1), Rules)
    for name in ("CartPole-v1", "pettingzoo:connect_four_v3", "game://127.0.0.1:8000"):
        assert envs.rules(name) is None
    with pytest.raises(EnvError, match="Did you mean 'connect_four'"):
        envs.rules("board:connect_for")


def test_functions_that_make_other_envs_have_no_rules_and_take_no_random_moves():
    games = f"{__file__.removesuffix('boards/test_vector_env.py')}games.py"
    assert envs.rules(f"{games}:counting") is None
    assert envs.rules(f"{games}:own_group") is None
    with pytest.raises(EnvError, match="random_moves"):
        envs.make(f"{games}:counting", 1, random_moves=2)


def test_what_is_nearly_rules_is_answered_with_what_it_lacks(own_game):
    with pytest.raises(EnvError, match="it lacks cell_actions, cells, max_moves, step"):
        envs.make(f"{own_game}:Unfinished", 1)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("obs", (3,), "must be an ArraySpec"),
        ("num_players", 0, "must be an int from 1 on"),
        ("start", lambda num: np.zeros((num, 2), np.int64), "start with"),
        ("legal", lambda state: np.ones((len(state), 3), np.int8), "legal moves of one board"),
    ],
)
def test_rules_that_do_not_say_what_is_needed_are_refused(field, value, message):
    rules = TicTacToe()
    setattr(rules, field, value)
    with pytest.raises(EnvError, match=message):
        BoardVectorEnv("own", rules, 1)


def test_rules_that_raise_are_named():
    rules = TicTacToe()
    vector_env = BoardVectorEnv("own", rules, 1)
    vector_env.reset(seed=1)
    rules.step = lambda state, action: 1 / 0
    with pytest.raises(EnvError, match="the rules of own raised ZeroDivisionError"):
        vector_env.step(np.zeros(2, np.int64))
