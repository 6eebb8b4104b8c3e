"""Training from datasets: what is recorded, converted by the command and learnt from plays as the expert did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.cli.main import main
from ludus.errors import CheckpointError, ConfigError, DataError
from ludus.experiment.config import resolve
from ludus.experiment.datasets.dataset import Dataset
from ludus.experiment.saved_config import load_config

from . import runs
from .datasets.corridor import CONTINUOUS_CORRIDOR, CORRIDOR, record_corridor
from .datasets.recorded_games import SPEC_FILE, record_cartpole


def test_bc_plays_cartpole_after_20_episodes_that_were_recorded_through_the_gateway(tmp_path: Path) -> None:
    returns = record_cartpole(tmp_path / "log.sessions", episodes=20)
    (tmp_path / "game.json").write_text(json.dumps(SPEC_FILE))
    words = ["--spec", str(tmp_path / "game.json"), "--out", str(tmp_path / "expert")]
    assert main(["dataset", "from-recording", str(tmp_path / "log.sessions"), *words]) == 0
    dataset = Dataset.open(tmp_path / "expert")
    assert (dataset.num_episodes, dataset.num_steps) == (20, sum(returns))
    assert dataset.summary["return_mean"] == sum(returns) / 20
    settings = {"project": str(tmp_path), "steps": 200_000, "seed": 1, "threads": 1, "eval_episodes": 30}
    run = ludus.train("bc", "CartPole-v1", dataset=str(tmp_path / "expert"), **settings)
    assert run.result["eval_return_mean"] >= 475
    assert run.result["steps"] >= 200_000
    assert run.result["episodes"] == 0, "nothing was played in training"


# --- where most went wrong

CORRIDOR_SETTINGS: dict[str, Any] = {
    "batch_size": 64, "hidden": "32", "steps": 40_000, "threads": 1, "seed": 1, "eval_episodes": 8,
}  # fmt: skip


@pytest.mark.parametrize("env", [CORRIDOR, CONTINUOUS_CORRIDOR], ids=["discrete", "continuous"])
def test_iql_finds_the_prize_in_data_of_those_who_mostly_missed_it_and_bc_does_not(tmp_path: Path, env: str) -> None:
    bad = record_corridor(tmp_path / "bad", to_the_right=0.25, episodes=150, env=env)
    even = record_corridor(tmp_path / "even", to_the_right=0.5, episodes=50, env=env, seed=1)
    assert bad.summary["return_mean"] < -1.0
    assert even.summary["return_mean"] < 0.0
    common = {"dataset": f"{bad.folder},{even.folder}", "project": str(tmp_path), **CORRIDOR_SETTINGS}
    imitated = ludus.train("bc", env, **common).result
    assert imitated["eval_return_mean"] < -0.5
    improved = ludus.train("iql", env, tau=0.05, temperature=10.0, **common).result
    assert improved["eval_return_mean"] == pytest.approx(0.94), "straight to the prize"


# --- one seed, one result


@pytest.fixture
def corridor(tmp_path: Path) -> Dataset:
    return record_corridor(tmp_path / "data", to_the_right=0.5, episodes=20)


def small(tmp_path: Path, corridor: Dataset, trial: str, **more: Any) -> dict[str, Any]:
    settings = {**CORRIDOR_SETTINGS, "steps": 16_384, "hidden": "8", "batch_size": 32}
    return {**settings, "dataset": str(corridor.folder), "project": str(tmp_path), "trial": trial, **more}


@pytest.mark.parametrize("algorithm", ["bc", "iql"])
def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(
    tmp_path: Path, corridor: Dataset, algorithm: str
) -> None:
    whole = ludus.train(algorithm, CORRIDOR, **small(tmp_path, corridor, "whole"))

    settings = small(tmp_path, corridor, "stopped", steps=16_384)
    with pytest.raises(KeyboardInterrupt):
        _stop_early(algorithm, settings)
    stopped = json.loads((tmp_path / "stopped" / "checkpoints" / "checkpoints.json").read_text())["checkpoints"]
    assert 0 < stopped[-1]["step"] < 16_384
    resumed = ludus.resume(tmp_path / "stopped")
    assert resumed.result["weights_hash"] == whole.result["weights_hash"]
    assert resumed.result["steps"] == whole.result["steps"] == 16_384


def _stop_early(algorithm: str, settings: dict[str, Any]) -> None:
    """As Ctrl-C does, after the eighth turn."""
    from ludus.experiment.training import Training

    turn = Training.turn
    num = 0

    def counted(self: Training) -> bool:
        nonlocal num
        num += 1
        if num == 8:
            self.ask_stop()
        return turn(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "turn", counted)
        ludus.train(algorithm, CORRIDOR, **settings)


def test_a_run_that_was_killed_ends_with_the_weights_of_one_that_was_not(tmp_path: Path, corridor: Dataset) -> None:
    settings = small(tmp_path, corridor, "killed", checkpoint_seconds=0.02, eval_episodes=0)
    process = runs.start(runs.train, "iql", CORRIDOR, settings, ends=False)
    runs.wait_until(lambda: runs.saved_step(tmp_path / "killed") > 0)
    runs.kill(process)
    assert not (tmp_path / "killed" / "result.json").exists()
    resumed = ludus.resume(tmp_path / "killed").result
    whole = ludus.train("iql", CORRIDOR, **{**settings, "trial": "whole", "checkpoint_seconds": 30.0}).result
    assert resumed["weights_hash"] == whole["weights_hash"]


def test_a_run_does_not_go_on_with_other_data(tmp_path: Path, corridor: Dataset) -> None:
    with pytest.raises(KeyboardInterrupt):
        _stop_early("bc", small(tmp_path, corridor, "stopped"))
    shutil.rmtree(corridor.folder)
    record_corridor(corridor.folder, to_the_right=0.5, episodes=20, seed=7)
    with pytest.raises(CheckpointError, match="not those that this run has learnt from"):
        ludus.resume(tmp_path / "stopped")


def test_damaged_data_ends_a_run_before_it_learns_from_it(tmp_path: Path, corridor: Dataset) -> None:
    (file,) = corridor.folder.glob("episodes-*")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match="is torn"):
        ludus.train("bc", CORRIDOR, **small(tmp_path, corridor, "damaged"))


# --- what does not go together


@pytest.mark.parametrize(
    ("algorithm", "env", "more", "message"),
    [
        (
            "bc",
            "CartPole-v1",
            {},
            r"does not fit CartPole-v1: its observations are float32 \[9\], and those of the env",
        ),
        ("bc", CONTINUOUS_CORRIDOR, {}, "its actions are Discrete"),
        ("bc", CORRIDOR, {"dataset": ""}, "bc learns from datasets, and there is none"),
        ("bc", CORRIDOR, {"dataset": "nowhere"}, "nowhere is not a dataset"),
        ("dqn", CORRIDOR, {"flow": "offline", "prioritised": True}, "prioritised=yes is not for datasets"),
        ("iql", CORRIDOR, {"prioritised": True}, "prioritised has no effect on iql"),
        ("bc", CORRIDOR, {"gamma": 0.9}, "gamma has no effect on bc"),
        ("bc", CORRIDOR, {"recurrent": "lstm"}, "use recurrent=none"),
        ("bc", CORRIDOR, {"dataset_weights": "1,2"}, "there must be one for each"),
        ("bc", CORRIDOR, {"simulators": 2}, "simulators=2 is not for flow=offline"),
        ("bc", CORRIDOR, {"stop_at_return": 1.0}, "stop_at_return=1.0 is not for flow=offline"),
        ("bc", CORRIDOR, {"flow": "sync"}, "flow=sync is not for bc, which learns from datasets alone"),
        ("iql", CORRIDOR, {"flow": "replay"}, "flow=replay is not for iql, which learns from datasets alone"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused_and_the_name_stays_free(
    tmp_path: Path, corridor: Dataset, algorithm: str, env: str, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ludus.train(algorithm, env, **small(tmp_path, corridor, "refused", **more))
    assert not (tmp_path / "refused").exists()


def test_datasets_are_not_for_algorithms_that_need_new_segments() -> None:
    with pytest.raises(ConfigError, match=r"dataset=.*is for flow=offline and replay; this run has flow=sync"):
        resolve("ppo", "CartPole-v1", {"dataset": "somewhere"})
    with pytest.raises(ConfigError, match="flow=offline is not for ppo"):
        resolve("ppo", "CartPole-v1", {"flow": "offline"})
    config = resolve("bc", "CartPole-v1", {"dataset": "a,b"})
    assert config.is_embedded
    assert config.train.dataset == tuple(str(Path(name).absolute()) for name in "ab")


# --- other ways to use them


def test_what_a_game_recorded_is_learnt_from_without_playing(tmp_path: Path) -> None:
    record_cartpole(tmp_path / "log", episodes=1)
    (tmp_path / "game.json").write_text(json.dumps(SPEC_FILE))
    spec = ["--spec", str(tmp_path / "game.json")]
    assert main(["dataset", "from-recording", str(tmp_path / "log"), *spec, "--out", str(tmp_path / "data")]) == 0
    config = resolve("bc", "game://127.0.0.1:8000", {"spec": tmp_path / "game.json", "dataset": tmp_path / "data"})
    run = ludus.train(  # the dataset knows the spec, too
        "bc", "game://127.0.0.1:8000", dataset=tmp_path / "data", steps=40_000, batch_size=64, project=tmp_path,
        trial="cloned", threads=1,
    )  # fmt: skip
    known = load_config(tmp_path / "cloned").games
    assert config.games is not None
    assert known is not None
    assert known.spec == config.games.spec
    with pytest.raises(ConfigError, match="nowhere is not a dataset"):
        resolve("bc", "game://127.0.0.1:8000", {"dataset": "nowhere"})
    assert run.result["eval_return_mean"] is None
    assert run.policy.act([0.0, 0.0, 0.2, 1.0]) == 1
    assert run.policy.act([0.0, 0.0, -0.2, -1.0]) == 0


@pytest.mark.parametrize("flow", ["replay", "offline"])
def test_algorithms_with_replay_learn_from_datasets_too(tmp_path: Path, corridor: Dataset, flow: str) -> None:
    settings = small(tmp_path, corridor, "dqn", flow=flow, steps=512, min_size=64, num_envs=4)
    result = ludus.train("dqn", CORRIDOR, **settings).result
    again = ludus.train("dqn", CORRIDOR, **{**settings, "trial": "again"}).result
    assert result["weights_hash"] == again["weights_hash"]
    alone = ludus.train("dqn", CORRIDOR, **{**settings, "trial": "alone", "dataset": "", "flow": "replay"}).result
    assert result["weights_hash"] != alone["weights_hash"]
    metrics = [json.loads(line) for line in (tmp_path / "dqn" / "metrics.jsonl").read_text().splitlines()]
    assert max(line.get("count/dataset_drawn", 0) for line in metrics) > 0
