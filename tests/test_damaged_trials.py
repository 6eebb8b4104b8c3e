"""Every file of a trial, damaged in three ways: progress or one clear error, never a traceback, never wrong weights."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus import errors
from ludus.cli.main import main
from ludus.data.digest import digest
from ludus.discovery.file import FileNames
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.player import load_player
from ludus.models.torch_weights import get_torch_model_weights
from ludus.serving import promotion
from ludus.serving import serve as serving

SETTINGS: dict[str, Any] = {
    "steps": 320, "num_envs": 2, "num_steps": 16, "hidden": (8,), "eval_episodes": 1, "eval_max_steps": 20,
    "threads": 1, "checkpoint_seconds": 0.0, "keep_checkpoints": 3,
}  # fmt: skip

FILES = [
    "config.json",
    "versions.json",
    "trial.json",
    "program.json",
    "result.json",
    "metrics.jsonl",
    "events/*",
    "checkpoints/checkpoints.json",
    "checkpoints/checkpoint-*.ludus",
    "models/policy.definition",
    "models/policy.promotions",
    "models/policy/*.weights",
    "models/policy/adopted.json",
    "models/policy/model.onnx",
    "models/policy/model.onnx.sha256",
    "models/policy/newest",
    "models/policy/settings.json",
    "models/policy/tags.checked",
    "models/policy/tags.json",
]


def _empty(content: bytes) -> bytes:
    return b""


def _halve(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flip(content: bytes) -> bytes:
    """Two bytes of it: one alone may be in the padding of a version."""
    flipped = bytearray(content)
    for at in (len(content) * 2 // 3, len(content) * 19 // 20):
        flipped[at] ^= 0x04
    return bytes(flipped)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial that was trained to its end and served: two versions, promoted in turn."""
    project = tmp_path_factory.mktemp("intact")
    ludus.train("ppo", "CartPole-v1", project=str(project), trial="t", **SETTINGS)
    folder = project / "t"
    with ludus.init(project=project, trial="t"):
        model = serving.publish_trained(folder)
        promotion.promote(folder, "policy")
        model.publish_weights(model.get_model())  # the same weights again, as version 1
        promotion.promote(folder, "policy")
        assert ludus.RemoteModel("policy", local_mode=True, backend="onnx").backend == "onnx"  # it is exported
        ludus.RemoteModel("policy", local_mode=True, backend="eager")
    return folder


def _damaged(intact: Path, tmp_path: Path, pattern: str, damage: Callable[[bytes], bytes]) -> Path:
    folder = tmp_path / "t"
    shutil.copytree(intact, folder, ignore=shutil.ignore_patterns("*.lock"))
    path = sorted(folder.glob(pattern))[-1]
    path.write_bytes(damage(path.read_bytes()))
    return folder


def _attempt(action: Callable[[], Any]) -> Any:
    """What it gives; `None` for an error that the command line would print as one sentence."""
    try:
        return action()
    except errors.LudusError:
        return None


def test_the_list_of_files_is_whole(intact: Path) -> None:
    known = {path for pattern in FILES for path in intact.glob(pattern)}
    left = {str(path.relative_to(intact)) for path in intact.rglob("*") if path.is_file() and path not in known}
    left = {name for name in left if not Path(name).name.startswith(".") and not name.startswith("logs/")}
    assert left == {"driver.lock"}  # damaged by tests/program/test_lock.py


