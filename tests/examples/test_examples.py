"""Every example runs as its first lines say, from a folder of somebody's own, with few steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = ["--steps", "600", "--num-envs", "4", "--num-steps", "32", "--eval-episodes", "2", "--threads", "1"]


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ludus(folder: Path, *words: str) -> str:
    return run(folder, "-m", "ludus.cli.main", *words)


def test_all_examples_are_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "cartpole_game",  # by tests/experiment/test_games.py
        "grpc_service",
        "hidden_velocity",
        "own_algorithm",
        "own_environment",
        "own_network",
        "repositioning",
    }


@pytest.mark.parametrize("name", ["own_network", "own_algorithm"])
def test_ones_own_model_or_algorithm_takes_less_than_60_lines(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_network", "WaveNetwork"),
        ("own_algorithm", "return"),
        ("own_environment", "apples"),
        ("hidden_velocity", "recurrent=lstm: return"),
    ],
)
def test_it_runs_as_a_script(name: str, message: str, tmp_path: Path) -> None:
    assert message in run(tmp_path, str(EXAMPLES / f"{name}.py"), "--steps", "2500")


def test_the_rules_of_repositioning_are_compared(tmp_path: Path) -> None:
    output = run(tmp_path, str(EXAMPLES / "repositioning.py"), "--episodes", "2", "--settings", '{"num_ticks": 10}')
    assert [line.split("|")[1].strip() for line in output.splitlines()[2:]] == [
        "nothing", "random", "stock_up", "fair", "every order",
    ]  # fmt: skip


def test_a_service_of_ones_own_answers_and_refuses_over_grpc(tmp_path: Path) -> None:
    output = run(tmp_path, str(EXAMPLES / "grpc_service.py"))
    assert output == ("serving: True\nreturns: [0.25 0.5  1.  ]\nrefused: gamma is 2.0; it must be from 0 to 1\n")


def test_a_network_is_named_on_the_command_line(tmp_path: Path) -> None:
    words = ["train", "ppo", "CartPole-v1", "--model", f"{EXAMPLES}/own_network.py:build", *FEW, "--json"]
    assert json.loads(ludus(tmp_path, *words))["steps"] >= 600


def test_an_algorithms_own_settings_are_options(tmp_path: Path) -> None:
    name = f"{EXAMPLES}/own_algorithm.py:KLPenalty"
    ludus(tmp_path, "train", name, "CartPole-v1", "--kl-coef", "0.25", "--trial", "own", *FEW)
    assert json.loads((tmp_path / "trials/own/config.json").read_text())["algorithm"]["kl_coef"] == 0.25


def test_an_algorithm_of_ones_own_file_trains_in_other_processes_too(tmp_path: Path) -> None:
    words = ["train", f"{EXAMPLES}/own_algorithm.py:KLPenalty", "CartPole-v1", "--simulators", "1", *FEW, "--json"]
    assert json.loads(ludus(tmp_path, *words))["steps"] >= 600


def test_an_environment_is_trained_in_by_its_file_and_watched(tmp_path: Path) -> None:
    name = f"{EXAMPLES}/own_environment.py:make"
    ludus(tmp_path, "train", "ppo", name, "--env-args", '{"size": 4}', "--trial", "apples", *FEW)
    output = ludus(tmp_path, "watch", "apples", "--gif", "apples.gif")
    assert "in 64 steps" in output
    assert (tmp_path / "apples.gif").read_bytes().startswith(b"GIF8")


def test_envs_of_the_examples_keep_the_contract_of_vector_envs() -> None:
    from ludus import envs

    assert envs.spec(f"{EXAMPLES}/hidden_velocity.py:make").obs.shape == (2,)
    assert envs.spec(f"{EXAMPLES}/own_environment.py:make").obs.shape == (4,)
