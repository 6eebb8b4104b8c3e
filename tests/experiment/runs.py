"""Runs in processes of their own, to be killed; each is forked from a process that has torch loaded already."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from ludus.experiment.training import Training
from ludus.training import api as training

SLOW_ENV = """
import time
from pathlib import Path

import gymnasium

QUICK = Path(__file__).with_name("quick")


class Slow(gymnasium.Wrapper):
    is_quick = False

    def step(self, action):
        if not self.is_quick:
            time.sleep(0.005)
            self.is_quick = QUICK.exists()
        return super().step(action)


def make():
    return Slow(gymnasium.make("CartPole-v1"))
"""

torch.set_num_threads(1)
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["ludus.experiment.wiring", "ludus.training.api", "gymnasium"])


def start(function: Callable[..., None], *args: Any, **kwargs: Any) -> BaseProcess:
    process = _PROCESSES.Process(target=function, args=args, kwargs=kwargs, daemon=True)
    process.start()
    return process


def train(
    algorithm: str, env: str, settings: dict[str, Any], *, die_at_write: int | None = None, ends: bool = True
) -> None:
    """`die_at_write`: kill -9 oneself right before so many files were put in their place. `ends`: see `_never_end`."""
    if die_at_write is not None:
        _die_at_write(die_at_write)
    if not ends:
        _never_end()
    training.train(algorithm, env, **settings)


def resume(trial: str, project: str, *, ends: bool = True) -> None:
    if not ends:
        _never_end()
    training.resume(trial, project=project)


def _never_end() -> None:
    """Wait between the last checkpoint and the result: whoever is to kill it finds it, however fast the machine is."""

    def wait(self: Training) -> dict[str, Any]:
        threading.Event().wait()
        raise AssertionError

    Training.finish = wait  # type: ignore[method-assign]


def _die_at_write(number: int) -> None:
    replace, left = os.replace, number

    def dying(source: Any, target: Any, **options: Any) -> None:
        nonlocal left
        if Path(target).parent.name == "checkpoints":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target, **options)

    os.replace = dying


def slow_cartpole(folder: Path) -> str:
    """CartPole, slow until `hurry(folder)`: a run lasts until it has shown its progress, however fast the machine."""
    (folder / "slow_cartpole.py").write_text(SLOW_ENV)
    return f"{folder / 'slow_cartpole.py'}:make"


def hurry(folder: Path) -> None:
    """From here on `slow_cartpole` is as quick as CartPole."""
    (folder / "quick").touch()


def wait_until(is_so: Callable[[], object], *, timeout_s: float = 120.0) -> None:
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.005)


def saved_step(folder: Path) -> int:
    """Of the newest checkpoint; 0 before the first."""
    try:
        listed = json.loads((folder / "checkpoints" / "checkpoints.json").read_text())["checkpoints"]
    except (OSError, ValueError):
        return 0
    return int(listed[-1]["step"]) if listed else 0


def kill(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(20)
    assert process.exitcode == -signal.SIGKILL


def command(words: list[str], errors_to: str) -> None:
    """`ludus` with these words; what it says on standard error goes to a file."""
    from ludus.cli.main import main
    from ludus.experiment import training as trainings

    trainings._METRICS_EVERY_S = 0.0  # who waits for the first line sees it long before the end
    file = os.open(errors_to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 2)
    raise SystemExit(main(words))


def pid_of(folder: Path, worker: str) -> int:
    """The process that was given the worker's specification."""
    wanted = f"{worker.replace('/', '-')}.spec".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if wanted in command and str(folder).encode() in command:
                return int(entry.name)
    raise AssertionError(f"{worker} does not run")


def is_worked_on(folder: Path) -> bool:
    """Whether any worker of the trial runs."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"{folder}/workers/".encode() in (entry / "cmdline").read_bytes():
                return True
    return False
