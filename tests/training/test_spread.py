"""A run over many processes is a trial like any other: it is joined, merged into, commanded, interrupted and killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ludus
from experiment import runs
from ludus import errors
from ludus.cli.main import main
from ludus.launch import guard, lifeline
from ludus.program import lock
from ludus.program.folder import TrialFolder
from ludus.telemetry.metrics_file import read_metrics
from ludus.trial import current as trials
from ludus.trial.metrics import TrialMetrics
from trial.named.drivers import finish, mentioning, read_line, start, wait_until

pytestmark = pytest.mark.timeout(300)
SMALL = {
    "steps": 3_000, "num_envs": 4, "num_steps": 32, "num_epochs": 1, "seed": 3, "threads": 1, "eval_episodes": 0,
    "simulators": 1, "checkpoint_seconds": 1000,
}  # fmt: skip
JOIN = """
import asyncio, sys
import numpy as np
import ludus
trial = ludus.init(sys.argv[1], "t")
ludus.merge("joined", 7.0)
model = ludus.RemoteModel("policy")
params = asyncio.run(model.forward(np.zeros(4, np.float32)))["params"]
print(trial.is_driver, params.shape, model.step >= 0, trial.remote("trainer").progress()["step"] >= 0)
"""
JOIN_WHEN_IT_BEGINS = """
import sys, time, ludus
trial = ludus.init(sys.argv[1], "t")
print(trial.is_driver, flush=True)
while not trial.wait_stopping(60.0):
    pass
print("ended", flush=True)
"""
MERGING_ENV = """
import os
import gymnasium
import ludus
from ludus.trial.named.merge import flush

class Merging(gymnasium.Wrapper):
    num_steps = 0

    def step(self, action):
        ludus.merge("mine", float(action), desc={"time_window_cnt": "steps", "time_window_max": "the greatest"})
        ludus.merge("process", float(os.getpid()))
        Merging.num_steps += 1
        if Merging.num_steps % 500 == 0:
            flush()  # on a busy machine a simulator may not leave in time to do so at its end
        return super().step(action)

def make():
    return Merging(gymnasium.make("CartPole-v1"))
"""
OWN_SCRIPT = """
from pathlib import Path

import gymnasium
import torch

import ludus
from ludus.learn.algorithms.ppo import PPO


class Mine(PPO):
    pass


def make():
    return gymnasium.make("CartPole-v1")


class Net(torch.nn.Module):
    def __init__(self, num_outputs):
        super().__init__()
        self.outputs, self.value = torch.nn.Linear(4, num_outputs), torch.nn.Linear(4, 1)

    def forward(self, obs):
        return self.outputs(obs), self.value(obs).squeeze(-1)


def build(obs, num_outputs):
    return Net(num_outputs)


def main():
    with Path("FOLDER", "runs").open("a") as file:
        file.write("run\\n")
    ludus.train(
        "__main__:Mine", "__main__:make", model="__main__:build", steps=500, num_envs=4, num_steps=32, num_epochs=1,
        threads=1, eval_episodes=0, project="FOLDER", trial="t", simulators=SIMULATORS,
    )

"""
GUARD = """
if __name__ == "__main__":
    main()
