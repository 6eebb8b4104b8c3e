"""Games of two players who get the same: the contract, stages, and what their makers published of them."""

import numpy as np
import pytest

from ludus import envs
from ludus.envs.matrix import team_games
from ludus.errors import EnvError
from ludus.testing.vector_envs import VectorEnvConformance


class TestTwoStep(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("matrix:two_step", num_envs)


class TestClimbing(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("matrix:climbing", num_envs)


class TestPenalty(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("matrix:penalty", num_envs, penalty=-25)


def test_the_first_move_of_player_0_alone_chooses_the_second_game():
    env = envs.make("matrix:two_step", 4)
    assert env.reset(seed=0).global_state.tolist() == [[1, 0, 0]] * 4
    now = env.step(np.array([0, 0, 0, 1, 1, 0, 1, 1]))
    assert now.global_state.tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
    assert now.obs[::2].tolist() == now.global_state.tolist()
    assert not now.reward.any()
    assert now.active.all()
    now = env.step(np.array([0, 0, 1, 0, 0, 1, 1, 1]))
    assert now.reward.tolist() == [7, 7, 7, 7, 1, 1, 8, 8]
    assert now.terminated.all()
    assert not now.active.any()
    assert not now.global_state.any()
    assert env.step(np.array([9] * 8)).first.all(), "an action at the end of an episode is ignored"
    assert env.statistics().num_steps == 8
    assert env.statistics().num_episodes == 4


@pytest.mark.parametrize(("game", "best", "at"), [("climbing", 11, [[0, 0]]), ("penalty", 10, [[0, 2], [2, 0]])])
def test_the_best_moves_are_those_of_the_paper(game, best, at):
    env = envs.make(f"matrix:{game}", 9)
    env.reset(seed=0)
    both = np.stack(np.meshgrid(range(3), range(3), indexing="ij"), -1).reshape(-1, 2)
    reward = env.step(both.reshape(-1)).reward.reshape(9, 2)
    assert (reward[:, 0] == reward[:, 1]).all()
    assert reward.max() == best
    assert both[reward[:, 0] == best].tolist() == at


def test_the_best_that_a_sum_of_own_values_expects_of_the_second_game_is_less_than_the_sure_7():
    """So VDN stays at 7: least squares over moves at random give it 6.5."""
    payoff = team_games.two_step().payoff[2]
    additive = payoff.mean(1)[:, None] + payoff.mean(0)[None] - payoff.mean()
    assert additive.max() == 6.5


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("matrix:two_stap", {}, "two_step"),
        ("matrix:climbing", {"penalty": 1}, "no arguments"),
        ("matrix:penalty", {"penalti": 1}, "penalty"),
        ("matrix:penalty", {"penalty": "high"}, "finite"),
    ],
)
def test_what_is_no_team_game_is_refused(name, kwargs, message):
    with pytest.raises(EnvError, match=message):
        envs.make(name, 1, **kwargs)


def test_an_action_that_a_player_does_not_have_is_refused():
    env = envs.make("matrix:climbing", 2)
    env.reset(seed=0)
    with pytest.raises(EnvError, match="3 in env 1 is no action"):
        env.step(np.array([0, 1, 2, 3]))
