"""What is played becomes whole episodes, of every agent its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus.core import EnvSpec, TimeStep
from ludus.data.actions import Discrete
from ludus.data.spec import ArraySpec
from ludus.errors import EnvError
from ludus.experiment.datasets.episode import RecordedEpisode
from ludus.experiment.datasets.playing import dataset_from_play, play_episodes

SPEC = EnvSpec(name="turns", obs=ArraySpec((), np.float32), action=Discrete(10), agents=("a", "b"), has_mask=True)


class Turns:
    """Two agents of one env act in turn; what one does brings the other 0.5. An episode has `length` steps."""

    spec, num_envs, num_rows = SPEC, 1, 2

    def __init__(self, length: int = 5, *, fails_at: int = -1) -> None:
        self._length = length
        self._fails_at = fails_at
        self._num = 0

    def reset(self, seed: int) -> TimeStep:
        self._at = 0
        return self._now(first=True)

    def step(self, action: Any) -> TimeStep:
        self._num += 1
        if self._num == self._fails_at:
            self._at = 0
            return self._now(first=True, failed=True)
        if self._at == self._length:  # the final observation was seen: the next episode begins
            self._at = 0
            return self._now(first=True)
        acted = self._at % 2
        self._at += 1
        reward = np.zeros(2, np.float32)
        reward[acted], reward[1 - acted] = 1.0, 0.5
        return self._now(reward=reward)

    def _now(self, *, first: bool = False, failed: bool = False, reward: Any = None) -> TimeStep:
        is_over = self._at == self._length
        return TimeStep(
            obs=np.float32([self._at, 100 + self._at]),
            reward=np.zeros(2, np.float32) if reward is None else reward,
            terminated=np.full(2, is_over),
            truncated=np.zeros(2, np.bool_),
            first=np.full(2, first),
            active=np.array([self._at % 2 == row and not is_over for row in range(2)]),
            failed=np.full(2, failed),
            mask=np.arange(10)[None].repeat(2, 0) <= 5 + self._at % 2,
        )


def play(env: Turns, episodes: int) -> list[RecordedEpisode]:
    played: list[RecordedEpisode] = []
    play_episodes(env, lambda now: now.obs.astype(np.int64) % 10, played.append, episodes=episodes, seed=0)  # type: ignore[arg-type]
    return played


def test_agents_that_take_turns_have_episodes_without_gaps() -> None:
    a, b, *others = play(Turns(), 2)
    assert len(others) == 2
    assert a.obs.tolist() == [0, 2, 4, 5]
    assert a.action.tolist() == [0, 2, 4]
    assert a.reward.tolist() == [1.5, 1.5, 1.0], "what the other's turn brings is for the last action"
    assert b.obs.tolist() == [101, 103, 105]
    assert b.action.tolist() == [1, 3]
    assert b.reward.tolist() == [1.5, 1.5], "before its first action it earned nothing by one"
    assert a.terminated
    assert a.mask is not None
    assert a.mask.sum(1).tolist() == [6, 6, 6, 10], "at the end everything is allowed"
    assert others[0].obs.tolist() == a.obs.tolist()


def test_what_was_played_before_an_env_failed_is_void() -> None:
    episodes = play(Turns(fails_at=3), 1)
    assert [one.obs.tolist() for one in episodes] == [[0, 2, 4, 5], [101, 103, 105]]


def test_an_env_whose_episodes_do_not_end_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.experiment.datasets.playing._MOST_STEPS", 200)
    with pytest.raises(EnvError, match="no episode ended in 200 steps"):
        play(Turns(10**9), 1)


def test_every_env_plays_as_many_episodes_and_recurrent_policies_play_too(tmp_path: Path) -> None:
    run = ludus.train(
        "ppo", "CartPole-v1", steps=128, num_envs=2, num_steps=16, recurrent="gru", recurrent_size=4, eval_episodes=0,
        threads=1, project=str(tmp_path), trial="r",
    )  # fmt: skip
    seen: list[int] = []
    dataset = dataset_from_play(run.trial_dir, tmp_path / "d", episodes=35, greedy=False, on_progress=seen.append)
    assert dataset.num_episodes == 35
    assert seen == list(range(1, 36))
    assert all(episode.total == episode.num_steps for episode in dataset.episodes())
