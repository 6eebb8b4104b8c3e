from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import errors, files
from ludus.data.digest import digest
from ludus.models.versions import changes
from ludus.models.versions.store import VersionStore


def weights(value: float, size: int = 8) -> dict[str, np.ndarray]:
    return {"layer/weight": np.full((size, 3), value, np.float32), "steps": np.array(7, np.int64)}


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return VersionStore(tmp_path / "weights", keep=3)


# ---- publish and get


def test_a_folder_that_is_deleted_is_made_again_and_readers_of_before_see_what_is_published_after(
    store: VersionStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.publish("policy", weights(1.0), number=1)
    before = VersionStore(store.folder)
    assert before.latest("policy") == 1
    shutil.rmtree(store.folder)
    store.publish("policy", weights(2.0), number=2)
    assert "was deleted" in caplog.text
    for reader in (before, store, VersionStore(store.folder)):
        assert reader.latest("policy") == 2
        assert reader.get("policy")[1]["layer/weight"][0, 0] == 2.0
    store.publish("policy", weights(3.0), number=3)
    assert before.latest("policy") == 3


def test_what_is_published_is_what_is_got(store: VersionStore) -> None:
    published = store.publish("policy", weights(1.5), number=12)
    version, arrays = store.get("policy")
    assert version == published
    assert (version.number, version.digest, version.nbytes) == (12, digest(weights(1.5)), 8 * 3 * 4 + 8)
    assert digest(arrays) == version.digest
    assert store.verify("policy", 12) == version


def test_arrays_are_read_only_views_of_one_file_and_outlive_it(store: VersionStore) -> None:
    store.publish("policy", weights(1.0), number=0)
    _, arrays = store.get("policy")
    with pytest.raises(ValueError, match="read-only"):
        arrays["layer/weight"][0, 0] = 2.0
    assert not arrays["layer/weight"].flags.owndata
    assert arrays["layer/weight"].ctypes.data % 64 == 0
    for path in (store.folder / "policy").glob("*.weights"):
        path.unlink()
    assert arrays["layer/weight"].sum() == 24.0


def test_there_is_no_latest_before_the_first_and_then_the_highest_number_is(store: VersionStore) -> None:
    assert store.latest("policy") is None
    reader = VersionStore(store.folder)
    store.publish("policy", weights(1), number=7)
    store.publish("policy", weights(2), number=5)
    assert (store.latest("policy"), reader.latest("policy")) == (7, 7)
    store.publish("policy", weights(3), number=8)
    assert reader.latest("policy") == 8


def test_models_do_not_meet(store: VersionStore) -> None:
    store.publish("red", weights(1), number=1)
    store.publish("blue", weights(2), number=2)
    assert (store.latest("red"), store.latest("blue"), store.models()) == (1, 2, ["blue", "red"])


def test_publishing_the_same_again_is_fine_and_other_weights_are_refused(store: VersionStore) -> None:
    first = store.publish("policy", weights(1), number=3)
    assert store.publish("policy", weights(1), number=3) == first
    with pytest.raises(errors.DataError, match="versions never change"):
        store.publish("policy", weights(2), number=3)
    assert store.get("policy")[0] == first


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "../up", "x" * 200, "a b"])
def test_a_name_that_is_no_folder_is_refused(store: VersionStore, name: str) -> None:
    with pytest.raises(errors.DataError, match="cannot name a model"):
        store.publish(name, weights(1), number=0)
    with pytest.raises(errors.DataError, match="cannot name a model"):
        store.latest(name)


def test_what_is_no_set_of_weights_is_refused(store: VersionStore) -> None:
    with pytest.raises(errors.DataError, match="arrays by name"):
        store.publish("policy", {"a": 1.0}, number=0)  # type: ignore[dict-item]
    with pytest.raises(errors.DataError, match="begin at 0"):
        store.publish("policy", weights(1), number=-1)
    with pytest.raises(errors.DataError, match="64 hexadecimal"):
        store.publish("policy", weights(1), number=0, digest="../../up")


# ---- retention and tags


