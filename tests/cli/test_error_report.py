"""A bug in a user's own file is shown with its lines, once, whichever way it came to the command line."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.cli import error_report
from ludus.cli.main import main

GAME = """import gymnasium
import numpy as np


class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.num_steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.num_steps += 1
        return np.zeros(3, np.float32), self.reward(), self.num_steps > 10, False, {}

    def reward(self):
        return 1.0


def make():
    return Game()
"""
NET = """import torch


def build(obs, num_outputs):
    return torch.nn.Sequential(Layer())


class Layer(torch.nn.Module):
    def forward(self, obs):
        return obs @ torch.zeros(7, 5)
"""


def words_for(folder: Path, name: str, old: str, new: str, *more: str) -> list[str]:
    """`ludus train` of a game or a network of which a line was replaced."""
    (folder / name).write_text((GAME if name == "game.py" else NET).replace(old, new))
    env = "game.py:make" if name == "game.py" else "CartPole-v1"
    model = [] if name == "game.py" else ["--model", "net.py:build"]
    return ["train", "ppo", env, *model, "--steps", "1000", "--project", str(folder / "trials"), *more]


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("game.py", "import numpy as np", "import numpy as np; x = undefined", "game.py:2: import numpy as np; x ="),
        ("game.py", "self.num_steps = 0", "self.num_steps = 0 +", "game.py:10: self.num_steps = 0 +"),
        ("game.py", "return Game()", "return {}['no']", "game.py:22 in make: return {}['no']"),
        ("game.py", "self.num_steps = 0", "{}['no']", "game.py:10 in reset: {}['no']"),
        ("game.py", "return 1.0", "return 1 / 0", "game.py:18 in reward: return 1 / 0"),
        ("net.py", "return torch.nn", "return torch.nnn", "net.py:5 in build: return torch.nnn.Sequential(Layer())"),
        ("net.py", "", "", "net.py:10 in forward: return obs @ torch.zeros(7, 5)"),
    ],
)
def test_a_bug_in_ones_own_file_is_shown_with_its_line(
    name: str,
    old: str,
    new: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words_for(tmp_path, name, old, new)) == 2
    err = capsys.readouterr().err
    assert err.count(said) == 1
    assert "src/ludus" not in err
    assert len(err.splitlines()) < 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "old", "place", "new"),
    [
        ("game.py", "return 1.0", "game.py:18 in reward", "return 1 / its_neighbour.ZERO"),
        ("net.py", "return obs @ torch.zeros(7, 5)", "net.py:10 in forward", "return obs / (1 / its_neighbour.ZERO)"),
    ],
)
def test_a_bug_in_a_spread_run_is_shown_once_with_its_line(
    name: str, old: str, place: str, new: str, tmp_path: Path
) -> None:
    (tmp_path / "its_neighbour.py").write_text("ZERO = 0\n")
    buggy = f"import its_neighbour; {new}"  # a worker can import it, too
    words = words_for(tmp_path, name, old, buggy, "--simulators", "1")
    environ = {name: value for name, value in os.environ.items() if name != "LUDUS_TRACEBACK"}
    done = subprocess.run(
        [sys.executable, "-m", "ludus", *words], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2
    assert done.stderr.count(f"{place}: {buggy}") == 1
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "ludus resume" in done.stderr
    assert len(done.stderr.splitlines()) < 12


@pytest.mark.timeout(300)
def test_an_env_that_ends_its_process_ends_the_run_with_the_reason_once(tmp_path: Path) -> None:
    words = words_for(tmp_path, "game.py", "return 1.0", "import os; os._exit(7)", "--simulators", "1")
    done = subprocess.run(
        [sys.executable, "-m", "ludus", *words], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2
    reason = "the run was ended because worker 'simulator/0' crashed 3 times before it did any work. The last time: "
    assert done.stderr.count(f"{reason}exit code 7") == 1
    assert "ludus resume" in done.stderr
    assert len(done.stderr.splitlines()) < 20


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", [(), ("--simulators", "1")], ids=["embedded", "spread"])
def test_an_env_that_raises_now_and_then_is_reported_with_seed_step_and_line(
    where: tuple[str, ...], tmp_path: Path
) -> None:
    buggy = "return 1.0 if self.num_steps != 7 or np.random.random() < 0.9 else {}['no']"
    words = words_for(tmp_path, "game.py", "return 1.0", buggy, "--eval-episodes", "0", *where)
    done = subprocess.run(
        [sys.executable, "-m", "ludus", *words], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0
    assert done.stderr.count("game.py:18 in reward: return 1.0 if") == 1
    [message] = [line for line in done.stderr.splitlines() if "raised KeyError: 'no' (seed " in line]
    assert ", step 7)" in message or ", step 6)" in message
    assert message.startswith("simulator/0: ") == bool(where)
    assert len([line for line in done.stderr.splitlines() if " of 1,000 steps " not in line]) < 8


def test_what_the_system_refuses_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["train", "ppo", "CartPole-v1", "--project", str(tmp_path / "file" / "trials")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("ludus train: ")
    assert "Not a directory" in err
    assert len(err.splitlines()) == 1


def test_a_bug_of_our_own_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.cli.listing.run", int)  # raises, and no file but ours takes part
    with pytest.raises(TypeError):
        main(["list"])


def test_the_log_shows_a_traceback_once_and_its_repetition_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    handler = error_report.ConsoleHandler()
    for number in range(3):
        try:
            raise ValueError(f"bad {number}")
        except ValueError as error:
            info = (type(error), error, error.__traceback__)
            handler.emit(logging.LogRecord("x", logging.ERROR, __file__, 1, "worker %d crashed", (number,), info))
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "crashed" in line] == [f"worker {number} crashed" for number in range(3)]
    assert len([line for line in lines if "raise ValueError" in line]) == 1


def test_a_long_recursion_is_cut_short() -> None:
    def fall(depth: int) -> None:
        if depth == 0:
            raise ValueError("deep")
        fall(depth - 1)

    try:
        fall(100)
    except ValueError as error:
        lines = error_report.report(error).splitlines()
    assert len(lines) < 12
    assert lines[-1].endswith('raise ValueError("deep")')


def test_a_full_disk_is_reported_with_what_is_kept_and_what_to_do() -> None:
    reported = error_report.report(OSError(errno.ENOSPC, "No space left on device", "trials/a/x"))
    assert "trials/a/x" in reported
    assert "free some space" in reported
