"""A version that somebody holds is not removed; a killed process holds nothing any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ludus import errors
from ludus.models.ready_versions import Holds
from ludus.models.versions.store import VersionStore


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return VersionStore(tmp_path / "models", keep=2)


def publish(store: VersionStore, *numbers: int) -> None:
    for number in numbers:
        store.publish("net", {"w": np.full(8, number, np.float32)}, number=number)


def numbers(store: VersionStore) -> list[int]:
    return [version.number for version in store.versions("net")]


def test_a_version_that_is_held_stays_until_it_is_let_go(store: VersionStore) -> None:
    publish(store, 0)
    hold = store.hold("net", 0)
    publish(store, 1, 2, 3)
    assert numbers(store) == [0, 2, 3]
    assert store.get("net", 0)[1]["w"][0] == 0
    hold.close()
    hold.close()
    publish(store, 4)
    assert numbers(store) == [3, 4]


def test_two_holds_of_one_version_are_two(store: VersionStore) -> None:
    publish(store, 0)
    with store.hold("net", 0), store.hold("net", "latest") as other:
        assert other.number == 0
    with store.hold("net", 0):
        with store.hold("net", 0):
            pass
        publish(store, 1, 2, 3)
        assert 0 in numbers(store)


def test_the_hold_of_a_killed_process_is_gone(store: VersionStore) -> None:
    publish(store, 0)
    code = (
        "import sys, time; from ludus.models.versions.store import VersionStore; "
        f"hold = VersionStore({str(store.folder)!r}).hold('net', 0); print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        publish(store, 1, 2, 3)
        assert numbers(store) == [0, 2, 3]
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.wait(10)
    publish(store, 4)
    assert numbers(store) == [3, 4]


def test_what_is_gone_cannot_be_held(store: VersionStore) -> None:
    publish(store, 0, 1, 2, 3)
    with pytest.raises(errors.DataError, match="no version 0 here; there are: 2, 3"):
        store.hold("net", 0)
    with pytest.raises(errors.DataError, match="nobody"):
        store.hold("net", "nobody")


def test_whatever_is_held_can_be_read_while_others_publish(store: VersionStore) -> None:
    publish(store, 0)
    done = threading.Event()

    def publisher() -> None:
        for number in range(1, 300):
            publish(store, number)
        done.set()

    thread = threading.Thread(target=publisher)
    thread.start()
    count = 0
    while not done.is_set():
        with store.hold("net") as hold:
            assert store.get("net", hold.number)[1]["w"][0] == hold.number
        count += 1
    thread.join()
    assert count > 10
    assert len(numbers(store)) <= 3


def test_the_next_number_is_given_to_one_publisher_only(store: VersionStore) -> None:
    store.keep = 1000
    found: list[int] = []

    def publisher(seed: int) -> None:
        own = VersionStore(store.folder, keep=1000)
        for _ in range(20):
            found.append(own.publish("net", {"w": np.full(8, seed, np.float32)}, number=None).number)

    threads = [threading.Thread(target=publisher, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(80))


def test_a_private_view_can_be_written_to_and_nobody_else_sees_it(store: VersionStore) -> None:
    publish(store, 0)
    _, own = store.get("net", 0, private=True)
    own["w"][:] = 7.0
    assert store.get("net", 0)[1]["w"].sum() == 0.0
    assert store.verify("net", 0).number == 0


def test_counted_holds_let_go_with_the_last_release(store: VersionStore) -> None:
    publish(store, 0)
    holds = Holds(store, "net")
    assert (holds.hold("latest"), holds.hold(0)) == (0, 0)
    holds.release(0)
    publish(store, 1, 2, 3)
    assert (holds.numbers, 0 in numbers(store)) == ((0,), True)
    holds.release(0)
    holds.release(0)
    publish(store, 4)
    assert (holds.numbers, numbers(store)) == ((), [3, 4])