@pytest.mark.parametrize("damage", [_empty, _halve, _flip])
@pytest.mark.parametrize("pattern", FILES)
def test_a_damaged_file_costs_a_warning_or_one_clear_error(
    pattern: str,
    damage: Callable[[bytes], bytes],
    intact: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = _damaged(intact, tmp_path, pattern, damage)
    trusted = {record.weights for record in CheckpointStore(intact / "checkpoints").records()}
    assert main(["list", "--project", str(tmp_path)]) == 0
    player = _attempt(lambda: load_player(folder))
    if player is not None:
        assert digest(player.policy.weights()) in trusted
    answer = _attempt(lambda: _serve(folder, backend="onnx" if "onnx" in pattern else None))
    if answer is not None:
        assert answer[0] in trusted
        assert np.isfinite(answer[1]["params"]).all()
    code = main(["resume", "t", "--project", str(tmp_path)])
    assert code in (0, 2)
    if pattern != "config.json":  # without its config a trial says nothing; all else has another source
        assert player is not None
        assert answer is not None
        assert code == 0
    said = capfd.readouterr()
    assert "Traceback" not in said.err + said.out


def _serve(folder: Path, *, backend: str | None = None) -> tuple[str, Any]:
    """The digest of the weights that new sessions of a served trial would play, and an answer by them."""
    with ludus.init(project=folder.parent, trial=folder.name):
        model = serving.publish_trained(folder)
        if backend is not None:
            model = ludus.RemoteModel("policy", local_mode=True, backend=backend)
            assert model.backend == backend
        promotion.promote(folder, "policy")
        promotion.history(folder, "policy")
        served = get_torch_model_weights(model.get_model("production"))
        return digest(served), asyncio.run(model.forward(np.zeros(4, np.float32)))


@pytest.mark.parametrize("damage", [_empty, _flip])
def test_with_all_versions_damaged_the_checkpoint_is_served(
    damage: Callable[[bytes], bytes], intact: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    shutil.copytree(intact, folder)
    for path in (folder / "models" / "policy").glob("*.weights"):
        path.write_bytes(damage(path.read_bytes()))
    trusted = {record.weights for record in CheckpointStore(intact / "checkpoints").records()}
    assert _serve(folder)[0] in trusted


def test_a_served_version_that_is_damaged_is_an_error_before_any_process_is_started(
    intact: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    shutil.copytree(intact, folder)
    (path,) = (folder / "models" / "policy").glob("000000000-*.weights")
    path.write_bytes(_flip(path.read_bytes()))
    with ludus.init(project=tmp_path, trial="t"), pytest.raises(errors.DataError, match="version 0 of 'policy' is dam"):
        serving.serve(folder, version="0")


@pytest.mark.parametrize("damage", [_empty, _halve])
def test_a_damaged_record_of_a_name_is_taken_as_absent(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    names = FileNames(tmp_path)
    names.add("a/b", "value", ttl=60.0)
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file() and path.name == "@")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(errors.NameNotFound):
        names.get("a/b")
    names.add("a/b", "again", ttl=60.0, replace=True)
    assert names.get("a/b") == "again"
    names.close()


def test_a_damaged_trial_json_does_not_block_a_resume_or_the_next_start(intact: Path, tmp_path: Path) -> None:
    folder = _damaged(intact, tmp_path, "trial.json", _empty)
    (folder / "result.json").unlink()
    assert ludus.resume("t", project=str(tmp_path)).result["steps"] >= 320


@pytest.mark.timeout(300)
def test_warnings_of_a_torn_checkpoint_are_seen_in_a_spread_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There the trainer, which restores it, logs to a file; none that can be used is an error before it is started."""
    run = ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="t", simulators=1, **SETTINGS)
    (run.trial_dir / "result.json").unlink()
    *_, newest = sorted((run.trial_dir / "checkpoints").glob("*.ludus"))
    newest.write_bytes(_halve(newest.read_bytes()))
    caplog.clear()
    assert ludus.resume("t", project=str(tmp_path)).result["steps"] == run.result["steps"]
    [warning] = [message for message in caplog.messages if "is torn" in message]
    assert warning.startswith(f"trainer/0: {newest.name} is torn")
    (run.trial_dir / "result.json").unlink()
    for checkpoint in (run.trial_dir / "checkpoints").glob("*.ludus"):
        checkpoint.write_bytes(b"")
    with pytest.raises(errors.CheckpointError, match=r"no checkpoint in .* can be used"):
        ludus.resume("t", project=str(tmp_path))


# ---- trials of others


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_a_policy_trial_that_was_copied_is_served_without_unpickling_what_is_in_it(
    intact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "another machine"))
    folder = tmp_path / "t"
    shutil.copytree(intact, folder)
    (folder / "models" / "policy.definition").write_bytes(pickle.dumps((Trap(tmp_path / "trapped"), (), {})))
    loaded: list[Any] = []
    monkeypatch.setattr(pickle, "loads", loaded.append)
    trusted = {record.weights for record in CheckpointStore(intact / "checkpoints").records()}
    assert _serve(folder)[0] in trusted
    assert not loaded
    assert not (tmp_path / "trapped").exists()


def test_a_config_of_others_that_names_a_file_of_code_runs_nothing_without_consent(
    intact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ludus.experiment.saved_config import load_config

    folder = tmp_path / "t"
    shutil.copytree(intact, folder)
    (folder / "result.json").unlink()
    evil = tmp_path / "evil.py"
    evil.write_text(f"import os\nos.mkdir({str(tmp_path / 'trapped')!r})\ndef make(): ...\n")
    config = json.loads((folder / "config.json").read_text())
    config["train"]["env"] = f"{evil}:make"
    (folder / "config.json").write_text(json.dumps(config))
    for words in (["resume", "t"], ["evaluate", "t"]):
        assert main([*words, "--project", str(tmp_path)]) == 2
        assert "was not made by this user on this machine; nothing was run" in capsys.readouterr().err
    with pytest.raises(errors.ConfigError, match="nothing was run"):
        serving.publish_trained(folder)
    assert not (tmp_path / "trapped").exists()
    serving.trust_trial(folder)
    assert load_config(folder).train.env == f"{evil}:make"
    assert main(["resume", "t", "--project", str(tmp_path)]) == 2  # its env is none
    assert (tmp_path / "trapped").exists(), "the trap works"
