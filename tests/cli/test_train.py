"""`train`, `resume` and `evaluate`, as a person runs them: real processes, real training, very little of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludus.cli.main import main

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

LUDUS = [sys.executable, "-m", "ludus.cli.main"]
SMALL = ["--num-envs", "4", "--num-steps", "32", "--num-epochs", "1", "--eval-episodes", "2"]
FIELDS = {
    "algorithm", "env", "seed", "steps", "seconds", "steps_per_second", "seconds_to_first_update", "eval_return_mean",
    "eval_return_std", "eval_episodes", "weights_hash", "trial",
}  # fmt: skip


def _ludus(folder: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*LUDUS, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert not check or done.returncode == 0, done.stderr
    return done


def _interrupt_after_first_checkpoint(folder: Path, *words: str) -> tuple[int, str]:
    child = subprocess.Popen([*LUDUS, *words], cwd=folder, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(folder.glob("trials/*/checkpoints/checkpoints.json")):
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=300)
    return child.returncode, err


def test_a_run_is_reported_as_json_and_can_be_listed_evaluated_and_plotted(tmp_path: Path) -> None:
    words = ["train", "ppo", "CartPole-v1", "--steps", "512", "--seed", "3", "--trial", "monday", "--json", *SMALL]
    done = _ludus(tmp_path, *words)
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result) >= FIELDS
    assert (result["algorithm"], result["env"], result["seed"]) == ("ppo", "CartPole-v1", 3)
    assert result["steps"] >= 512
    assert result["eval_episodes"] == 2
    assert 0.1 < result["seconds_to_first_update"] < 60
    assert "ended" in _ludus(tmp_path, "list").stdout
    report = json.loads(_ludus(tmp_path, "evaluate", "monday", "--episodes", "3", "--json").stdout)
    assert report["episodes"] == 3
    assert "over 3 episodes" in _ludus(tmp_path, "evaluate", "monday", "--episodes", "3").stdout
    short = _ludus(
        tmp_path, "evaluate", "monday", "--episodes", "3", "--env-args", '{"max_episode_steps": 5}', "--json"
    )
    assert json.loads(short.stdout)["length_mean"] == 5.0
    refused = _ludus(tmp_path, "evaluate", "monday", "--env-args", "[5]", check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "must be a JSON object" in refused.stderr
    again = json.loads(_ludus(tmp_path, "resume", "monday", "--json").stdout)
    assert again["weights_hash"] == result["weights_hash"]


def test_of_a_game_between_agents_evaluate_tells_each_ones_return_and_the_games_won_against_random_play(
    tmp_path: Path,
) -> None:
    env = f"{Path(__file__).parent.parent / 'experiment' / 'games.py'}:higher"
    words = ["train", "ppo", env, "--steps", "512", "--trial", "game", *SMALL]
    assert "against random play: won" in _ludus(tmp_path, *words).stdout
    report = json.loads(_ludus(tmp_path, "evaluate", "game", "--episodes", "4", "--json").stdout)
    assert report["return_mean/left"] == -report["return_mean/right"]
    assert 0.0 <= report["vs_random"] <= 1.0
    said = _ludus(tmp_path, "evaluate", "game", "--episodes", "4").stdout
    assert "by agent: left" in said
    assert "of 4 games, each side played equally" in said
    assert "won" in _ludus(tmp_path, "list").stdout


def test_interrupted_it_saves_says_how_to_go_on_and_does_to_the_same_weights(tmp_path: Path) -> None:
    words = ["train", "ppo", "CartPole-v1", "--steps", "20000", *SMALL, "--checkpoint-seconds", "0"]
    (tmp_path / "stopped").mkdir()
    (tmp_path / "whole").mkdir()
    code, err = _interrupt_after_first_checkpoint(tmp_path / "stopped", *words)
    assert code == 130, err
    assert "Traceback" not in err
    command = err.strip().splitlines()[-1].partition("go on with: ludus ")[2].split()
    assert command[0] == "resume", err
    resumed = json.loads(_ludus(tmp_path / "stopped", *command, "--json").stdout)
    whole = json.loads(_ludus(tmp_path / "whole", *words, "--json").stdout)
    assert resumed["steps"] == whole["steps"]
    assert resumed["weights_hash"] == whole["weights_hash"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ppoo", "CartPole-v1"], "there is no algorithm 'ppoo'. Did you mean 'ppo'?"),
        (["--steps", "100", "ppoo", "CartPole-v1"], "there is no algorithm 'ppoo'. Did you mean 'ppo'?"),
        (["ppo", "CartPole-v1", "--stpes", "5"], "there is no option --stpes. Did you mean '--steps'?"),
        (["--stpes", "5", "ppo", "CartPole-v1"], "there is no option --stpes. Did you mean '--steps'?"),
        (["ppo", "CartPole-v1", "--hiden", "64"], "there is no option --hiden. Did you mean '--hidden'?"),
        (["ppo", "CartPole-v1", "--clip", "wide"], "clip='wide' is not a number"),
        (["ppo", "CartPole-v1", "--flow", "async", "--simulators", "0"], "use flow=sync, or simulators=1"),
        (["ppo"], "the following arguments are required: ENV"),
    ],
)
def test_what_is_not_understood_is_answered_without_torch_or_a_traceback(
    tmp_path: Path, words: list[str], message: str
) -> None:
    code = f"""
