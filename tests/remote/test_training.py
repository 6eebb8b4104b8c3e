"""What `ludus.train` leaves behind when a run cannot begin."""

from __future__ import annotations

from pathlib import Path

import pytest

import ludus
from ludus import errors


def test_a_misspelt_world_leaves_nothing_and_the_trials_name_free(tmp_path: Path) -> None:
    for _try in range(2):
        with pytest.raises(errors.EnvError, match="Did you mean 'CartPole-v1'"):
            ludus.train("ppo", "CartPol-v1", project=str(tmp_path), trial="mine")
    assert not (tmp_path / "mine").exists()
    settings = {"steps": 500, "num_envs": 8, "num_steps": 32, "eval_episodes": 0, "threads": 1}
    assert ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **settings).result["steps"] >= 500


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(errors.EnvError):
        ludus.train("ppo", "CartPol-v1", project=str(tmp_path), trial="mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep me"


def test_a_trial_that_is_there_is_not_begun_again(tmp_path: Path) -> None:
    settings = {"steps": 300, "num_envs": 8, "num_steps": 32, "eval_episodes": 0, "threads": 1}
    ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **settings)
    with pytest.raises(errors.ConfigError, match="ludus resume mine"):
        ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **settings)
    assert (tmp_path / "mine" / "result.json").exists()
