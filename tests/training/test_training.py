"""What `ludus.train` leaves behind when a run cannot begin."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ludus
from experiment import runs
from ludus import errors, files
from ludus.experiment.config import MAX_SEED
from ludus.program.lock import LOCK_FILE, driving


def test_a_misspelt_env_leaves_nothing_and_the_trials_name_free(tmp_path: Path) -> None:
    for _try in range(2):
        with pytest.raises(errors.EnvError, match="Did you mean 'CartPole-v1'"):
            ludus.train("ppo", "CartPol-v1", project=str(tmp_path), trial="mine")
    assert not (tmp_path / "mine").exists()
    settings = {"steps": 500, "num_envs": 8, "num_steps": 32, "eval_episodes": 0, "threads": 1}
    assert ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **settings).result["steps"] >= 500


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(errors.EnvError):
        ludus.train("ppo", "CartPol-v1", project=str(tmp_path), trial="mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep me"


def test_a_trial_that_is_there_is_not_started_again(tmp_path: Path) -> None:
    settings = {"steps": 300, "num_envs": 8, "num_steps": 32, "eval_episodes": 0, "threads": 1}
    ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **settings)
    with pytest.raises(errors.ConfigError, match="ludus resume mine"):
        ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **settings)
    assert (tmp_path / "mine" / "result.json").exists()


SMALL = {"steps": 300, "num_envs": 8, "num_steps": 32, "eval_episodes": 2, "threads": 1}


def test_a_trial_that_somebody_drives_is_neither_started_nor_gone_on_with_by_another(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with driving(folder), pytest.raises(errors.ProgramError, match="'mine' is running"):
        ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **SMALL)
    assert [path.name for path in folder.iterdir() if path.is_file()] == [LOCK_FILE]
    ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **SMALL)
    (folder / "result.json").unlink()
    with driving(folder), pytest.raises(errors.ProgramError, match="'mine' is running"):
        ludus.resume("mine", project=str(tmp_path))
    assert ludus.resume("mine", project=str(tmp_path)).result["steps"] >= 300


@pytest.mark.parametrize("damaged", [b"", b"{", b"\xff\xfe\x00", b"[]", b"{}"])
def test_with_a_damaged_result_the_end_is_gone_through_again(tmp_path: Path, damaged: bytes) -> None:
    run = ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **SMALL)
    (tmp_path / "mine" / "result.json").write_bytes(damaged)
    again = ludus.resume("mine", project=str(tmp_path)).result
    for name in ("weights_hash", "steps", "eval_return_mean"):
        assert again[name] == run.result[name]
    assert ludus.resume("mine", project=str(tmp_path)).result == again


def test_a_trial_with_files_of_ones_own_goes_on_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text("import gymnasium\nmake = lambda: gymnasium.make('CartPole-v1')\n")
    monkeypatch.chdir(tmp_path / "here")
    run = ludus.train("ppo", "mine.py:make", project="trials", trial="mine", **SMALL)
    monkeypatch.chdir(tmp_path)
    (run.trial_dir / "result.json").unlink()
    assert ludus.resume(run.trial_dir).result["weights_hash"] == run.result["weights_hash"]
    assert ludus.evaluate(run.trial_dir, episodes=2)["episodes"] == 2


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [("train", "env", "os:system"), ("train", "env", "a_module:Mine-v0"), ("train", "algorithm", "a_module:Mine"),
     ("network", "model", "a_module:build"), ("train", "env", "a_file.py:make")],
)  # fmt: skip
def test_a_trial_made_elsewhere_runs_no_code_that_its_config_names(
    part: str, name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="theirs", **SMALL)
    config = json.loads((run.trial_dir / "config.json").read_text())
    config[part][name] = value
    if value == "os:system":
        config["train"]["env_args"] = json.dumps({"command": f"touch {tmp_path}/ran"})
    (run.trial_dir / "config.json").write_text(json.dumps(config))
    for file in ("a_module.py", "a_file.py"):
        (tmp_path / file).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "state of another user"))
    with pytest.raises(errors.ConfigError, match=f"to run code of {value}.*--trust"):
        ludus.evaluate(run.trial_dir, episodes=1)
    with pytest.raises(errors.ConfigError, match="nothing was run"):
        ludus.resume(run.trial_dir)
    assert not (tmp_path / "ran").exists()


def test_the_greatest_seed_there_is_can_be_trained_and_evaluated_with(tmp_path: Path) -> None:
    run = ludus.train("ppo", "CartPole-v1", project=str(tmp_path), seed=MAX_SEED, **SMALL)
    assert ludus.evaluate(run.trial_dir, episodes=2, seed=MAX_SEED)["episodes"] == 2


@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1000.0])
def test_a_folder_that_is_deleted_while_it_trains_costs_neither_the_result_nor_the_policy(
    checkpoint_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ludus.experiment.training._METRICS_EVERY_S", 0.0)
    folder, deleted_at = tmp_path / "mine", []

    def delete(step: int, _values: dict[str, float]) -> None:
        if not deleted_at:
            deleted_at.append(step)
            shutil.rmtree(folder)

    settings = {**SMALL, "steps": 1000, "checkpoint_seconds": checkpoint_seconds}
    run = ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", on_progress=delete, **settings)
    assert deleted_at
    assert deleted_at[0] < 1000
    assert run.result["eval_episodes"] == 2
    assert f"{folder} was deleted while it trained" in run.result["save_error"]
    assert f"{folder} was deleted while it trained" in caplog.text
    assert run.policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert ludus.resume("mine", project=str(tmp_path)).result == run.result


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("algorithm", "more"),
    [("appo", {"simulators": 2}), ("ppo", {"simulators": 1}), ("appo", {"simulators": 1, "inference": 1})],
    ids=["async", "sync", "inference"],
)
def test_nor_does_it_where_the_run_is_spread(
    algorithm: str, more: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, deleted_at = tmp_path / "mine", []

    def delete(step: int, _values: dict[str, float]) -> None:
        if not deleted_at:
            deleted_at.append(step)
            folder.rename(tmp_path / "deleted")  # at once: to a folder that is being emptied, its processes still write
            shutil.rmtree(tmp_path / "deleted")
            runs.hurry(tmp_path)

    settings = {**SMALL, "steps": 6_000, **more}
    env = runs.slow_cartpole(tmp_path)
    run = ludus.train(algorithm, env, project=str(tmp_path), trial="mine", on_progress=delete, **settings)
    assert deleted_at
    assert deleted_at[0] < 6_000
    assert run.result["steps"] >= 6_000
    assert run.result["eval_episodes"] == 2
    assert f"{folder} was deleted while it trained" in run.result["save_error"]
    assert f"trainer/0: {folder} was deleted while it trained" in caplog.text
    assert "without a word" not in caplog.text
    assert run.policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)


def test_a_result_is_returned_even_if_nothing_can_be_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.experiment.training._METRICS_EVERY_S", 0.0)
    folder, deleted = tmp_path / "mine", []

    def put_a_file_in_its_place(_step: int, _values: dict[str, float]) -> None:
        if not deleted:
            deleted.append(folder)
            shutil.rmtree(folder)
            folder.write_text("in the way")

    settings = {**SMALL, "steps": 1000, "checkpoint_seconds": 1000.0}
    run = ludus.train(
        "ppo", "CartPole-v1", project=str(tmp_path), trial="mine", on_progress=put_a_file_in_its_place, **settings
    )
    assert run.result["eval_episodes"] == 2
    assert "cannot be made again" in run.result["save_error"]


def test_a_result_that_cannot_be_read_now_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"steps": 300, "num_envs": 8, "num_steps": 32, "eval_episodes": 0, "threads": 1}
    run = ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="mine", **settings)
    path, read = run.trial_dir / "result.json", files.read_json

    def fail(file: Path) -> Any:
        if file.name == path.name:
            raise OSError(errno.EMFILE, "Too many open files")
        return read(file)

    with monkeypatch.context() as busy:
        busy.setattr(files, "read_json", fail)
        with pytest.raises(OSError, match="Too many open files"):
            ludus.resume(run.trial_dir)
    assert ludus.resume(run.trial_dir).result == run.result
