"""Games are envs: a training run that games call, whatever they and its processes do."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ludus
from discovery.servers import free_port
from ludus import errors
from ludus.gateway.client import GameClient, GameError

from . import runs

EXAMPLES = Path(__file__).parents[2] / "examples"
CLIENTS = Path(__file__).parents[2] / "clients"
COMPILE = ("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread")
SPEC = {"obs": {"shape": [4], "dtype": "float32"}, "action": {"discrete": 2}}
FEW: dict[str, Any] = {"num_envs": 8, "num_steps": 32, "threads": 1, "seed": 1}
RANDOM = 22.0  # what random play brings in CartPole


@contextlib.contextmanager
def cartpole(port: int, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The example, until the end of the block."""
    command = [sys.executable, str(EXAMPLES / "cartpole_game.py"), "--port", str(port), "--games", "8", *words]
    with playing(command) as process:
        yield process


@contextlib.contextmanager
def playing(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=300)


def train(algorithm: str, port: int, folder: Path, *, games: dict[str, Any] | None = None, **settings: Any) -> Any:
    described = ludus.Games(port=port, **SPEC, **(games or {}))
    return ludus.train(algorithm, described, project=str(folder), trial="t", **{**FEW, **settings}).result


class Training(threading.Thread):
    """A run beside the test: its result, or what it raised."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(daemon=True)
        self._call, self._outcome = (args, kwargs), queue.SimpleQueue[Any]()
        self.start()

    def run(self) -> None:
        try:
            self._outcome.put(train(*self._call[0], **self._call[1]))
        except BaseException as error:
            self._outcome.put(error)

    def result(self) -> dict[str, Any]:
        outcome = self._outcome.get(timeout=300)
        if isinstance(outcome, BaseException):
            raise outcome
        result: dict[str, Any] = outcome
        return result


@pytest.mark.parametrize(("algorithm", "steps"), [("ppo", 6_000), ("appo", 10_000), ("a2c", 6_000), ("dqn", 8_000)])
def test_a_game_that_only_speaks_the_protocol_is_learnt(algorithm: str, steps: int, tmp_path: Path) -> None:
    port = free_port()
    own = {"num_steps": 16, "gamma": 0.98, "learning_rate": 3e-3} if algorithm != "dqn" else {"min_size": 500}
    with cartpole(port):
        result = train(algorithm, port, tmp_path, steps=steps, eval_episodes=20, **own)
    assert result["env"] == f"game://127.0.0.1:{port}"
    assert result["steps"] >= steps
    assert result["eval_episodes"] == 20
    assert result["episodes"] > 20
    if algorithm != "a2c":  # which does not correct for lag: on a busy machine it may unlearn; `learn.py --part games`
        assert result["eval_return_mean"] > 2 * RANDOM
        assert result["return_mean"] > RANDOM


def test_the_game_may_be_one_in_cpp(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ here")
    port, program = free_port(), str(tmp_path / "cartpole")
    source = CLIENTS / "cpp" / "cartpole.cpp"
    subprocess.run([*COMPILE, str(source), "-o", program], check=True, timeout=300)
    with playing([program, "127.0.0.1", str(port), "8"]):
        result = train("ppo", port, tmp_path, steps=6_000, num_steps=16, learning_rate=3e-3, eval_episodes=20)
    assert result["eval_episodes"] == 20
    assert result["eval_return_mean"] > 2 * RANDOM


def test_two_trainers_and_two_gateway_workers_share_the_sessions(tmp_path: Path) -> None:
    port = free_port()
    with cartpole(port):
        result = train("ppo", port, tmp_path, steps=4_000, trainers=2, simulators=2, eval_episodes=4)
    assert result["steps"] >= 4_000
    assert result["eval_episodes"] == 4
    metrics = [json.loads(line) for line in (tmp_path / "t" / "metrics.jsonl").read_text().splitlines()]
    assert any("lag/max" in line for line in metrics)
    both = [
        json.loads((tmp_path / "t" / name / "checkpoints.json").read_text())
        for name in ("checkpoints", "checkpoints-1")
    ]
    assert both[0]["checkpoints"][-1]["step"] == both[1]["checkpoints"][-1]["step"] == result["steps"]


def run_command(*words: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludus.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "game.json"
    path.write_text(json.dumps(SPEC))
    return path


def few_words(folder: Path, spec_file: Path, *, steps: int) -> list[str]:
    few = [f"--{name.replace('_', '-')}={value}" for name, value in FEW.items()]
    return ["--spec", str(spec_file), "--project", str(folder), "--trial", "t", f"--steps={steps}", *few]


@pytest.mark.chaos
def test_killed_whole_resumed_and_then_served(tmp_path: Path, spec_file: Path) -> None:
    port, trial = free_port(), tmp_path / "t"
    words = few_words(tmp_path, spec_file, steps=6_000)
    command = ["train", "ppo", f"game://127.0.0.1:{port}", *words, "--checkpoint-seconds=0", "--eval-episodes=5"]
    with cartpole(port):
        driver = subprocess.Popen([sys.executable, "-m", "ludus.cli.main", *command], stderr=subprocess.DEVNULL)
        try:
            runs.wait_until(lambda: runs.saved_step(trial) > 0)
            pids = [driver.pid, runs.pid_of(trial, "trainer/0"), runs.pid_of(trial, "gateway/0")]
        finally:
            driver.send_signal(signal.SIGSTOP)  # so that it does not notice the others' end
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        driver.wait(60)
        runs.wait_until(lambda: not runs.is_worked_on(trial))
        saved = runs.saved_step(trial)
        assert 0 < saved < 6_000
        spec_file.unlink()
        done = run_command("resume", str(trial), "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout.splitlines()[-1])
        assert result["steps"] >= 6_000
        assert result["eval_episodes"] == 5
    steps = [json.loads(line)["step"] for line in (trial / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps), "one run: what was measured after the checkpoint is forgotten"
    serve = [sys.executable, "-m", "ludus.cli.main", "serve", str(trial), "--port", str(port), "--json"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            assert json.loads(serving.stdout.readline())["url"] == f"http://127.0.0.1:{port}"
            with cartpole(port, "--episodes", "8") as game:
                report = json.loads(game.communicate(timeout=300)[0])
            assert report["episodes"] >= 8
            assert report["return_mean_of_last_100"] > 0.3 * result["eval_return_mean"], (
                "it is the policy that was learnt"
            )
        finally:
            serving.send_signal(signal.SIGINT)
    assert serving.returncode == 0


@pytest.mark.chaos
def test_a_gateway_worker_that_is_killed_is_replaced_and_the_run_goes_on(tmp_path: Path) -> None:
    port, trial = free_port(), tmp_path / "t"
    with cartpole(port):
        training = Training("a2c", port, tmp_path, steps=6_000, eval_episodes=2, checkpoint_seconds=0)
        runs.wait_until(lambda: runs.saved_step(trial) > 0)
        first = runs.pid_of(trial, "gateway/0")
        os.kill(first, signal.SIGKILL)
        result = training.result()
    assert result["steps"] >= 6_000
    assert result["eval_episodes"] == 2
    assert runs.saved_step(trial) == result["steps"]


@pytest.mark.chaos
def test_a_trainer_that_is_killed_ends_the_run_and_says_how_to_go_on(tmp_path: Path) -> None:
    port, trial = free_port(), tmp_path / "t"
    with cartpole(port):
        training = Training("a2c", port, tmp_path, steps=500_000, eval_episodes=2, checkpoint_seconds=0.2)
        runs.wait_until(lambda: runs.saved_step(trial) > 0)
        os.kill(runs.pid_of(trial, "trainer/0"), signal.SIGKILL)
        with pytest.raises(errors.TrainingError, match="ludus resume"):
            training.result()
    runs.wait_until(lambda: not runs.is_worked_on(trial))


def test_no_game_comes_the_run_says_so_can_be_stopped_and_goes_on_later(tmp_path: Path, spec_file: Path) -> None:
    port = free_port()
    words = few_words(tmp_path, spec_file, steps=1_000)
    command = ["train", "a2c", f"game://127.0.0.1:{port}", *words, "--eval-episodes=0", "--trainers=2"]
    waiting = f"wait for games on 127.0.0.1:{port}"
    with subprocess.Popen(
        [sys.executable, "-m", "ludus.cli.main", *command], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        seen = ""
        while waiting not in seen:
            line = process.stderr.readline()
            assert line, f"it has ended: {seen}"
            seen += line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    assert process.returncode == 130
    with cartpole(port):
        done = run_command("resume", str(tmp_path / "t"), "--json")
    assert json.loads(done.stdout.splitlines()[-1])["steps"] >= 1_000, done.stderr


def test_a_run_that_waits_for_its_evaluation_can_be_stopped_and_goes_on_with_it(
    tmp_path: Path, spec_file: Path
) -> None:
    port, trial = free_port(), tmp_path / "t"
    words = few_words(tmp_path, spec_file, steps=300)
    command = ["train", "a2c", f"game://127.0.0.1:{port}", *words, "--num-envs=2", "--num-steps=8", "--eval-episodes=3"]
    with subprocess.Popen(
        [sys.executable, "-m", "ludus.cli.main", *command], stderr=subprocess.PIPE, text=True
    ) as process:
        url, body = f"http://127.0.0.1:{port}", b'{"obs": [0.1, 0.2, 0.3, 0.4], "reward": 1.0}'
        with GameClient(url, timeout_s=60) as game:
            wait_for_gateway(game)
            game.start()
            while runs.saved_step(trial) < 300:  # the last checkpoint: all is learnt
                game.tick(body)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    assert process.returncode == 130
    assert not (trial / "result.json").exists()
    with cartpole(port):
        done = run_command("resume", str(trial), "--json")
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["steps"], result["eval_episodes"]) == (runs.saved_step(trial), 3)


def test_nests_masks_several_choices_and_state(tmp_path: Path) -> None:
    port = free_port()
    obs = {"image": {"shape": [2, 3], "dtype": "uint8", "low": 0, "high": 255}, "body": {"speed": {"shape": []}}}
    games = ludus.Games(port=port, obs=obs, action={"multi_discrete": [3, 2]}, mask=True)
    settings = {**FEW, "steps": 64, "num_envs": 2, "num_steps": 8, "eval_episodes": 1, "recurrent": "gru"}
    outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        outcome.put(ludus.train("ppo", games, project=str(tmp_path), trial="t", **settings).result)

    threading.Thread(target=run, daemon=True).start()
    seen = {"image": [[0, 1, 2], [3, 4, 255]], "body": {"speed": 0.5}}
    with GameClient(f"http://127.0.0.1:{port}", timeout_s=60) as game:
        wait_for_gateway(game, msgspec.json.encode({"obs": seen}))
        while outcome.empty():
            with contextlib.suppress(errors.RpcError):  # the run is over
                game.start(msgspec.json.encode({"obs": seen, "mask": [True, False, False, False, True]}))
                for reward in range(5):
                    body = {"obs": seen, "reward": reward, "mask": [False, False, True, True, False]}
                    assert json.loads(game.tick(msgspec.json.encode(body))) == {"action": [2, 0]}
                game.end(msgspec.json.encode({"reward": 5.0, "terminated": True}))
    result = outcome.get(timeout=300)
    assert result["steps"] >= 64
    assert (result["return_mean"], result["eval_return_mean"]) == (15.0, 15.0)


def test_a_wrong_observation_is_refused_with_a_sentence_and_nothing_is_learnt_from_it(tmp_path: Path) -> None:
    port = free_port()
    training = Training("a2c", port, tmp_path, steps=48, num_envs=1, num_steps=8, eval_episodes=0)
    with GameClient(f"http://127.0.0.1:{port}", timeout_s=60, retries=60) as game:
        wait_for_gateway(game)
        game.start()
        wrong = {
            b"[1, 2, 3]": r"obs must be an array of shape \(4,\) and float32; this one has the shape \(3,\)",
            b'{"obs": [0, 0, 0, 0], "reward": "much"}': "a reward is a number",
            b'{"obs": [0, 0, 0, 0], "mask": [true, false]}': '"mask": true',
            msgspec.msgpack.encode([0.0, float("nan"), 0.0, 0.0]): "obs has a number that is not finite",
            msgspec.msgpack.encode({"obs": [0.0] * 4, "reward": float("inf")}): "a reward is a finite number",
        }
        for step in range(48 + 8):
            for body, message in wrong.items():
                with pytest.raises(GameError, match=message) as raised:
                    game.tick(body)
                assert (raised.value.status, raised.value.code) == (422, "invalid_observation")
            if step == 48:
                break
            assert json.loads(game.tick(b'{"obs": [0.1, 0.2, 0.3, 0.4], "reward": 1.0}'))["action"] in (0, 1)
        game.tick(b"[0.1, 0.2, 0.3, 0.4]")  # the last segment is full
        assert training.result()["steps"] == 48


def wait_for_gateway(game: GameClient, body: bytes = b"[0, 0, 0, 0]") -> None:
    """Until the trainer is up, connections wait at the port; before that there is none."""
    until = time.monotonic() + 180
    while True:
        try:
            game.stateless(body)
            return
        except errors.RpcError:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_a_game_that_vanishes_is_an_episode_that_was_cut_off(tmp_path: Path) -> None:
    port = free_port()
    games = {"lease_s": 3.0, "eval_wait_s": 0.5}  # a lease that a busy machine keeps, too
    training = Training("a2c", port, tmp_path, games=games, steps=16, num_envs=1, num_steps=4, eval_episodes=2)
    url, body = f"http://127.0.0.1:{port}", b'{"obs": [0.1, 0.2, 0.3, 0.4], "reward": 1.0}'
    with GameClient(url, "vanishes", timeout_s=60) as game:
        wait_for_gateway(game)
        game.start(b"[0, 0, 0, 0]")
        for _ in range(5):
            game.tick(body)
    with GameClient(url, "vanishes", timeout_s=60) as game:
        runs.wait_until(lambda: is_over(game))
    with GameClient(url, "stays", timeout_s=60) as game:
        game.start()
        with contextlib.suppress(errors.RpcError):  # the run is over
            while True:
                game.tick(b"[0, 0, 0, 0]")
    result = training.result()
    assert (result["episodes"], result["return_mean"]) == (1, 5.0), "what it played until then"
    assert result["steps"] >= 16
    assert (result["eval_episodes"], result["eval_return_mean"]) == (0, None)
    assert "not evaluated" in result["eval_error"], "the session that stayed was started in training"


def is_over(game: GameClient) -> bool:
    """Whether its session has ended. A tick that is out of order keeps no session alive."""
    try:
        game.end()
    except GameError as error:
        return error.code == "unknown_session"
    return False


def test_a_port_that_is_taken_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(errors.ConfigError, match=r"port \d+ cannot be served"):
            train("ppo", taken.getsockname()[1], tmp_path, steps=100)
    assert not (tmp_path / "t").exists(), "the name of the trial is free"


def test_beyond_loopback_a_secret_is_needed(tmp_path: Path) -> None:
    with pytest.raises(errors.Unauthorised, match="token or a secret"):
        train("ppo", free_port(), tmp_path, games={"host": "0.0.0.0"}, steps=100)