import sys
from ludus.cli.main import main
code = main(["train", *{words!r}])
print(code, "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "2 False"
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_environment_is_answered_with_the_nearest(tmp_path: Path) -> None:
    done = _ludus(tmp_path, "train", "ppo", "CartPloe-v1", *SMALL, check=False)
    assert done.returncode == 2
    assert "CartPole-v1" in done.stderr
    assert "Traceback" not in done.stderr


def test_inference_workers_run_the_policy_by_the_backend_that_is_named(tmp_path: Path) -> None:
    words = ["train", "ppo", "CartPole-v1", "--steps", "512", "--simulators", "1", "--groups", "1", *SMALL, "--json"]
    inline = json.loads(_ludus(tmp_path, *words).stdout)
    for backend in ("numpy", "onnx"):
        own = ["--inference", "1", "--inference-backend", backend, "--trial", backend]
        result = json.loads(_ludus(tmp_path, *words, *own).stdout)
        log = (tmp_path / "trials" / backend / "logs" / "inference-0.log").read_text()
        assert f"{backend} runs ({backend} was asked for)" in log
        assert result["steps"] == inline["steps"]
        if backend == "numpy":
            assert result["weights_hash"] == inline["weights_hash"], "what the simulator itself would have done"


def test_help_shows_the_settings_of_the_algorithm_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    assert "--clip" not in capsys.readouterr().out
    assert main(["train", "ppo", "CartPole-v1", "--help"]) == 0
    out = capsys.readouterr().out
    for flag in (
        "--clip",
        "--learning-rate",
        "--hidden",
        "--steps",
        "--checkpoint-seconds",
        "--inference-backend",
        "--json",
    ):
        assert flag in out
    assert main(["train", "a2c", "--help"]) == 0
    assert "--clip" not in capsys.readouterr().out


def test_settings_that_an_algorithm_does_not_use_are_neither_shown_nor_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for algorithm, unused, used in (
        ("bc", {"--capacity", "--tau", "--gamma", "--num-envs"}, {"--batch-size"}),
        ("iql", {"--capacity", "--min-size"}, {"--tau", "--n-step", "--gamma"}),
    ):
        assert main(["train", algorithm, "CartPole-v1", "--help"]) == 0
        shown = set(capsys.readouterr().out.split())
        assert not unused & shown
        assert used <= shown
    assert main(["train", "bc", "CartPole-v1", "--dataset", "expert", "--capacity", "10"]) == 2
    assert (
        capsys.readouterr().err == "ludus train: capacity has no effect on bc, and is no setting of it. Leave it out.\n"
    )


def test_an_algorithm_of_ones_own_brings_its_own_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("""
from dataclasses import dataclass
from ludus.learn.algorithms.ppo import PPO, PPOConfig
from ludus.options import option

@dataclass(frozen=True, kw_only=True)
class MineConfig(PPOConfig):
    boldness: float = option(0.5, help="how bold it is")

class Mine(PPO):
    Config = MineConfig
""")
    assert main(["train", f"{tmp_path / 'mine.py'}:Mine", "CartPole-v1", "--help"]) == 0
    assert "how bold it is" in capsys.readouterr().out
