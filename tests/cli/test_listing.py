from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiment.trial_folders import RESULT, make_trial
from ludus.cli.main import main


def test_each_trial_is_a_row_with_how_far_it_is_and_what_it_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_trial(tmp_path / "monday", result=RESULT | {"eval_sampled_return_mean": 480.5, "return_mean": 450.0})
    make_trial(tmp_path / "tuesday")
    make_trial(tmp_path / "wednesday", checkpoint=None)
    make_trial(tmp_path / "thursday", driver_pid=os.getpid())
    assert main(["list", "--project", str(tmp_path)]) == 0
    rows = {line.split()[0]: " ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["monday"].startswith("monday ppo CartPole-v1 3 10,000 / 10,000 487.2 480.5 450.0 ended")
    assert rows["tuesday"].startswith("tuesday ppo CartPole-v1 3 5,500 / 10,000 50.0 stopped: resumable")
    assert "stopped: no checkpoint" in rows["wednesday"]
    assert "running" in rows["thursday"]


def test_where_agents_compete_the_games_won_are_shown_and_not_a_return_that_is_zero_by_the_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    returns = {"eval_return_mean": 0.0, "eval_sampled_return_mean": 0.0, "return_mean": 0.0, "eval_vs_random": 0.87}
    make_trial(tmp_path / "game", result=RESULT | returns)
    make_trial(tmp_path / "monday", result=RESULT)
    assert main(["list", "--project", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: " ".join(line.split()) for line in out.splitlines() if line.strip()}
    assert "vs random" in out
    assert "10,000 / 10,000 won 87% ended" in rows["game"]
    assert "487.2" in rows["monday"]


def test_a_training_return_of_clipped_rewards_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_trial(tmp_path / "pong", result=RESULT | {"return_mean": 12.0, "return_clipped": True})
    running = make_trial(tmp_path / "running", driver_pid=os.getpid())
    config = running / "config.json"
    config.write_text(config.read_text().replace("CartPole-v1", "ALE/Pong-v5"))
    assert main(["list", "--project", str(tmp_path)]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "12.0 clipped" in rows["pong"]
    assert "50.0 clipped" in rows["running"]


def test_a_project_without_trials_says_how_to_begin_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--project", str(tmp_path / "nowhere")]) == 0
    assert "ludus train ppo CartPole-v1" in capsys.readouterr().out
