"""When a run is asked whether it has learnt enough, and that the answer does not depend on the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ludus.errors import EnvError
from ludus.experiment import goal as goals
from ludus.experiment.config import resolve
from ludus.experiment.evaluation import Evaluation
from ludus.experiment.goal import Goal

Ask = Callable[[float, int], bool]


@dataclass
class Played:
    """Evaluations that return `mean` in episodes of 100 steps."""

    mean: float = 0.0
    count: int = 0

    def __call__(self, *_args: Any, episodes: int, **_kwargs: Any) -> Evaluation:
        self.count += 1
        return Evaluation(returns=(self.mean,) * episodes, lengths=(100,) * episodes)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    monkeypatch.setattr(goals, "evaluate", played)
    return played


def asking(wanted: float) -> Ask:
    goal = Goal(wanted, resolve("ppo", "CartPole-v1", {}))
    return lambda recent, num_steps: goal.is_reached(None, [recent] * 20, [100] * 20, num_steps, seed=0)  # type: ignore[arg-type]


def test_it_is_reached_when_greedy_episodes_return_what_is_wanted(played: Played) -> None:
    is_reached = asking(100.0)
    assert not is_reached(20.0, 1_000)
    played.mean = 99.0
    assert not is_reached(50.0, 2_000)
    played.mean = 100.0
    assert is_reached(50.0, 4_000)


def test_nothing_is_played_before_a_quarter_of_the_way(played: Played) -> None:
    is_reached = asking(100.0)
    for recent in (20.0, 10.0, 39.0):
        is_reached(recent, 1_000)
    assert played.count == 0
    is_reached(40.0, 1_000)
    assert played.count == 1


def test_a_quarter_of_the_way_is_known_for_returns_below_zero(played: Played) -> None:
    played.mean = -500.0
    is_reached = asking(-100.0)
    is_reached(-500.0, 1_000)
    is_reached(-401.0, 1_000)
    assert played.count == 0
    is_reached(-400.0, 1_000)
    assert played.count == 1


def test_it_plays_no_more_steps_than_training_took(played: Played) -> None:
    is_reached = asking(100.0)
    for num_steps in range(0, 20_001, 100):
        is_reached(100.0, num_steps)
    assert played.count == 20_000 // 500 + 1


def test_halfway_it_plays_a_quarter_of_the_steps_that_training_took(played: Played) -> None:
    is_reached = asking(100.0)
    is_reached(0.0, 0)
    for num_steps in range(0, 20_001, 100):
        is_reached(50.0, num_steps)
    assert played.count == 20_000 // (4 * 500) + 1


def test_a_policy_that_began_above_the_goal_is_asked_at_once(played: Played) -> None:
    played.mean = 200.0
    assert asking(100.0)(150.0, 1_000)


def test_a_policy_that_began_above_the_goal_is_asked_again_as_long_as_it_stays_there(played: Played) -> None:
    is_reached = asking(100.0)
    assert not is_reached(150.0, 0)
    played.mean = 100.0
    assert is_reached(120.0, 2_000)


def test_where_a_few_episodes_say_enough_no_more_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = []
    best = 99.0

    def play(*_args: Any, episodes: int, **_kwargs: Any) -> Evaluation:
        asked_for.append(episodes)
        return Evaluation(returns=(best, *(20.0,) * (episodes - 1)), lengths=(1,) * episodes)

    monkeypatch.setattr(goals, "evaluate", play)
    is_reached = asking(100.0)
    assert not is_reached(150.0, 1_000)
    assert asked_for == [5]
    best = 200.0
    assert not is_reached(150.0, 2_000)
    assert asked_for == [5, 5, 20]


def test_the_steps_of_whole_evaluations_count_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """One episode of the few is good, so all twenty are played each time: 500 steps and 2,000."""
    asked_at = []

    def play(*_args: Any, episodes: int, **_kwargs: Any) -> Evaluation:
        asked_at.append((num_steps, episodes))
        return Evaluation(returns=(200.0, *(20.0,) * (episodes - 1)), lengths=(100,) * episodes)

    monkeypatch.setattr(goals, "evaluate", play)
    is_reached = asking(100.0)
    for num_steps in range(0, 10_001, 100):
        assert not is_reached(150.0, num_steps)
    assert asked_at == [(at, episodes) for at in range(0, 10_001, 2_500) for episodes in (5, 20)]


def test_few_episodes_say_nothing(played: Played) -> None:
    goal = Goal(100.0, resolve("ppo", "CartPole-v1", {}))
    assert not goal.is_reached(None, [500.0] * 4, [100] * 4, 1_000, seed=0)  # type: ignore[arg-type]
    assert played.count == 0


def test_it_goes_on_where_it_was(played: Played) -> None:
    first, second = (Goal(100.0, resolve("ppo", "CartPole-v1", {})) for _ in range(2))
    first.is_reached(None, [20.0] * 20, [100] * 20, 0, seed=0)  # type: ignore[arg-type]
    first.is_reached(None, [60.0] * 20, [100] * 20, 100, seed=0)  # type: ignore[arg-type]
    second.restore(first.save())
    assert not second.is_reached(None, [60.0] * 20, [100] * 20, 400, seed=0)  # type: ignore[arg-type]
    assert played.count == 1
    assert second.save() == first.save()


def test_episodes_that_had_to_be_cut_off_reach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off = Evaluation(returns=(500.0,) * 20, lengths=(100,) * 20, num_cut_off=1)
    monkeypatch.setattr(goals, "evaluate", lambda *_args, **_kwargs: cut_off)
    assert not asking(100.0)(150.0, 1_000)


def test_an_evaluation_that_fails_reaches_nothing_and_is_not_tried_at_every_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_at = []

    def fail(*_args: Any, **_kwargs: Any) -> Evaluation:
        asked_at.append(num_steps)
        raise EnvError("the envs keep raising")

    monkeypatch.setattr(goals, "evaluate", fail)
    is_reached = asking(100.0)
    for num_steps in range(1_000, 20_001, 1_000):
        assert not is_reached(150.0, num_steps)
    assert asked_at == [1_000, 2_000, 3_000, 6_000, 12_000]


def test_where_training_clips_rewards_it_is_asked_however_little_training_returns(played: Played) -> None:
    goal = Goal(400.0, resolve("ppo", "ALE/Breakout-v5", {}))
    asked_at = []
    for num_steps in range(1_000, 100_001, 1_000):
        before = played.count
        goal.is_reached(None, [20.0] * 20, [100] * 20, num_steps, seed=0)  # type: ignore[arg-type]
        asked_at += [num_steps] * (played.count - before)
    assert asked_at == [1_000, *range(5_000, 100_001, 5_000)]  # each plays 500 steps


def test_the_first_few_episodes_are_not_much_longer_than_training_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A greedy policy that goes in circles would otherwise be played to ALE's limit each time."""
    limits = []

    def play(*_args: Any, episodes: int, max_steps: int, **_kwargs: Any) -> Evaluation:
        limits.append(max_steps)
        return Evaluation(returns=(500.0,) * episodes, lengths=(1,) * episodes)

    monkeypatch.setattr(goals, "evaluate", play)
    goal = Goal(100.0, resolve("ppo", "CartPole-v1", {}))
    assert goal.is_reached(None, [500.0] * 20, [900] * 19 + [1_100], 1_000, seed=0)  # type: ignore[arg-type]
    assert limits == [2_200, 4_400]


def test_where_episodes_are_few_the_last_five_say_how_far_it_is(played: Played) -> None:
    goal = Goal(-100.0, resolve("ppo", "CartPole-v1", {}))
    returns = [-1100.0] * 5
    assert not goal.is_reached(None, returns, [100] * 5, 1_000, seed=0)  # type: ignore[arg-type]
    returns += [-100.0] * 4  # of the last five the mean is -300, of all nine it would be -656
    played.mean = -100.0
    assert goal.is_reached(None, returns, [100] * 9, 1_900, seed=0)  # type: ignore[arg-type]


def test_a_bad_moment_of_a_long_run_does_not_hide_its_last_twenty_episodes(played: Played) -> None:
    goal = Goal(100.0, resolve("ppo", "CartPole-v1", {}))
    assert not goal.is_reached(None, [0.0] * 5, [100] * 5, 500, seed=0)  # type: ignore[arg-type]
    played.mean = 100.0
    assert goal.is_reached(None, [100.0] * 15 + [0.0] * 5, [100] * 20, 100_000, seed=0)  # type: ignore[arg-type]
