from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ludus
from ludus.cli.main import _COMMANDS, main
from ludus.learn.algorithms import registry

ROOT = Path(__file__).parent.parent.parent


def test_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ludus {ludus.__version__}\n"


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "ctl" in out
    assert "demo" in out


def test_without_a_command_the_help_is_shown_and_it_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().out


def test_a_misspelt_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dmeo"]) == 2
    assert "there is no command 'dmeo'. Did you mean 'demo'?" in capsys.readouterr().err


def test_an_unknown_option_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--secnods", "3"]) == 2
    assert "--secnods" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "module", "said"),
    [
        (["demo", "lander"], "Box2D", "box2d is not installed. Install it with: pip install 'ludus[train]'"),
        (
            ["demo", "lander", "--quick"],
            "pygame",
            "pygame is not installed. Install it with: pip install 'ludus[train]'",
        ),
        (["demo", "lander", "--quick"], "matplotlib", "pip install 'ludus[train]'"),
        (["demo"], "openskill", "openskill is not installed. Install it with: pip install 'ludus[league]'"),
        (["demo"], "htpy", "htpy is not installed. Install it with: pip install 'ludus[page]'"),
        (["serve", "t"], "httptools", "httptools is not installed. Install it with: pip install 'ludus[serve]'"),
        (["serve", "t"], "uvloop", "pip install 'ludus[serve]'"),
        (["serve", "t"], "torch", "pip install 'ludus[train]'"),
    ],
)
def test_what_is_not_installed_is_reported_before_anything_begins(
    words: list[str],
    module: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == module else find(name, *more))
    assert main([*words, "--project", str(tmp_path / "trials")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "trials").exists()


def test_the_extra_for_training_has_what_serving_watching_and_the_demo_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.split(r"[=<>]", each)[0] for each in extras["train"]}
    assert names >= {"torch", "gymnasium", "tensorboard", "matplotlib", "pillow", "pygame", "box2d"}
    assert names >= {re.split(r"[=<>]", each)[0] for each in extras["serve"]}


def test_python_m_ludus_is_the_command() -> None:
    words = [sys.executable, "-m", "ludus", "--version"]
    assert subprocess.check_output(words, text=True, timeout=300) == f"ludus {ludus.__version__}\n"


HELPED = [[], *([command] for command in _COMMANDS), *(["train", name, "CartPole-v1"] for name in registry.NAMES)]
NOT_ENGLISH = r"\b[Aa] [aeio]\w+|\b[Aa]n [bcdfgjklmnpqrstvwxyz]\w+"  # a env; an trial


@pytest.mark.parametrize("words", HELPED, ids=" ".join)
def test_the_help_is_english(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())  # also where a line ends
    found = [text[max(0, match.start() - 40) : match.end() + 40] for match in re.finditer(NOT_ENGLISH, text)]
    assert not found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "ppo", "CartPole-v1", "--lr", "1e-3"], "Did you mean '--learning-rate'?"),
        (["train", "ppo", "CartPole-v1", "--total-timesteps", "5"], "Did you mean '--steps'?"),
        (["train", "ppo", "CartPole-v1", "--target-kl=0.1"], "clip and num_epochs bound it."),
        (["train", "trpo", "CartPole-v1"], "'trpo' is not available yet. There are ppo, a2c, impala, appo, dqn,"),
        (["train", "MuZero", "CartPole-v1"], "'MuZero' is not available yet."),
        (["train", "QR-DQN", "CartPole-v1"], "what is meant is dqn with --distribution qr."),
        (["train", "dqn", "CartPole-v1", "--buffer-size", "9"], "Did you mean '--capacity'?"),
        (["train", "ppo", "CartPole-v1", "--buffer-size", "9"], "learn from replay, such as dqn."),
        (["train", "pppo", "CartPole-v1"], "Did you mean 'ppo'?"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


USAGE = "ludus train ALGORITHM ENV [--option value …]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--algo", "ppo", "--env", "CartPole-v1"],
            f"no option --algo: ALGORITHM is given without one, as in: {USAGE}",
        ),
        (["ppo", "--env", "CartPole-v1"], f"no option --env: ENV is given without one, as in: {USAGE}"),
        (["--env-id", "CartPole-v1"], f"no option --env-id: ENV is given without one, as in: {USAGE}"),
        (["--clip", "0.1", "--env=CartPole-v1"], f"no option --env: ENV is given without one, as in: {USAGE}"),
        (["--algorithm", "ppo"], "no option --algorithm: ALGORITHM is given without one"),
        (["ppo", "CartPole-v1", "--n-timesteps", "5"], "Did you mean '--steps'?"),
        (["ppo", "CartPole-v1", "--num-env-steps", "5"], "Did you mean '--steps'?"),
        (["ppo", "CartPole-v1", "--max-steps", "5"], "Did you mean '--steps'?"),
        (["ppo", "CartPole-v1", "--timesteps-total", "5"], "Did you mean '--steps'?"),
        (["ppo", "CartPole-v1", "--iterations", "5"], "Did you mean '--steps'?"),
        (["ppo", "CartPole-v1", "--no-cuda"], "Did you mean '--device'?"),
        (["ppo", "CartPole-v1", "--resume"], "`ludus resume TRIAL` goes on"),
        (["ppo", "CartPole-v1", "--render"], "`ludus watch TRIAL` shows"),
        (["ppo", "CartPole-v1", "--use-sde"], "no option --use-sde. See --help"),
        (["ppo", "CartPole-v1", "--policy", "MlpPolicy"], "no option --policy. The network follows from the obs"),
        (["ppo", "CartPole-v1", "--sed", "5"], "Did you mean '--seed'?"),
        (["recurrent_ppo", "CartPole-v1"], "what is meant is ppo with --recurrent lstm"),
        (["pp0", "CartPole-v1"], "Did you mean 'ppo'?"),
    ],
)
def test_names_of_the_field_are_answered_on_the_command_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ctl", "demo", "train", "resume", "evaluate", "list", "plot"])
def test_starting_a_command_imports_neither_torch_nor_ray(command: str) -> None:
    code = f"""
import sys
from ludus.cli.main import _COMMANDS, main
from ludus.learn.algorithms import registry
main([{command!r}, "--help"])
sys.exit(", ".join({{"torch", "ray"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(("code", "expected"), [(None, 1), (0, 1), (7, 1), ("no display", 1), (143, 143)])
def test_what_calls_exit_within_a_command_is_reported_unless_it_was_a_signal(
    code: object, expected: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ludus.cli.listing.run", lambda args: sys.exit(code))
    assert main(["list"]) == expected
    output = capsys.readouterr().err
    assert output == (
        "" if expected == 143 else f"ludus list: something that it ran called sys.exit({code!r}), which ended it.\n"
    )
