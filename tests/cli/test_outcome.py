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
    args = argparse.Namespace(json=is_json)
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


def test_episodes_that_were_cut_off_and_evaluations_that_failed_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _follow(lambda *_: Ended(eval_cut_off=7), project=tmp_path)
    assert "over 100 episodes, played greedily, 7 of them cut off before their end" in capsys.readouterr().out
    _follow(lambda *_: Ended(eval_episodes=0, eval_error="EnvError: the game broke"), project=tmp_path)
    assert "the evaluation failed: EnvError: the game broke" in capsys.readouterr().out