def test_the_newest_and_the_tagged_stay(store: VersionStore) -> None:
    store.publish("policy", weights(0), number=0)
    store.tag("policy", "first", 0)
    for number in range(1, 7):
        store.publish("policy", weights(number), number=number)
    assert [version.number for version in store.versions("policy")] == [0, 4, 5, 6]
    assert store.get("policy", "first")[0].number == 0
    store.untag("policy", "first")
    store.publish("policy", weights(7), number=7)
    assert [version.number for version in store.versions("policy")] == [5, 6, 7]


def test_a_version_that_is_gone_is_reported_with_what_is_there(store: VersionStore) -> None:
    for number in range(5):
        store.publish("policy", weights(number), number=number)
    store.tag("policy", "champion", 4)
    with pytest.raises(errors.DataError, match=r"no version 0 here; there are: 2, 3, 4, champion = 4"):
        store.get("policy", 0)
    with pytest.raises(errors.DataError, match="no version 'best'"):
        store.get("policy", "best")
    with pytest.raises(errors.DataError, match="there are: none"):
        store.get("other")


def test_a_tag_names_a_version_that_is_there(store: VersionStore) -> None:
    store.publish("policy", weights(0), number=0)
    with pytest.raises(errors.DataError, match="no version 9"):
        store.tag("policy", "best", 9)
    for bad in ("latest", "12", "a/b", ""):
        with pytest.raises(errors.DataError, match="cannot be a tag"):
            store.tag("policy", bad, 0)
    store.untag("policy", "never")
    assert store.tags("policy") == {}


@pytest.mark.parametrize("name", ["latest", "follow", "3", "two words", "", None])
def test_what_means_something_else_cannot_be_a_tag_and_is_not_published(store: VersionStore, name: str) -> None:
    store.publish("net", weights(0.0), number=0)
    with pytest.raises(errors.DataError, match="cannot be a tag"):
        store.tag("net", name, 0)
    with pytest.raises(errors.DataError, match="cannot be a tag"):
        store.publish("net", weights(1.0), number=None, tags=lambda _version: ["good", name])
    assert (store.latest("net"), store.tags("net"), len(store.versions("net"))) == (0, {}, 1)


def test_a_version_is_tagged_before_anybody_elses_publish_can_remove_it(tmp_path: Path) -> None:
    wrong: list[BaseException] = []

    def publish(who: str) -> None:
        store = VersionStore(tmp_path, keep=1)
        try:
            for turn in range(60):
                weights = {"w": np.full(4, turn)}
                version = store.publish("net", weights, number=None, tags=lambda _version: [who])
                assert store.get("net", who)[0].number == version.number
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=publish, args=(who,)) for who in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
    assert wrong == []
    store = VersionStore(tmp_path)
    assert {version.number for version in store.versions("net")} == set(store.tags("net").values())


def test_two_who_tag_at_once_both_count(store: VersionStore) -> None:
    store.publish("policy", weights(0), number=0)

    def tag(prefix: str) -> None:
        own = VersionStore(store.folder)
        for i in range(40):
            own.tag("policy", f"{prefix}{i}", 0)

    threads = [threading.Thread(target=tag, args=(prefix,)) for prefix in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.tags("policy")) == 80
    assert json.loads((store.folder / "policy" / "tags.json").read_text()) == store.tags("policy")


def numbers(store: VersionStore) -> list[int]:
    return [version.number for version in store.versions("policy")]


def test_a_rewind_takes_back_what_came_later(store: VersionStore) -> None:
    for number in range(3):
        store.publish("policy", weights(number), number=number)
    store.tag("policy", "early", 0)
    assert store.rewind("policy", 1) == 1
    assert (store.latest("policy"), store.tags("policy"), store.num_rewinds("policy")) == (1, {"early": 0}, 1)
    store.publish("policy", weights(20), number=2)
    assert store.get("policy")[1]["layer/weight"][0, 0] == 20
    assert store.rewind("policy", 2) == 2
    assert store.num_rewinds("policy") == 1, "nothing came later"
    with pytest.raises(errors.DataError, match="no version 9"):
        store.rewind("policy", 9)
    store.untag("policy", "early")
    assert store.rewind("policy", None) == 0
    assert (store.latest("policy"), store.versions("policy")) == (None, [])


