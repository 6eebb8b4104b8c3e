"""What is shown of a run, whatever run it is."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pytest

from experiment.trial_folders import RESULT, make_trial
from ludus.cli import outcome


class Ended:
    def __init__(self, **changes: Any) -> None:
        self.result = RESULT | changes


def _follow(start: Any, *, project: Path, trial: str | None = None, is_json: bool = False) -> int:
    args = argparse.Namespace(json=is_json, page=False, page_port=None)
    return outcome.follow(start, args, total_steps=10_000, project=str(project), trial=trial)


def test_json_is_the_only_line_on_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _follow(lambda *_: Ended(), project=tmp_path, is_json=True) == 0
    assert json.loads(capsys.readouterr().out) == RESULT


def test_json_has_null_for_what_is_not_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _follow(lambda *_: Ended(eval_return_mean=float("nan")), project=tmp_path, is_json=True)
    assert '"eval_return_mean": null' in capsys.readouterr().out


def test_without_json_sentences_tell_the_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _follow(lambda *_: Ended(), project=tmp_path)
    out = capsys.readouterr().out
    assert "ppo on CartPole-v1, seed 3: 10,000 steps in 2.5 s (4,000 steps/s)" in out
    assert "return 487.2 ± 10.5 over 100 episodes" in out


def test_a_run_that_was_not_evaluated_tells_no_return(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _follow(lambda *_: Ended(eval_episodes=0, eval_return_mean=None), project=tmp_path)
    assert "return" not in capsys.readouterr().out


@pytest.mark.parametrize("trial", ["monday", None])
def test_a_stopped_run_says_where_and_how_to_go_on(
    tmp_path: Path, trial: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(on_progress: outcome.OnProgress, on_status: outcome.OnStatus) -> Ended:
        make_trial(tmp_path / "monday")
        raise KeyboardInterrupt

    assert _follow(start, project=tmp_path, trial=trial) == 130
    expected = f"stopped at step 4,000; go on with: ludus resume monday --project {tmp_path}\n"
    assert capsys.readouterr().err.endswith(expected)


def test_a_run_stopped_before_its_first_checkpoint_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def start(on_progress: outcome.OnProgress, on_status: outcome.OnStatus) -> Ended:
        raise KeyboardInterrupt

    assert _follow(start, project=tmp_path) == 130
    assert "stopped before the first checkpoint" in capsys.readouterr().err


def test_the_process_began_before_now_and_not_long_ago() -> None:
    assert 0.0 < time.time() - outcome.process_began() < 3600.0


def test_episodes_that_were_cut_off_and_evaluations_that_failed_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _follow(lambda *_: Ended(eval_cut_off=7), project=tmp_path)
    assert "over 100 episodes, played greedily, 7 of them cut off before their end" in capsys.readouterr().out
    _follow(lambda *_: Ended(eval_episodes=0, eval_error="EnvError: the game broke"), project=tmp_path)
    assert "the evaluation failed: EnvError: the game broke" in capsys.readouterr().out


SAMPLED = {"eval_sampled_return_mean": 480.0, "eval_sampled_return_std": 12.0, "eval_sampled_episodes": 50}
TRAINED = {"return_mean": 450.04, "return_std": 60.0, "return_clipped": False}


def test_greedy_sampled_and_training_returns_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _follow(lambda on_progress, on_status: Ended(**SAMPLED, **TRAINED), project=tmp_path)
    out = capsys.readouterr().out
    assert "return 487.2 ± 10.5 over 100 episodes, played greedily" in out
    assert "sampled: 480.0 ± 12.0 over 50 episodes" in out
    assert "training: 450.0 ± 60.0, its last episodes\n" in out
    assert "differ" not in out


def test_a_training_return_of_clipped_rewards_is_labelled_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _follow(lambda on_progress, on_status: Ended(**TRAINED | {"return_clipped": True}), project=tmp_path)
    assert "training: 450.0 ± 60.0, its last episodes, rewards clipped\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("greedy", "sampled", "std", "differs"),
    [
        (378e6, 21.6e6, 1e6, True),
        (-1200.0, -150.0, 100.0, True),
        (100.0, 76.0, 1.0, False),
        (100.0, 20.0, 300.0, False),
    ],
)
def test_it_is_said_when_greedy_and_sampled_returns_differ_a_lot(
    tmp_path: Path, greedy: float, sampled: float, std: float, differs: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    returns = {"eval_return_mean": greedy, "eval_sampled_return_mean": sampled, "eval_sampled_episodes": 100}
    stds = {"eval_return_std": std, "eval_sampled_return_std": std}
    _follow(lambda on_progress, on_status: Ended(**returns, **stds), project=tmp_path)
    assert ("differ a lot" in capsys.readouterr().out) == differs


def test_a_few_episodes_are_not_enough_to_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    returns = {"eval_return_mean": 100.0, "eval_sampled_return_mean": 1.0, "eval_return_std": 0.0}
    for few in ({"eval_episodes": 9}, {"eval_sampled_episodes": 9}):
        counts = {"eval_sampled_return_std": 0.0, "eval_sampled_episodes": 100, **few}
        _follow(lambda on_progress, on_status, values=returns | counts: Ended(**values), project=tmp_path)
        assert "differ a lot" not in capsys.readouterr().out


def test_where_agents_compete_their_returns_and_matches_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agents = {"eval_return_mean/player_0": 0.25, "eval_return_mean/player_1": -0.25}
    matches = {"eval_vs_random": 0.925, "eval_vs_episodes": 100, "eval_vs_earlier": 0.7, "eval_vs_earlier_step": 5_000}
    _follow(lambda on_progress, on_status: Ended(**agents, **matches), project=tmp_path)
    out = capsys.readouterr().out
    assert "by agent: player_0 0.25, player_1 -0.25" in out
    assert "against random play: won 92% of 100 games, each side played equally, draws count half" in out
    assert "against itself at step 5,000: won 70%" in out


def test_a_result_that_could_not_be_saved_is_printed_all_the_same_and_the_command_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _follow(lambda on_progress, on_status: Ended(save_error="the folder was deleted"), project=tmp_path) == 1
    said = capsys.readouterr()
    assert "10,000 steps in 2.5 s" in said.out
    assert "not all of it could be saved: the folder was deleted" in said.err


def test_small_returns_do_not_read_as_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _follow(lambda on_progress, on_status: Ended(eval_return_mean=0.02416, eval_return_std=0.0), project=tmp_path)
    assert "return 0.0242 ± 0.0 over 100 episodes" in capsys.readouterr().out
