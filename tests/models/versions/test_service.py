from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from ludus import errors
from ludus.models.versions.service import WeightsService
from ludus.models.versions.store import VersionStore
from ludus.rpc.client import RpcClient
from ludus.rpc.deferred import Deferred
from ludus.rpc.server import RpcServer
from ludus.testing.serving import ServerThread
from ludus.workers.register import register_all


def weights(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full(4, value, np.float32)}


def outcome(answer: object, timeout_s: float = 5.0) -> object:
    """What a deferred answer turned out to be."""
    if not isinstance(answer, Deferred):
        return answer
    found: list[object] = []
    answer.bind(lambda value, error: found.append(error or value))
    until = time.monotonic() + timeout_s
    while not found and time.monotonic() < until:
        time.sleep(0.001)
    return found[0]


@pytest.fixture
def service(tmp_path: Path):
    service = WeightsService(tmp_path, keep=2)
    yield service
    service.close()


def test_weights_are_sent_only_to_those_who_lack_them(service: WeightsService) -> None:
    published = service.publish("policy", weights(1), 0)
    answer = service.pull("policy")
    assert answer["version"] == published
    assert (answer["weights"]["w"] == 1).all()
    assert service.pull("policy", 0, have=published["digest"]) == {"version": published, "weights": None}
    assert service.pull("policy", "latest", have="another")["weights"] is not None
    assert (service.statistics()["num_pulled"], service.statistics()["num_spared"]) == (2, 1)


def test_waiting_ends_with_the_next_publish(service: WeightsService) -> None:
    first = service.wait_newer("policy", None, 10.0)
    assert isinstance(first, Deferred)
    assert service.statistics()["num_waiting"] == 1
    service.publish("policy", weights(1), 4)
    assert outcome(first) == [4, 0, 1]
    assert service.wait_newer("policy", None, 10.0) == [4, 0, 1], "there is one already"


def test_waiting_ends_with_what_is_published_straight_into_the_folder(service: WeightsService, tmp_path: Path) -> None:
    waiting = service.wait_newer("policy", None, 10.0)
    VersionStore(tmp_path).publish("policy", weights(1), number=9)
    assert outcome(waiting) == [9, 0, 1]


def test_waiting_ends_when_its_time_is_up_and_when_the_service_is_closed(service: WeightsService) -> None:
    service.publish("policy", weights(1), 0)
    assert outcome(service.wait_newer("policy", 0, 0.02)) == [0, 0, 1]
    waiting = service.wait_newer("policy", 0, 60.0)
    service.close()
    assert outcome(waiting) == [0, 0, 1]


def test_waiting_ends_with_a_rewind(service: WeightsService) -> None:
    service.publish("policy", weights(1), 0)
    service.publish("policy", weights(2), 1)
    waiting = service.wait_newer("policy", 1, 60.0)
    service.rewind("policy", 0)
    assert outcome(waiting) == [0, 1, 2]


def test_errors_come_back_as_themselves(service: WeightsService) -> None:
    server = RpcServer()
    register_all(server, service)
    with ServerThread(server), RpcClient(server.address) as client:
        with pytest.raises(errors.DataError, match="no version 3 here"):
            client.request("pull", "policy", 3)
        client.request("publish", "policy", weights(1), 0)
        client.request("tag", "policy", "best", 0)
        assert client.request("tags", "policy") == {"best": 0}
        assert [version["number"] for version in client.request("versions", "policy")] == [0]
        assert client.request("wait_newer", "policy", 0, 0.05) == [0, 0, 1]