def test_a_rewind_removes_nothing_that_is_tagged_or_held(store: VersionStore) -> None:
    store.keep = 10
    for number in range(7):
        store.publish("policy", weights(number), number=number)
    store.tag("policy", "production", 3)
    with store.hold("policy", 5) as held:
        assert store.rewind("policy", 1) == 6, "the next number that is free beyond those that stay"
        assert (numbers(store), store.latest("policy"), store.num_rewinds("policy")) == ([0, 1, 3, 5], 5, 1)
        assert store.tags("policy") == {"production": 3}
        assert store.get("policy", "production")[1]["layer/weight"][0, 0] == 3
        assert VersionStore(store.folder).latest("policy") == held.number
        assert store.publish("policy", weights(60), number=None).number == 6
    assert store.rewind("policy", 1) == 4
    assert (numbers(store), store.tags("policy")) == ([0, 1, 3], {"production": 3})
    assert store.rewind("policy", None) == 4
    assert (numbers(store), store.latest("policy")) == ([3], 3)


def test_a_tag_of_a_version_that_is_gone_goes_with_a_rewind(store: VersionStore) -> None:
    for number in range(3):
        store.publish("policy", weights(number), number=number)
    store.tag("policy", "lost", 2)
    store.discard("policy", 2)
    assert store.rewind("policy", 1) == 1
    assert (store.tags("policy"), store.latest("policy")) == ({}, 1)


# ---- things that break


def test_altered_bytes_are_noticed_on_request(store: VersionStore) -> None:
    store.publish("policy", weights(1), number=0)
    (path,) = (store.folder / "policy").glob("*.weights")
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(errors.DataError, match="altered"):
        store.verify("policy")


def test_altered_bytes_of_a_file_that_was_found_valid_before_are_noticed_on_request(store: VersionStore) -> None:
    """As a disk alters them: the file's time and size stay."""
    store.publish("policy", weights(1), number=0)
    store.get("policy")
    path = _file(store, 0)
    before = path.stat()
    _flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(errors.DataError, match="altered on disk"):
        store.verify("policy")


@pytest.mark.parametrize("size", [0, 5, 30, 200])
def test_a_cut_off_file_is_an_error_that_names_it(store: VersionStore, size: int) -> None:
    store.publish("policy", weights(1), number=0)
    (path,) = (store.folder / "policy").glob("*.weights")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(errors.DataError, match=path.name):
        store.get("policy")


def _file(store: VersionStore, number: int) -> Path:
    (path,) = (store.folder / "policy").glob(f"{number:09d}-*.weights")
    return path


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 0x40
    path.write_bytes(content)


DAMAGES = pytest.mark.parametrize("damage", [_empty, _halve, _flip])


@DAMAGES
def test_a_damaged_newest_version_is_set_aside_and_the_one_before_is_used(store, damage, caplog) -> None:
    for number in range(3):
        store.publish("policy", weights(number), number=number)
    damage(_file(store, 2))
    other = VersionStore(store.folder)  # another process
    version, arrays = other.get("policy")
    assert (version.number, digest(arrays)) == (1, digest(weights(1)))
    assert (other.latest("policy"), store.latest("policy"), store.num_rewinds("policy")) == (1, 1, 1)
    assert "version 2 of 'policy' is damaged" in caplog.text
    assert [path.name for path in (store.folder / "policy").glob("*.damaged")]
    assert store.publish("policy", weights(7), number=None).number == 2


@DAMAGES
def test_a_damaged_version_that_was_asked_for_is_an_error_and_never_other_weights(store, damage) -> None:
    for number in range(3):
        store.publish("policy", weights(number), number=number)
    store.tag("policy", "champion", 1)
    damage(_file(store, 1))
    with pytest.raises(errors.DataError, match="version 1 of 'policy' is damaged"):
        VersionStore(store.folder).get("policy", "champion")
    with pytest.raises(errors.DataError, match="has no version 1 here"):
        store.get("policy", 1)
    assert store.publish("policy", weights(1), number=1).number == 1, "the same weights repair it"
    assert store.get("policy", "champion")[0].number == 1


