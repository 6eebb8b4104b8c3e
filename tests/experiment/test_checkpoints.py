"""Checkpoints on real files, with real kills."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import errors
from ludus.data import digest as digests
from ludus.experiment.checkpoints import CheckpointStore

RNG_STATE = np.random.default_rng(7).bit_generator.state


def _content(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {
        "weights": {"dense": rng.standard_normal((16, 8), dtype=np.float32), "bias": np.zeros(8, np.float32)},
        "optimizer": {"moments": [rng.standard_normal(8), rng.standard_normal(8)], "step": step},
        "rng": {"numpy": str(RNG_STATE["state"]["state"]), "cached": None},
        "envs": (np.arange(4), {"clock": 0.25, "is_done": False}),
        "name": "ppo",
    }


def _assert_is(content: Any, step: int) -> None:
    expected = _content(step)
    assert digests.digest(content["weights"]) == digests.digest(expected["weights"])
    assert digests.digest(content["optimizer"]) == digests.digest(expected["optimizer"])
    assert content["rng"] == expected["rng"]
    assert content["envs"][1] == {"clock": 0.25, "is_done": False}
    assert content["name"] == "ppo"


def _saved(folder: Path, *steps: int, keep: int = 3) -> CheckpointStore:
    store = CheckpointStore(folder, keep=keep)
    for step in steps:
        store.save(step, _content(step))
    return store


def _file(folder: Path, step: int) -> Path:
    return folder / f"checkpoint-{step:09d}.ludus"


def test_what_comes_out_is_what_went_in(tmp_path: Path) -> None:
    path = CheckpointStore(tmp_path).save(12_345, _content(12_345))
    assert path == tmp_path / "checkpoint-000012345.ludus"
    step, content = CheckpointStore(tmp_path).load()
    assert step == 12_345
    _assert_is(content, 12_345)


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name_and_so_is_the_name_when_save_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut at any moment leaves the old or the new one: what is renamed was synced, and then the folder is."""
    happened: list[tuple[str, int]] = []  # what, and of which inode
    fsync, replace = os.fsync, os.replace

    def noted_fsync(fd: int) -> None:
        fsync(fd)
        happened.append(("sync", os.fstat(fd).st_ino))

    def noted_replace(source: Any, target: Any) -> None:
        happened.append(("rename", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    path = _saved(tmp_path / "c", 7).save(8, _content(8))
    folder = os.stat(tmp_path / "c").st_ino
    assert path.stat().st_ino in [inode for what, inode in happened if what == "rename"]
    renamed = [place for place, (what, _) in enumerate(happened) if what == "rename"]
    assert len(renamed) == 4, "two checkpoints, and the list of them twice"
    for place in renamed:
        inode = happened[place][1]
        assert ("sync", inode) in happened[:place], "it was renamed before its bytes were on the disk"
        assert happened[place + 1] == ("sync", folder), "its name is not on the disk"


def test_loaded_arrays_are_writable_and_aligned(tmp_path: Path) -> None:
    _, content = _saved(tmp_path, 1).load()
    for array in (content["weights"]["dense"], content["optimizer"]["moments"][1]):
        assert array.flags.writeable
        assert array.flags.aligned


def test_the_newest_is_loaded_unless_a_step_is_named(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10, 20, 30)
    assert store.load()[0] == 30
    step, content = store.load(step=20)
    assert step == 20
    _assert_is(content, 20)


def test_a_step_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(errors.CheckpointError, match="no checkpoint of step 15; there are: 20, 10"):
        _saved(tmp_path, 10, 20).load(step=15)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    store = _saved(tmp_path, *range(1, 8), keep=2)
    assert sorted(path.name for path in tmp_path.glob("*.ludus")) == [_file(tmp_path, n).name for n in (6, 7)]
    assert [record.step for record in store.records()] == [6, 7]


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="at least 1"):
        CheckpointStore(tmp_path, keep=0)


def test_the_list_tells_step_file_hash_size_time_and_weights(tmp_path: Path) -> None:
    before = time.time()
    _saved(tmp_path, 5)
    (record,) = json.loads((tmp_path / "checkpoints.json").read_text())["checkpoints"]
    assert record["step"] == 5
    assert record["file"] == "checkpoint-000000005.ludus"
    assert record["bytes"] == _file(tmp_path, 5).stat().st_size
    assert before <= record["time"] <= time.time()
    assert record["weights"] == digests.digest(_content(5)["weights"])
    assert len(record["sha256"]) == 64


def test_an_empty_folder_and_one_that_is_not_there_are_said_to_have_none(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(errors.CheckpointError, match="there is no checkpoint in"):
            CheckpointStore(folder).load()


def test_it_is_empty_only_if_there_is_neither_a_file_nor_one_that_is_listed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    assert store.is_empty
    store.save(10, _content(10))
    listed = (tmp_path / "checkpoints.json").read_bytes()
    (tmp_path / "checkpoints.json").unlink()
    assert not store.is_empty
    _file(tmp_path, 10).unlink()
    assert store.is_empty
    (tmp_path / "checkpoints.json").write_bytes(listed)
    assert not store.is_empty


@pytest.mark.parametrize("num_bytes", [0, 1, 49, 50, 51, 200, -1])
def test_a_torn_one_is_passed_over_with_a_warning_that_names_both(
    tmp_path: Path, num_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = _saved(tmp_path, 10, 20)
    whole = _file(tmp_path, 20).read_bytes()
    _file(tmp_path, 20).write_bytes(whole[:num_bytes])
    with caplog.at_level(logging.WARNING):
        step, content = store.load()
    assert step == 10
    _assert_is(content, 10)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "checkpoint-000000020.ludus is torn" in message
    assert "checkpoint-000000010.ludus is used instead" in message


def test_bytes_too_many_are_noticed(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10, 20)
    with open(_file(tmp_path, 20), "ab") as file:
        file.write(b"\0")
    assert store.load()[0] == 10


def test_a_flipped_bit_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10, 20)
    whole = _file(tmp_path, 20).read_bytes()
    random_bits = random.Random(3).sample(range(len(whole) * 8), 200)
    for bit in [*range(62 * 8), *random_bits]:
        altered = bytearray(whole)
        altered[bit // 8] ^= 1 << bit % 8
        _file(tmp_path, 20).write_bytes(altered)
        assert store.load()[0] == 10, f"bit {bit}"
    _file(tmp_path, 20).write_bytes(whole)
    assert store.load()[0] == 20


def test_a_listed_one_that_is_gone_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = _saved(tmp_path, 10, 20)
    _file(tmp_path, 20).unlink()
    assert store.load()[0] == 10
    assert "is listed, but not there" in caplog.text


def test_a_valid_one_that_is_not_listed_counts(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10)
    listed = (tmp_path / "checkpoints.json").read_text()
    store.save(20, _content(20))
    (tmp_path / "checkpoints.json").write_text(listed)
    assert store.load()[0] == 20


@pytest.mark.parametrize("text", ["", "{", "[]", '{"checkpoints": [{"step": 1}]}'])
def test_an_unreadable_list_does_no_harm(tmp_path: Path, text: str) -> None:
    store = _saved(tmp_path, 10, 20)
    (tmp_path / "checkpoints.json").write_text(text)
    assert store.load()[0] == 20
    store.save(30, _content(30))
    assert [record.step for record in store.records()] == [30]
    assert store.load(step=10)[0] == 10


def test_one_under_another_name_is_not_taken_for_that_step(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10, 20)
    _file(tmp_path, 20).rename(_file(tmp_path, 99))
    assert store.load()[0] == 10


def test_when_none_is_valid_the_error_says_what_was_found(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10, 20)
    _file(tmp_path, 10).unlink()
    _file(tmp_path, 20).write_bytes(b"LUDUS")
    with pytest.raises(errors.CheckpointError) as caught:
        store.load()
    assert "checkpoint-000000020.ludus is torn: it ends after 5 bytes" in str(caught.value)
    assert "checkpoint-000000010.ludus is listed, but not there" in str(caught.value)


def test_a_run_that_went_back_leaves_no_later_ones_behind(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10, 20, 30)
    store.save(15, _content(15))
    assert store.load()[0] == 15
    assert [record.step for record in store.records()] == [10, 15]


def test_leftovers_of_a_killed_save_are_removed_by_the_next_one(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10)
    leftover = tmp_path / ".checkpoint-000000020.ludus.4711.part"
    leftover.write_bytes(b"half")
    store.load()
    assert leftover.exists(), "another process may be writing it"
    store.save(20, _content(20))
    assert not leftover.exists()


def test_an_integer_past_64_bits_is_refused_with_its_place_and_what_to_do(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10)
    with pytest.raises(errors.CheckpointError, match=r"rng/state'.* bits does not fit into 64.*Save str\(\)"):
        store.save(20, {"rng": {"state": RNG_STATE["state"]["state"]}})
    assert store.load()[0] == 10


def test_what_is_no_nest_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(errors.CheckpointError, match="object cannot be sent"):
        CheckpointStore(tmp_path).save(1, {"policy": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(errors.CheckpointError, match="could not be written"):
        CheckpointStore(tmp_path / "checkpoints").save(1, {})


def test_many_small_values_and_arrays_past_a_messages_limit_are_taken(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, {"tree": list(range(300_000)), "arrays": [np.full(2, n) for n in range(3000)]})
    _, content = store.load()
    assert content["tree"][-1] == 299_999
    assert content["arrays"][2999].tolist() == [2999, 2999]


# --- kills

_KILLED_AT_A_STAGE = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_checkpoints import CheckpointStore, _content
folder, fatal, calls = Path(sys.argv[2]), int(sys.argv[3]), 0
store = CheckpointStore(folder, keep=2)
def counted(real):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call
for name in ("open", "fsync", "replace", "unlink"):
    setattr(os, name, counted(getattr(os, name)))
store.save(30, _content(30))
print("saved", calls)
"""

_KILLED_AT_ANY_MOMENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_checkpoints import CheckpointStore, _content
store = CheckpointStore(Path(sys.argv[2]), keep=2)
for step in range(int(sys.argv[3]), 10**9):
    store.save(step, _content(step))
    print(step, flush=True)
"""


def _spawn(code: str, *args: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", code, str(Path(__file__).parent), *map(str, args)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_killed_at_each_stage_of_a_save_the_old_or_the_new_one_is_loaded(tmp_path: Path) -> None:
    seen = []
    for fatal in range(1, 100):
        folder = tmp_path / str(fatal)
        _saved(folder, 10, 20, keep=2)
        child = _spawn(_KILLED_AT_A_STAGE, folder, fatal)
        out, _ = child.communicate(timeout=300)
        step, content = CheckpointStore(folder, keep=2).load()
        seen.append(step)
        _assert_is(content, step)
        CheckpointStore(folder, keep=2).save(40, _content(40))
        assert not list(folder.glob(".*")), "leftovers"
        assert [record.step for record in CheckpointStore(folder).records()][-1] == 40
        if child.returncode == 0:
            assert out.startswith("saved")
            break
        assert child.returncode == -signal.SIGKILL
    assert seen == sorted(seen), "a later kill saved less"
    assert {20, 30} == set(seen)
    assert len(seen) > 6


def test_killed_at_random_moments_what_was_saved_is_never_lost(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(11), 0
    for _ in range(20):
        child = _spawn(_KILLED_AT_ANY_MOMENT, tmp_path, acknowledged + 1)
        assert child.stdout is not None
        said = [child.stdout.readline()]
        time.sleep(chance.uniform(0.0, 0.02))
        child.kill()
        said += child.stdout.read().split("\n")
        child.wait(timeout=300)
        child.stdout.close()
        acknowledged = max(int(line) for line in said if line.strip())
        step, content = CheckpointStore(tmp_path).load()
        assert acknowledged <= step <= acknowledged + 1
        _assert_is(content, step)


def test_the_newest_valid_one_up_to_a_step_can_be_asked_for(tmp_path: Path) -> None:
    store = _saved(tmp_path, 10, 20, 30)
    assert store.steps() == [30, 20, 10]
    assert store.load(at_most=29)[0] == 20
    _file(tmp_path, 20).write_bytes(b"torn")
    assert store.load(at_most=29)[0] == 10
    assert store.steps() == [30, 20, 10]
    with pytest.raises(errors.CheckpointError, match="no checkpoint"):
        store.load(at_most=9)
