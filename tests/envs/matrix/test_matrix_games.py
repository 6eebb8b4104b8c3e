"""Games of one move: the contract, who wins, and matrices of one's own."""

import json

import numpy as np
import pytest

from ludus import envs
from ludus.errors import EnvError
from ludus.testing.vector_envs import VectorEnvConformance


class TestRps(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("matrix:rps", num_envs)


class TestDisc(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("matrix:disc", num_envs)


class TestOwnMatrix(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("matrix:own", num_envs, payoff=[[1, 2, 3], [0, 5, -1]])


def play(name, actions, **kwargs):
    env = envs.make(name, len(actions) // 2, **kwargs)
    env.reset(seed=0)
    return env.step(np.array(actions)).reward.tolist()


def test_paper_beats_rock_and_a_rock_beats_scissors_twice_over():
    assert play("matrix:rps", [0, 1, 1, 1, 2, 0]) == [-1, 1, 0, 0, -1, 1]
    assert play("matrix:biased_rps", [0, 1, 1, 1, 2, 0]) == [-1, 1, 0, 0, -2, 2]


def test_on_the_disc_a_point_loses_to_that_a_quarter_turn_clockwise_however_far_outside_it_is_given():
    assert play("matrix:disc", [[1.0, 0.0], [0.0, -1.0], [0.5, 0.0], [0.0, 40.0]]) == [-1.0, 1.0, 0.5, -0.5]


def test_a_matrix_of_ones_own_may_be_a_file_and_its_players_know_their_side(tmp_path):
    path = tmp_path / "payoff.json"
    path.write_text(json.dumps([[1, 2, 3], [0, 5, -1]]))
    env = envs.make("matrix:own", 1, payoff=str(path))
    now = env.reset(seed=0)
    assert now.obs.tolist() == [[1, 0], [0, 1]]
    assert now.mask.tolist() == [[True, True, False], [True, True, True]]
    assert env.step(np.array([1, 2])).reward.tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("matrix:rsp", {}, "rps"),
        ("matrix:rps", {"payoff": [[1]]}, "takes no"),
        ("matrix:own", {}, "needs a payoff"),
        ("matrix:own", {"payoff": [[1, 2], [3]]}, "same length"),
        ("matrix:own", {"payoff": [[1, float("nan")]]}, "finite"),
        ("matrix:own", {"payoff": "nowhere.json"}, "cannot be read"),
        ("matrix:own", {"payof": [[1]]}, "payoff"),
    ],
)
def test_what_is_no_game_is_refused(name, kwargs, message):
    with pytest.raises(EnvError, match=message):
        envs.make(name, 1, **kwargs)


def test_an_action_that_a_player_does_not_have_is_refused():
    env = envs.make("matrix:own", 1, payoff=[[1, 2, 3], [0, 5, -1]])
    env.reset(seed=0)
    with pytest.raises(EnvError, match="no actions of this game"):
        env.step(np.array([2, 0]))