@DAMAGES
def test_a_damaged_version_is_not_held(store, damage) -> None:
    store.publish("policy", weights(0), number=0)
    store.publish("policy", weights(1), number=1)
    damage(_file(store, 1))
    with VersionStore(store.folder).hold("policy") as held:
        assert held.number == 0
    damage(_file(store, 0))
    with pytest.raises(errors.DataError, match="is damaged"):
        VersionStore(store.folder).hold("policy", 0)


@DAMAGES
def test_a_version_that_is_published_again_over_a_damaged_file_is_valid(store, damage) -> None:
    store.publish("policy", weights(0), number=0)
    damage(_file(store, 0))
    store.publish("policy", weights(0), number=0)
    assert store.verify("policy", 0).digest == digest(weights(0))


@DAMAGES
def test_a_damaged_counter_is_put_right_by_the_files_that_are_there(store, damage, caplog) -> None:
    for number in range(3):
        store.publish("policy", weights(number), number=number)
    path = store.folder / "policy" / "newest"
    if damage is _flip:
        content = bytearray(path.read_bytes())
        content[0] ^= 1  # 3: there is none
        path.write_bytes(content)
    else:
        os.replace(path, path.with_name("old"))  # who has it mapped keeps it
        path.write_bytes(path.with_name("old").read_bytes())
        damage(path)
    other = VersionStore(store.folder)
    assert other.latest("policy") == 2
    assert damage is _halve or "the newest version that is there is 2" in caplog.text  # half of it is the number
    assert other.publish("policy", weights(3), number=None).number == 3
    assert VersionStore(store.folder).latest("policy") == 3


@DAMAGES
@pytest.mark.parametrize("name", ["tags.json", "tags.checked"])
def test_damaged_tags_are_read_from_their_copy(store, damage, name, caplog) -> None:
    for number in range(3):
        store.publish("policy", weights(number), number=number)
    store.tag("policy", "champion", 1)
    damage(store.folder / "policy" / name)
    assert VersionStore(store.folder).tags("policy") == {"champion": 1}
    assert f"{name} is damaged" in caplog.text
    store.tag("policy", "rival", 2)
    caplog.clear()
    assert VersionStore(store.folder).tags("policy") == {"champion": 1, "rival": 2}
    assert not caplog.text


def test_when_both_copies_of_the_tags_are_damaged_nothing_is_removed_and_the_error_says_what_to_do(store) -> None:
    for number in range(3):
        store.publish("policy", weights(number), number=number)
    store.tag("policy", "champion", 0)
    for name in ("tags.json", "tags.checked"):
        _empty(store.folder / "policy" / name)
    with pytest.raises(errors.DataError, match="Remove both to go on without tags"):
        store.tags("policy")
    with pytest.raises(errors.DataError, match="Remove both"):
        store.publish("policy", weights(3), number=3)
    assert [version.number for version in store.versions("policy")][:3] == [0, 1, 2]


def test_versions_tags_and_counter_are_synced_unless_a_checkpoint_is_the_truth(
    store: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name.partition(".")[2].rpartition(".part")[0])
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    store.publish("policy", weights(1), number=0, tags=lambda version: ["champion"])
    kinds = [kind.rpartition(".")[0] for kind in synced if kind]
    assert [kind.rpartition("-")[2].rpartition(".")[2] or kind for kind in kinds] == [
        "newest", "weights", "checked", "json",
    ]  # fmt: skip
    synced.clear()
    VersionStore(store.folder / "quick", durable=False).publish("policy", weights(1), number=0)
    assert not synced


PUBLISHER = """
import sys, numpy as np
from ludus.models.versions.store import VersionStore
store = VersionStore(sys.argv[1], keep=3)
number = 1 + (store.latest("policy") if store.latest("policy") is not None else -1)
number = max([number] + [v.number + 1 for v in store.versions("policy")])
while True:
    store.publish("policy", {"w": np.full(200_000, number, np.float32)}, number=number)
    number += 1
"""