"""


def run_script(folder: Path, call: str, *, by: str = "script.py", simulators: int) -> subprocess.CompletedProcess[str]:
    """As `python script.py`, `python -m script` or `python -c SCRIPT`."""
    script = OWN_SCRIPT.replace("FOLDER", str(folder)).replace("SIMULATORS", str(simulators)) + call
    (folder / "script.py").write_text(script)
    words = {"script.py": ["script.py"], "-m": ["-m", "script"], "-c": ["-c", script]}[by]
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("by", ["script.py", "-m"])
def test_workers_find_what_a_script_names_in_main(tmp_path: Path, by: str) -> None:
    done = run_script(tmp_path, GUARD, by=by, simulators=1)
    assert done.returncode == 0, done.stderr
    config = saved(tmp_path / "t", "config.json")
    where = "script" if by == "-m" else str(tmp_path / "script.py")
    named = (config["train"]["algorithm"], config["train"]["env"], config["network"]["model"])
    assert named == (f"{where}:Mine", f"{where}:make", f"{where}:build")


def test_a_script_without_a_guard_runs_once_in_one_process(tmp_path: Path) -> None:
    done = run_script(tmp_path, "main()", simulators=0)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_script_without_a_guard_is_asked_for_it_if_its_run_has_workers(tmp_path: Path) -> None:
    done = run_script(tmp_path, "main()", simulators=1)
    assert done.returncode == 1
    assert 'must do so below `if __name__ == "__main__":`' in done.stderr


def test_main_without_a_file_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    done = run_script(tmp_path, "main()", by="-c", simulators=1)
    assert done.returncode == 1
    assert "ConfigError: algorithm=__main__:Mine cannot be found by the workers of this run" in done.stderr
    assert not (tmp_path / "t").exists()


def train(project: Path, env: str = "CartPole-v1", algorithm: str = "ppo", **more: Any) -> Any:
    return ludus.train(algorithm, env, project=str(project), trial="t", **{**SMALL, **more})


def saved(folder: Path, name: str = "trial.json") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text())
    return content


def test_another_process_joins_a_run_merges_into_it_and_uses_its_policy(tmp_path: Path) -> None:
    answered: list[str] = []

    def join(step: int, _values: dict[str, float]) -> None:
        if answered:
            return
        assert (trials.current().folder, trials.current().is_driver) == (tmp_path / "t", True)
        ludus.merge("here", 3.0)
        done = subprocess.run([sys.executable, "-c", JOIN, str(tmp_path)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        answered.append(done.stdout.strip())
        assert not runs.saved_step(tmp_path / "t"), "its policy can be used before the first checkpoint"
        runs.hurry(tmp_path)

    env = runs.slow_cartpole(tmp_path)
    run = train(tmp_path, env, on_progress=join, steps=16_000)
    assert answered == ["False (2,) True True"]
    lines = read_metrics(run.trial_dir)
    assert [line["joined"] for line in lines if "joined" in line] == [7.0]
    assert [line["here"] for line in lines if "here" in line] == [3.0]
    assert all(line.get("axis", "steps") == "steps" for line in lines), "it is written by the steps of the loop"
    nodes = [node["name"] for node in saved(run.trial_dir, "program.json")["nodes"]]
    assert nodes == ["driver", "simulator", "trainer"]
    assert saved(run.trial_dir)["ended"] == "stopped"
    assert train(tmp_path / "alone", env, steps=16_000).result["weights_hash"] == run.result["weights_hash"]
    with pytest.raises(errors.WorkerError, match="belongs to no trial"):
        trials.current()


@pytest.mark.parametrize(
    ("algorithm", "more"), [("ppo", {"simulators": 2}), ("appo", {}), ("impala", {"inference": 1})]
)
def test_what_an_env_in_a_simulator_merges_is_in_the_metrics(
    tmp_path: Path, algorithm: str, more: dict[str, Any]
) -> None:
    (tmp_path / "mine.py").write_text(MERGING_ENV)
    run = train(tmp_path, f"{tmp_path / 'mine.py'}:make", algorithm, **more)
    lines = read_metrics(run.trial_dir)
    assert sum(line.get("mine/cnt", 0) for line in lines) >= 1_000
    assert max(line.get("mine/max", 0.0) for line in lines) == 1.0
    assert float(os.getpid()) not in {line["process"] for line in lines if "process" in line}
    assert any("process" in line for line in lines)


def test_one_who_comes_before_it_has_started_waits_and_is_notified_of_its_end(tmp_path: Path) -> None:
    folder = TrialFolder.create(tmp_path, "t")
    metrics = TrialMetrics(folder.path, is_loops=True)
    with trials.take(folder, engine="local", metrics=metrics, has_workers=True) as trial:
        assert not trial.has_started
        other = start(JOIN_WHEN_IT_BEGINS, tmp_path)
        time.sleep(1.0)  # it has come by then; if not, the test asserts less
        holder = lock.find_holder(folder.path)
        assert holder is not None
        assert holder.phase is lock.Phase.STARTING
        assert trial.driver.runs() == []
        assert read_line(other) == "False"
    assert finish(other)[0].strip() == "ended"


def test_a_run_inside_a_process_of_another_trial_leaves_that_alone(tmp_path: Path) -> None:
    def merge(step: int, _values: dict[str, float]) -> None:
        ludus.merge("mine", 1.0)
        runs.hurry(tmp_path)

    with ludus.init(tmp_path, "mine") as mine:
        run = train(tmp_path, runs.slow_cartpole(tmp_path), on_progress=merge)
        assert trials.current() is mine
        assert ludus.RemoteBuffer("b").push(1) == 1
    assert run.result["steps"] >= 3_000
    assert any("mine" in line for line in read_metrics(tmp_path / "mine"))
    assert not any("mine" in line for line in read_metrics(tmp_path / "t"))


@pytest.mark.parametrize(("algorithm", "own"), [("ppo", []), ("appo", ["buffer/0"])], ids=["sync", "async"])
def test_ctl_lists_pauses_and_ends_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: str, own: list[str]
) -> None:
    shown: dict[str, str] = {}

    def command(step: int, _values: dict[str, float]) -> None:
        if shown:
            return
        capsys.readouterr()
        for words in ("list", "stats", "pause --workers simulator/.*", "ping", "resume", "exit"):
            code = main(["ctl", str(tmp_path / "t"), *words.split()])
            # a trainer that waits for a simulator which has just left does not answer; its driver ends it
            assert code == 0 or (words, algorithm) == ("exit", "ppo"), words
            shown[words.split()[0]] = capsys.readouterr().out

    with pytest.raises(errors.TrainingError, match=r"ended without a result.*ludus resume t"):
        train(tmp_path, algorithm=algorithm, steps=1_000_000, on_progress=command)
    names = [*own, "driver/0", "simulator/0", "trainer/0", "weights/0"]
    for action in ("list", "stats", "exit"):
        assert re.findall(r"^ *(\w+/\d)", shown[action], re.MULTILINE) == names
    assert re.search(r"simulator/0 +paused", shown["ping"])
    assert "step=" in shown["stats"]
    assert saved(tmp_path / "t")["ended"] in ("asked to exit", "stopped")
    assert mentioning(str(tmp_path / "t")) == []


def test_the_driver_can_be_asked_to_end_a_run_which_keeps_a_checkpoint(tmp_path: Path) -> None:
    def stop(step: int, _values: dict[str, float]) -> None:
        trials.current().ask_driver("stop", "enough")

    with pytest.raises(errors.TrainingError, match=r"ended without a result.*from its checkpoint of step"):
        train(tmp_path, steps=1_000_000, on_progress=stop)
    assert saved(tmp_path / "t")["ended"] == "enough"


@pytest.mark.chaos
def test_no_worker_outlives_a_killed_driver_for_long(tmp_path: Path) -> None:
    settings = {**SMALL, "steps": 1_000_000, "simulators": 2, "project": str(tmp_path), "trial": "t"}
    child = runs.start(runs.train, "appo", "CartPole-v1", settings)
    metrics = tmp_path / "t" / "metrics.jsonl"
    runs.wait_until(lambda: metrics.exists() and metrics.read_text())
    assert runs.is_worked_on(tmp_path / "t")
    runs.kill(child)
    wait_until(lambda: not runs.is_worked_on(tmp_path / "t"), timeout_s=30.0)  # three, if the machine is not busy
    assert max(lifeline._GRACE_S + 0.5, guard.GRACE_S) < 3.0


@pytest.mark.chaos
def test_a_second_ctrl_c_does_not_wait_for_the_checkpoint(tmp_path: Path) -> None:
    words = ["train", "ppo", runs.slow_cartpole(tmp_path), "--trial", "t", "--project", str(tmp_path)]
    for name, value in {**SMALL, "num_envs": 8, "num_steps": 2000, "minibatch_size": 1000}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]  # a turn takes more than a minute
    process = subprocess.Popen(
        [sys.executable, "-m", "ludus", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    log = tmp_path / "t" / "logs" / "simulator-0.log"
    wait_until(lambda: log.exists() and runs.is_worked_on(tmp_path / "t"), timeout_s=60.0)
    wait_until(lambda: (tmp_path / "t" / "models" / "policy").is_dir(), timeout_s=60.0)
    os.kill(process.pid, signal.SIGINT)
    assert any("a second Ctrl-C ends the run without it" in line for line in process.stderr)
    os.kill(process.pid, signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=60)
    assert time.monotonic() - began < 15.0, "five seconds for those who could still leave by themselves"
    assert process.returncode == 130
    assert mentioning(str(tmp_path / "t" / "workers")) == []
