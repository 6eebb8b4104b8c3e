"""The examples in which a game calls, run small and whole: every process of theirs is real."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ludus

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(script, *words, timeout=300):
    command = [sys.executable, str(EXAMPLES / script), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-4000:]
    run.said, run.complained = done.stdout, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.timeout(320)
def test_pong_is_trained_through_the_gateway_and_then_served(tmp_path):
    run("pong_http/launch.py", "--project", tmp_path, "--trial", "p", "--versions", 3, "--segments", 8, "--games", 4)
    assert "version 3 of 3" in run.said, "it says how far it is"
    assert "actor_failed" not in run.complained
    assert "was not played to its end" not in run.complained, "a normal end is a quiet one"
    versions = sorted((tmp_path / "p" / "models" / "pong").glob("*.weights"))
    assert versions[-1].name.startswith("000000003-")
    assert (tmp_path / "p" / "metrics.jsonl").read_text().count("points") >= 1
    (result,) = run("pong_http/deploy.py", "--project", tmp_path, "--trial", "p", "--matches", 2)
    assert result["matches"] == 2
    assert max(result["points"], result["points_lost"]) >= 5


def test_pong_is_learnt_without_an_actor_or_a_trainer_of_its_own(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [
        "--spec",
        str(EXAMPLES / "pong_http" / "pong.json"),
        "--steps",
        "400",
        "--num-envs",
        "2",
        "--num-steps",
        "16",
    ]
    command = [
        sys.executable,
        "-m",
        "ludus",
        "train",
        "a2c",
        f"game://127.0.0.1:{port}",
        *words,
        "--eval-episodes",
        "1",
    ]
    training = subprocess.Popen(
        [*command, "--project", str(tmp_path), "--trial", "p", "--json"], stdout=subprocess.PIPE, text=True
    )
    while training.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            break
        time.sleep(0.05)
    game = subprocess.Popen(
        [
            sys.executable,
            str(EXAMPLES / "pong_http" / "gamecore.py"),
            "--url",
            f"http://127.0.0.1:{port}",
            "--games",
            "2",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        said, _ = training.communicate()
    finally:
        for process in (training, game):
            process.kill()
            process.wait()
    result = json.loads(said.splitlines()[-1])
    assert result["steps"] >= 400
    assert result["eval_episodes"] == 1


def test_matches_of_all_lengths_are_kept_whole(tmp_path, monkeypatch):
    """Also those that end where a segment is full, and one step after that."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "pong_http"))
    for name in ("actor", "model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from actor import NUM_STEPS, PongActor
    from model import NUM_FEATURES, PongModel

    step = {"obs": [0.5, 0.5, 0.1, 0.1, 0.5, 0.5], "reward": 1.0}

    async def play(num_moves, how):
        actor = PongActor("pong", "segments")
        await actor.start(ludus.Session(f"match-{num_moves}"), json.dumps(step).encode())
        for _tick in range(num_moves - 1):
            await actor.tick(json.dumps(step).encode())
        last = b"" if how == "gone" else json.dumps({**step, "terminated": how == "won"}).encode()
        await actor.end(last, "asked")

    with ludus.init(tmp_path, "t"):
        ludus.RemoteModel("pong", PongModel(), forward_args=(np.zeros(NUM_FEATURES, np.float32),))
        buffer = ludus.RemoteBuffer("segments", capacity=64)
        segments = iter(buffer)
        sizes = (1, 2, NUM_STEPS - 1, NUM_STEPS, NUM_STEPS + 1, NUM_STEPS + 2, 2 * NUM_STEPS, 2 * NUM_STEPS + 1)
        for num_moves in sizes:
            for how in ("won", "cut off", "gone"):
                asyncio.run(play(num_moves, how))
                num_kept = num_moves - (how == "gone")  # a game that is gone does not say what its last move led to
                weights = []
                while sum(weights) < num_kept:
                    weights.append(int(next(segments)["weight"].sum()))
                assert sum(weights) == num_kept
                assert weights[:-1] == [NUM_STEPS] * (len(weights) - 1)
                assert len(buffer) == 0


def test_cartpole_is_trained_by_a_game_that_only_speaks_the_protocol(tmp_path):
    (result,) = run("cartpole_http/train.py", "--project", tmp_path, "--steps", 4000, "--games", 8, "--episodes", 8)
    assert result["versions"] >= 3
    assert result["episodes"] == 8
    assert result["return_mean"] > 9