@pytest.mark.chaos
def test_a_publisher_killed_at_any_time_leaves_only_whole_versions(store: VersionStore) -> None:
    last = -1
    for kill_after_s in (0.0, 0.011, 0.023, 0.037):
        publisher = subprocess.Popen([sys.executable, "-c", PUBLISHER, str(store.folder)])
        try:
            until = time.monotonic() + 120
            while (store.latest("policy") or -1) <= last and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(kill_after_s)
        finally:
            publisher.send_signal(signal.SIGKILL)
            publisher.wait()
        found = store.latest("policy")
        assert found is not None
        assert found > last
        last = found
        for version in store.versions("policy"):
            assert store.verify("policy", version.number) == version
            assert (store.get("policy", version.number)[1]["w"] == version.number).all()
    newest = max(version.number for version in store.versions("policy"))
    store.publish("policy", {"w": np.zeros(3)}, number=newest + 1)
    assert not list((store.folder / "policy").glob(".*.part")), "what the killed left is cleared"
    assert len(store.versions("policy")) == 3


def _read_until(is_over: Any, folder: str, bad: object) -> None:
    store = VersionStore(folder)
    last = -1
    while not is_over.is_set():
        version, arrays = store.get("policy")
        if not (arrays["w"] == version.number).all() or version.number < last:
            bad.value += 1  # type: ignore[attr-defined]
        last = version.number


def test_readers_that_race_with_retention_get_whole_versions(tmp_path: Path) -> None:
    store = VersionStore(tmp_path, keep=1)
    store.publish("policy", {"w": np.zeros(50_000)}, number=0)
    context = multiprocessing.get_context("fork")
    bad, is_over = context.Value("i", 0), context.Event()
    readers = [context.Process(target=_read_until, args=(is_over, str(tmp_path), bad)) for _ in range(2)]
    for reader in readers:
        reader.start()
    number, until = 1, time.monotonic() + 1.0
    while time.monotonic() < until or number <= 20:
        store.publish("policy", {"w": np.full(50_000, number, np.float64)}, number=number)
        number += 1
    is_over.set()
    for reader in readers:
        reader.join(60)
    assert [reader.exitcode for reader in readers] == [0, 0]
    assert bad.value == 0


def test_a_lock_has_a_deadline_and_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with files.lock(path), pytest.raises(errors.DeadlineExceeded), files.lock(path, timeout_s=0.02):
        pass
    holder = os.fork()
    if holder == 0:
        with files.lock(path):
            (tmp_path / "held").touch()
            time.sleep(60)
    while not (tmp_path / "held").exists():
        time.sleep(0.005)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    with files.lock(path, timeout_s=1.0):
        pass


def test_more_versions_stay_while_somebody_subscribes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = VersionStore(tmp_path, keep=2)
    store.attend("policy")  # also before there is a model
    assert store.models() == []
    for number in range(70):
        store.publish("policy", weights(number), number=number)
    assert store.numbers("policy") == list(range(6, 70))
    assert (store.num_published("policy"), store.changes("policy").num_published) == (70, 70)
    monkeypatch.setattr(changes.time, "time", lambda: os.stat(tmp_path / ".subscribers-policy").st_mtime + 1.0)
    store.publish("policy", weights(70), number=70)
    assert store.numbers("policy") == [69, 70]
    with pytest.raises(errors.DataError, match="cannot name a model"):
        store.attend("../up")


def test_a_counter_of_an_older_ludus_is_taken_over(tmp_path: Path) -> None:
    VersionStore(tmp_path).publish("policy", weights(1), number=4)
    counter = tmp_path / "policy" / "newest"
    counter.write_bytes(counter.read_bytes()[:16])
    store = VersionStore(tmp_path)
    assert (store.latest("policy"), store.num_rewinds("policy"), store.num_published("policy")) == (4, 0, 0)
    store.publish("policy", weights(2), number=5)
    assert (store.latest("policy"), store.num_published("policy")) == (5, 1)
