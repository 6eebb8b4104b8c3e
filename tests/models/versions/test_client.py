from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import errors, launch
from ludus.models.versions import client as clients
from ludus.models.versions.client import FarVersions, Subscription, connect
from ludus.models.versions.service import WeightsService
from ludus.models.versions.store import VersionStore
from ludus.program import Program
from ludus.workers.remote import Remote


def weights(value: float, size: int = 4) -> dict[str, np.ndarray]:
    return {"w": np.full(size, value, np.float32)}


def wait_until(is_so: Any, timeout_s: float = 10.0) -> None:
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.002)


class Reader:
    """Reads what is there as a process on another host would, and writes down what it got."""

    def __init__(self, service: Remote, cache: str, out: str) -> None:
        self.weights = connect(service, cache=cache, is_far=True)
        self.out = out

    def run(self) -> None:
        version, arrays = self.weights.get("policy", 0)
        Path(self.out).mkdir(exist_ok=True)
        name = threading.current_thread().name + str(time.monotonic_ns())
        (Path(self.out) / name).write_text(json.dumps([version.number, float(arrays["w"].sum())]))


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    program = Program("weights")
    handle = program.add("weights", WeightsService, str(tmp_path / "versions"), keep=2)
    with launch.local(program, project=tmp_path / "trials", threads=True) as run:
        yield run.remote(handle)


@pytest.fixture(params=["near", "far"])
def client(request: pytest.FixtureRequest, remote: Remote, tmp_path: Path) -> Iterator[VersionStore | FarVersions]:
    client = connect(remote, cache=tmp_path / "cache", is_far=request.param == "far")
    yield client
    client.close()


def test_publish_latest_get(client: VersionStore | FarVersions) -> None:
    assert client.latest("policy") is None
    published = client.publish("policy", weights(2), number=0)
    wait_until(lambda: client.latest("policy") == 0)
    version, arrays = client.get("policy")
    assert version.digest == published.digest
    assert (arrays["w"] == 2).all()
    assert not arrays["w"].flags.writeable
    assert [version.number for version in client.versions("policy")] == [0]


def test_tags_work_from_afar(client: VersionStore | FarVersions) -> None:
    for number in range(2):
        client.publish("policy", weights(number), number=number)
    client.tag("policy", "best", 0)
    assert client.tags("policy") == {"best": 0}
    assert client.get("policy", "best")[1]["w"][0] == 0
    assert client.get("policy", "latest")[1]["w"][0] == 1
    client.tag("policy", "best", 1)
    assert client.get("policy", "best")[1]["w"][0] == 1
    client.untag("policy", "best")
    with pytest.raises(errors.DataError, match="best"):
        client.get("policy", "best")


def test_a_subscription_tells_of_every_newer_version_once(client: VersionStore | FarVersions) -> None:
    subscription = Subscription(client, "policy")
    assert subscription.newer(than=None) is None
    for number in (3, 4):
        client.publish("policy", weights(number), number=number)
        wait_until(lambda n=number: client.latest("policy") == n)
        newer = subscription.newer(than=number - 1)
        assert newer is not None
        assert (newer[0].number, newer[1]["w"][0]) == (number, number)
        assert subscription.newer(than=number) is None


def test_after_a_rewind_the_same_number_is_got_again(client: VersionStore | FarVersions) -> None:
    subscription = Subscription(client, "policy")
    for number in range(2):
        client.publish("policy", weights(number), number=number)
    wait_until(lambda: client.latest("policy") == 1)
    assert client.get("policy", 1)[1]["w"][0] == 1
    client.rewind("policy", 0)
    client.publish("policy", weights(10), number=1)
    wait_until(lambda: client.num_rewinds("policy") == 1 and client.latest("policy") == 1)
    newer = subscription.newer(than=1)
    assert newer is not None
    assert newer[1]["w"][0] == 10
    assert client.get("policy", 1)[1]["w"][0] == 10


def test_a_service_on_this_host_is_not_asked_for_bytes(remote: Remote, tmp_path: Path) -> None:
    client = connect(remote)
    assert isinstance(client, VersionStore)
    client.publish("policy", weights(1), number=0)
    assert client.get("policy")[0].number == 0
    assert remote.statistics()["num_published"] == remote.statistics()["num_pulled"] == 0
    assert VersionStore(tmp_path / "versions").latest("policy") == 0


def test_a_folder_will_do_without_a_service(tmp_path: Path) -> None:
    client = connect(tmp_path)
    client.publish("policy", weights(1), number=0)
    assert connect(str(tmp_path)).get("policy")[0].number == client.resolve("policy") == 0
    with pytest.raises(errors.DataError, match="no version 'latest'"):
        client.resolve("nobody")


def test_latest_from_afar_follows_what_others_publish(remote: Remote, tmp_path: Path) -> None:
    client = connect(remote, cache=tmp_path / "cache", is_far=True)
    assert client.latest("policy") is None
    VersionStore(tmp_path / "versions").publish("policy", weights(1), number=5)
    wait_until(lambda: client.latest("policy") == 5)
    client.close()


def test_a_host_fetches_a_version_once_for_all_its_processes(tmp_path: Path) -> None:
    VersionStore(tmp_path / "versions").publish("policy", weights(1, size=100_000), number=0)
    program = Program("weights")
    handle = program.add("weights", WeightsService, str(tmp_path / "versions"))
    program.add("reader", Reader, handle, str(tmp_path / "cache"), str(tmp_path / "out"), replicas=4)
    with launch.local(program, project=tmp_path / "trials") as run:
        assert run.wait(40)
        stats = run.remote(handle).statistics()
    assert (stats["num_pulled"], stats["num_spared"]) == (1, 3)
    got = [json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()]
    assert got == [[0, 100_000.0]] * 4


def test_an_old_version_can_be_fetched_after_newer_ones(remote: Remote, tmp_path: Path) -> None:
    client = connect(remote, cache=tmp_path / "cache", is_far=True)
    client.publish("policy", weights(0), number=0)
    client.tag("policy", "first", 0)
    for number in range(1, 4):
        client.publish("policy", weights(number), number=number)
        client.get("policy", number)
    assert client.get("policy", 0)[1]["w"][0] == 0
    client.close()


def test_caches_have_a_place_of_their_own_and_old_ones_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_SHARED_MEMORY", tmp_path)
    first = clients._cache_folder("host", "/folder")
    assert first == clients._cache_folder("host", "/folder") != clients._cache_folder("other", "/folder")
    assert first.is_relative_to(tmp_path)
    VersionStore(first).publish("policy", weights(1), number=0)
    clients._cache_folder("host", "/folder")
    assert first.is_dir()
    for path in (first, *first.glob("*")):
        os.utime(path, (0, 0))
    clients._cache_folder("host", "/another")
    assert not first.exists()


def test_a_name_that_is_no_folder_is_refused(client: VersionStore | FarVersions) -> None:
    with pytest.raises(errors.DataError, match="cannot name a model"):
        client.get("../up")
    with pytest.raises(errors.DataError, match="cannot name a model"):
        client.latest("../up")


def test_numbers_may_be_numpy_scalars(client: VersionStore | FarVersions) -> None:
    client.publish("policy", weights(1), number=np.int64(3))  # type: ignore[arg-type]
    assert client.get("policy", np.int64(3))[0].number == client.resolve("policy", np.int64(3)) == 3  # type: ignore[arg-type]
