"""The examples in which a game calls, run small and whole: every process of theirs is real."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(script, *words, timeout=150):
    command = [sys.executable, str(EXAMPLES / script), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.timeout(320)
def test_pong_is_trained_through_the_gateway_and_then_served(tmp_path):
    run("pong_http/launch.py", "--project", tmp_path, "--trial", "p", "--versions", 3, "--replays", 8, "--games", 4)
    versions = sorted((tmp_path / "p" / "models" / "pong").glob("*.weights"))
    assert versions[-1].name.startswith("000000003-")
    assert (tmp_path / "p" / "metrics.jsonl").read_text().count("points") >= 1
    (told,) = run("pong_http/deploy.py", "--project", tmp_path, "--trial", "p", "--matches", 2)
    assert told["matches"] == 2
    assert max(told["points"], told["points_lost"]) >= 5


@pytest.mark.timeout(200)
def test_cartpole_is_trained_by_a_game_that_only_speaks_the_protocol(tmp_path):
    (told,) = run("cartpole_http/train.py", "--project", tmp_path, "--steps", 4000, "--games", 8, "--episodes", 8)
    assert told["versions"] >= 3
    assert told["episodes"] == 8
    assert told["return_mean"] > 9
