"""Evaluation: as many episodes as asked, each env the same number, the same by the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ludus import envs
from ludus.experiment import evaluation, wiring
from ludus.experiment.config import Config, resolve
from ludus.learn.policies.policy import Policy

torch.set_num_threads(1)
GAMES = Path(__file__).parents[1] / "services" / "simulator" / "marked_envs.py"
SMALL_GAMES = Path(__file__).with_name("games.py")


def made(env: str, **settings: Any) -> tuple[Policy, Config]:
    config = resolve("ppo", env, settings)
    return Policy(wiring.make_policy_spec(config, envs.spec(env, **config.env_args)), seed=3), config


@pytest.mark.parametrize("episodes", [1, 7, 128, 200])
def test_there_are_exactly_as_many_episodes_as_asked(episodes: int) -> None:
    policy, config = made("CartPole-v1")
    result = evaluation.evaluate(policy, config, episodes=episodes, seed=1)
    assert result.num_episodes == len(result.lengths) == episodes
    assert result.returns == result.lengths  # one for every step


def test_of_several_agents_each_has_its_own_return() -> None:
    policy, config = made("mpe2:simple_spread_v3")
    result = evaluation.evaluate(policy, config, episodes=3, seed=1)
    assert result.num_episodes == 9
    assert set(result.lengths) == {25}


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_greedy_play_is_decided_by_the_seed(recurrent: str) -> None:
    policy, config = made("CartPole-v1", recurrent=recurrent)
    one, same, other = (evaluation.evaluate(policy, config, episodes=10, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_sampled_play_is_decided_by_the_seed_too() -> None:
    policy, config = made("CartPole-v1")
    one, same = (evaluation.evaluate(policy, config, episodes=10, seed=1, greedy=False) for _ in range(2))
    assert one == same
    assert one != evaluation.evaluate(policy, config, episodes=10, seed=1)


def test_episodes_of_envs_that_raise_do_not_count() -> None:
    policy, config = made(f"{GAMES}:brittle")
    result = evaluation.evaluate(policy, config, episodes=30, seed=1)
    assert result.returns == (10.0,) * 30
    assert result.lengths == (10,) * 30


def test_the_return_on_ale_is_the_score_of_the_game_though_training_clips_rewards() -> None:
    frames = '{"max_num_frames_per_episode": 600, "noop_max": 1, "img_height": 36, "img_width": 36}'
    policy, config = made("ALE/SpaceInvaders-v5", env_args=frames)
    score = evaluation.evaluate(policy, config, episodes=1, seed=1, greedy=False)
    assert score.mean >= 10  # the game gives 5 to 30 for each invader, of which so few frames are enough for some


def test_evaluations_have_their_own_env_args() -> None:
    policy, config = made(f"{SMALL_GAMES}:endless", env_args='{"one_in": 1}', eval_env_args='{"one_in": 1000000}')
    assert evaluation.evaluate(policy, config, episodes=3, seed=1).lengths == (10,) * 3
    again = evaluation.evaluate(policy, config, episodes=3, seed=1, max_steps=20, env_args={"one_in": 1})
    assert again.lengths == (20,) * 3


# --- episodes that do not end


def test_an_episode_that_does_not_end_is_cut_off_counted_as_it_is_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy, config = made(f"{SMALL_GAMES}:endless", eval_max_steps=40)
    result = evaluation.evaluate(policy, config, episodes=3, seed=1)
    assert result.returns == (40.0,) * 3
    assert result.lengths == (40,) * 3
    assert result.num_cut_off == 3
    assert "3 of 3 episodes" in caplog.text
    assert evaluation.evaluate(policy, config, episodes=3, seed=1, max_steps=7).lengths == (7,) * 3


@pytest.mark.parametrize("episodes", [20, 300])
def test_what_ends_is_reported_beside_what_does_not(episodes: int) -> None:
    policy, config = made(f"{SMALL_GAMES}:endless", eval_max_steps=25, env_args='{"one_in": 4}')
    result = evaluation.evaluate(policy, config, episodes=episodes, seed=1)
    assert set(result.lengths) == {10, 25}
    assert result.lengths.count(25) == result.num_cut_off > 0
    assert result.returns == result.lengths
    assert 0 < result.num_episodes <= episodes


def test_episodes_that_do_not_end_have_a_budget_of_steps_together(caplog: pytest.LogCaptureFixture) -> None:
    policy, config = made(f"{SMALL_GAMES}:endless")
    played = evaluation.evaluate(policy, config, episodes=4, seed=1, max_total_steps=200)
    assert played.lengths == (50,) * 4
    assert played.num_cut_off == 4
    assert "4 of 4 episodes" in caplog.text
    assert "had not ended after 50 steps" in caplog.text
    policy, config = made(f"{SMALL_GAMES}:endless", env_args='{"one_in": 4}')
    played = evaluation.evaluate(policy, config, episodes=20, seed=1, max_total_steps=400)
    assert played.lengths.count(10) == 20 - played.num_cut_off  # what ends, ends as it would
    assert 0 < played.num_cut_off < 20
    assert 400 <= sum(played.lengths) < 420


@pytest.mark.parametrize(
    ("lengths", "episodes", "budget"),
    [([], 100, 100_000), ([], 2, 100_000), ([500], 100, 250_000), ([9], 500, 500_000)],
)
def test_the_budget_is_far_above_what_episodes_that_end_will_need(
    lengths: list[int], episodes: int, budget: int
) -> None:
    assert evaluation.step_budget(resolve("ppo", "CartPole-v1"), lengths, episodes=episodes) == budget
    given = resolve("ppo", "CartPole-v1", {"eval_max_steps": 7})
    assert evaluation.step_budget(given, lengths, episodes=episodes) is None


def test_episodes_that_end_are_not_cut_off() -> None:
    policy, config = made(f"{GAMES}:brittle", eval_max_steps=10_000)
    assert evaluation.evaluate(policy, config, episodes=8, seed=1).num_cut_off == 0


def test_an_agent_that_never_takes_part_has_no_episodes() -> None:
    policy, config = made(f"{SMALL_GAMES}:absent", eval_max_steps=10_000_000)
    for episodes in (3, 200):
        result = evaluation.evaluate(policy, config, episodes=episodes, seed=1)
        assert set(result.returns) == {5.0}
        assert result.num_episodes == 2 * episodes
        assert result.num_cut_off == 0


@pytest.mark.parametrize(
    ("lengths", "limit"), [([], 27_000), ([10, 20], 1_000), ([10, 500], 10_000), ([9_000], 27_000)]
)
def test_how_long_an_episode_may_be_follows_from_those_of_training_unless_it_is_given(
    lengths: list[int], limit: int
) -> None:
    assert evaluation.longest_episode(resolve("ppo", "CartPole-v1"), lengths) == limit
    assert evaluation.longest_episode(resolve("ppo", "CartPole-v1", {"eval_max_steps": 7}), lengths) == 7


@pytest.mark.parametrize("greedy", [True, False])
def test_greedy_play_draws_nothing_and_sampled_play_does(greedy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, config = made("CartPole-v1")

    def forbidden(*args: Any) -> Any:
        raise AssertionError("actions are chosen in the other way")

    monkeypatch.setattr(policy.head, "sample" if greedy else "mode", forbidden)
    assert evaluation.evaluate(policy, config, episodes=2, seed=1, greedy=greedy).num_episodes == 2


def test_each_episode_of_an_env_has_a_return_of_its_own() -> None:
    policy, config = made(f"{GAMES}:brittle")
    result = evaluation.evaluate(policy, config, episodes=140, seed=1)  # more than there are envs: some play two
    assert result.returns == (10.0,) * 140
    assert result.lengths == (10,) * 140
