"""A training run's policy is a model of its trial; a script's policy is served and evaluated like a trained one."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from experiment import runs
from ludus import errors
from ludus.cli.main import main
from ludus.data.actions import Discrete
from ludus.data.spec import ArraySpec
from ludus.experiment.player import load_player
from ludus.gateway.client import GameClient
from ludus.learn.policies.policy import PolicySpec
from ludus.learn.policies.served import ServedPolicy
from ludus.models.versions.store import VersionStore
from ludus.serving import promotion
from ludus.trial import current as trials
from ludus.trial import trained

SMALL = {
    "steps": 600, "num_envs": 4, "num_steps": 32, "num_epochs": 1, "minibatch_size": 64, "seed": 3, "threads": 1,
    "eval_episodes": 0, "hidden": "16",
}  # fmt: skip
SPREAD = {"embedded": {}, "spread": {"simulators": 1}}
OBS = np.array([0.01, -0.02, 0.03, 0.04], np.float32)


def train(project: Path, how: str, **more: Any) -> Any:
    return ludus.train("ppo", "CartPole-v1", project=str(project), trial="t", **{**SMALL, **SPREAD[how], **more})


def versions(folder: Path) -> dict[int, str]:
    return {each.number: each.digest for each in VersionStore(folder / "models").versions("policy")}


def forward(model: Any) -> Any:
    async def run() -> Any:
        return await asyncio.wait_for(model.forward(OBS), 60.0)

    return asyncio.run(run())


@contextmanager
def served(folder: Path, *more: str) -> Iterator[str]:
    """`ludus serve` as a process; its url."""
    words = [sys.executable, "-m", "ludus", "serve", str(folder), "--port", "0", "--json", *more]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, "it did not come up"
        yield json.loads(said)["url"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait(60)


def played(url: str, session: str) -> int:
    """The version of `policy` that a new session plays."""
    with GameClient(url, session) as game:
        game.start()
        assert json.loads(game.tick(json.dumps(OBS.tolist()).encode()))["action"] in (0, 1)
        return int(dict(game.versions)["policy"])


@pytest.mark.parametrize("how", SPREAD)
def test_what_training_leaves_is_a_model_of_its_trial(tmp_path: Path, how: str) -> None:
    run = train(tmp_path, how)
    before = versions(run.trial_dir)
    for _time in range(2):
        with ludus.init(tmp_path, "t"):
            model = ludus.RemoteModel("policy")
            assert model.versions()[-1].digest == run.result["weights_hash"]
            model.tag("champion")
            assert model.tags() == {"champion": model.step}
            params = load_player(run.trial_dir).policy.runner()(OBS[None])[0]
            np.testing.assert_allclose(forward(model)["params"], params[0], rtol=1e-5, atol=1e-6)
    assert len(versions(run.trial_dir)) == max(1, len(before)), "opening it again publishes nothing"


def test_what_is_learnt_since_is_the_newest_version_and_earlier_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.experiment.training._METRICS_EVERY_S", 0.0)  # it is stopped after its first update

    def stop(_step: int, _values: dict[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, "embedded", steps=20_000, on_progress=stop)
    with ludus.init(tmp_path, "t"):
        ludus.RemoteModel("policy").tag("early")
    result = ludus.resume("t", project=str(tmp_path)).result
    with ludus.init(tmp_path, "t"):
        model = ludus.RemoteModel("policy")
        assert (model.step, model.tags()) == (1, {"early": 0})
        assert model.versions()[-1].digest == result["weights_hash"]


@pytest.mark.parametrize("how", SPREAD)
def test_what_a_script_publishes_later_stays_the_newest(tmp_path: Path, how: str) -> None:
    run = train(tmp_path, how)
    with ludus.init(tmp_path, "t"):
        model = ludus.RemoteModel("policy")
        halved = {name: np.asarray(0.5 * array, array.dtype) for name, array in _weights(run.trial_dir).items()}
        mine = model.publish_weights(halved)
    for damage in (None, b"", b"[1]"):
        if damage is not None:
            (run.trial_dir / "models" / "policy" / "adopted.json").write_bytes(damage)
        with ludus.init(tmp_path, "t"):
            assert ludus.RemoteModel("policy").step == mine
    (newest,) = (run.trial_dir / "models" / "policy").glob(f"{mine:09d}-*.weights")
    for path in (newest, *(run.trial_dir / "models" / "policy").glob(f"{mine - 1:09d}-*.weights")):
        path.write_bytes(path.read_bytes()[:100])
    with ludus.init(tmp_path, "t"):
        assert ludus.RemoteModel("policy").versions()[-1].digest == run.result["weights_hash"], "published again"


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", SPREAD)
def test_promoted_killed_resumed_served_production_is_still_there(tmp_path: Path, how: str) -> None:
    settings = {**SMALL, **SPREAD[how], "steps": 12_000, "checkpoint_seconds": 0, "project": str(tmp_path)}
    folder = tmp_path / "killed"
    child = runs.start(runs.train, "ppo", runs.slow_cartpole(tmp_path), {**settings, "trial": "killed"})
    runs.wait_until(lambda: runs.saved_step(folder) > 0)
    assert main(["promote", "killed", "--project", str(tmp_path)]) == 0
    number = VersionStore(folder / "models").tags("policy")["production"]
    promoted = VersionStore(folder / "models").verify("policy", "production").digest
    saved = runs.saved_step(folder)
    runs.wait_until(lambda: runs.saved_step(folder) > saved)
    runs.kill(child)
    runs.wait_until(lambda: not runs.is_worked_on(folder))

    runs.hurry(tmp_path)
    result = ludus.resume("killed", project=str(tmp_path)).result
    with served(folder) as url:
        assert played(url, "a") == number
    store = VersionStore(folder / "models")
    assert store.tags("policy")["production"] == number
    assert store.verify("policy", "production").digest == promoted
    assert store.get("policy")[0].digest == result["weights_hash"], "the newest is what was trained to the end"
    assert store.latest("policy") != number
    assert promotion.history(folder, "policy") == [number]


def test_tags_of_the_store_that_training_once_had_are_taken_over_once(tmp_path: Path) -> None:
    run = train(tmp_path, "spread")
    folder = run.trial_dir
    old = VersionStore(folder / "models")
    numbers = sorted(versions(folder))
    old.tag("policy", "production", numbers[0])
    old.tag("policy", "production-0", numbers[0])
    old.tag("policy", "other", numbers[1])
    digests = versions(folder)
    shutil.move(folder / "models", folder / "versions")
    store = VersionStore(folder / "models")
    store.publish("policy", {name: 2 * array for name, array in _weights(folder).items()}, number=numbers[1])
    for _time in range(2):
        with ludus.init(tmp_path, "t"):
            tags = ludus.RemoteModel("policy").tags()
            assert tags["production"] == tags["production-0"] == numbers[0]
            assert tags["other"] not in numbers[:2], "that number stands for other weights"
            for tag, number in (("production", numbers[0]), ("other", numbers[1])):
                assert store.verify("policy", tag).digest == digests[number]
            assert run.result["weights_hash"] in versions(folder).values()
    assert (folder / "versions.old").is_dir()
    assert not (folder / "versions").exists()


def _weights(folder: Path) -> dict[str, Any]:
    return load_player(folder).policy.weights()


def test_a_trial_whose_policy_cannot_be_opened_can_be_used_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = train(tmp_path, "embedded").trial_dir
    config = json.loads((folder / "config.json").read_text())
    config["train"]["env"] = "a_module:Mine-v0"
    (folder / "config.json").write_text(json.dumps(config))
    with ludus.init(tmp_path, "t"):
        assert "cannot be used as model 'policy'" in caplog.text
        assert ludus.RemoteBuffer("b").push(1) == 1
    with pytest.raises(errors.ConfigError, match="nothing was run"):
        trained.publish(folder)


def test_a_run_without_a_checkpoint_has_no_model_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = train(tmp_path, "embedded").trial_dir
    shutil.rmtree(folder / "checkpoints")
    with ludus.init(tmp_path, "t"):
        assert not (folder / "models").exists()
    assert main(["promote", "t", "--project", str(tmp_path)]) == 2
    assert "'policy' has no version 'latest'" in capsys.readouterr().err


@pytest.mark.timeout(300)
def test_a_policy_that_a_script_made_is_served_promoted_and_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = ServedPolicy(PolicySpec(obs=ArraySpec((4,), np.float32), action=Discrete(2)), seed=1)
    with ludus.init(tmp_path, "script"):
        model = ludus.RemoteModel("policy", policy, forward_args=policy.example())
        model.publish_weights({name: 0.5 * array for name, array in policy.weights().items()})
        ludus.RemoteModel("other", ServedPolicy(policy.spec, seed=2), forward_args=policy.example())
    folder = tmp_path / "script"
    assert main(["promote", "script", "0", "--project", str(tmp_path)]) == 0
    with served(folder) as url:
        assert played(url, "a") == 0
        assert main(["promote", str(folder)]) == 0
        assert played(url, "b") == 1
        assert main(["rollback", str(folder)]) == 0
        assert played(url, "c") == 0
    capsys.readouterr()
    for name in ("policy", "other"):
        words = ["evaluate", str(folder), "--env", "CartPole-v1", "--episodes", "3", "--json", "--model", name]
        assert main(words) == 0
        assert json.loads(capsys.readouterr().out)["episodes"] == 3
    assert main(["evaluate", str(folder), "--episodes", "3"]) == 2
    assert "say what it plays" in capsys.readouterr().err
    assert main(["evaluate", str(folder), "--env", "Pendulum-v1"]) == 2
    assert "Pendulum-v1 shows" in capsys.readouterr().err
    assert main(["serve", str(folder), "--model", "othr"]) == 2
    assert "Did you mean 'other'?" in capsys.readouterr().err


def test_a_run_in_one_process_is_in_its_trial_and_can_be_joined_once_that_is_used(tmp_path: Path) -> None:
    joined: list[str] = []

    def use(step: int, _values: dict[str, float]) -> None:
        if joined:
            return
        assert json.loads((tmp_path / "t" / "trial.json").read_text())["experiment"] == "train", (
            "nobody has asked for it"
        )
        with pytest.raises(errors.WorkerError, match="trains in the trial"):
            ludus.init(tmp_path, "t")
        ludus.merge("mine", float(step))
        assert trials.current().folder == tmp_path / "t"
        assert len(ludus.RemoteBuffer("b")) == 0, "from here on it has names"
        code = "import sys, ludus; print(ludus.init(sys.argv[1], 't').is_driver, ludus.RemoteBuffer('b').push(1))"
        words = [sys.executable, "-c", code, str(tmp_path)]
        joined.append(subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout.strip())
        assert ludus.RemoteBuffer("b").take(1, 5.0) == [1]

    run = train(tmp_path, "embedded", on_progress=use)
    assert joined == ["False 1"]
    lines = [json.loads(line) for line in (run.trial_dir / "metrics.jsonl").read_text().splitlines()]
    assert any("mine" in line for line in lines)
    assert lines[-1]["step"] == run.result["steps"]
    assert "train/loss" in lines[0], "one writer: what was merged has not cost the loop its lines"
    assert json.loads((run.trial_dir / "trial.json").read_text())["ended"] == "finished"
    with pytest.raises(errors.WorkerError, match="belongs to no trial"):
        trials.current()
    assert train(tmp_path / "other", "embedded").result["weights_hash"] == run.result["weights_hash"]


def test_a_run_inside_a_script_with_a_trial_leaves_that_alone(tmp_path: Path) -> None:
    with ludus.init(tmp_path, "script") as script:
        seen = []
        run = train(tmp_path, "embedded", on_progress=lambda _step, _values: seen.append(trials.current()))
        assert set(seen) == {script}
        assert ludus.RemoteBuffer("b").push(1) == 1
    assert json.loads((run.trial_dir / "trial.json").read_text())["ended"] == "finished"


def test_a_trial_can_be_opened_while_another_trains_here(tmp_path: Path) -> None:
    opened: list[bool] = []

    def open_another(_step: int, _values: dict[str, float]) -> None:
        if not opened:
            with ludus.init(tmp_path, "script") as script:
                opened.append(script.is_driver and trials.current() is script)

    train(tmp_path, "embedded", on_progress=open_another)
    assert opened == [True]
