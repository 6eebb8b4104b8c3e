"""The conformance kit, run on every backend."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.discovery.registry import RegistryServer
from ludus.testing.names import NamesConformance

from . import servers
from .consul_twin import ConsulTwin


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    server = RegistryServer()
    server.start()
    yield server.url
    server.close()


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = servers.free_port()
    with servers.running(servers.redis_command(port), port=port, folder=tmp_path_factory.mktemp("redis")):
        yield f"redis://127.0.0.1:{port}/3"


@pytest.fixture(scope="module")
def etcd_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, folder = servers.free_port(), tmp_path_factory.mktemp("etcd")
    with servers.running(servers.etcd_command(port, folder, election_ms=200), port=port, folder=folder):
        yield f"etcd://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def consul_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = servers.free_port()
    with servers.running(servers.consul_command(port), port=port, folder=tmp_path_factory.mktemp("consul")):
        yield f"consul://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def consul_twin_url() -> Iterator[str]:
    with ConsulTwin() as twin:
        yield f"consul://127.0.0.1:{twin.port}"


class TestMemory(NamesConformance):
    ttl = 0.5
    spans_processes = False

    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid.uuid4().hex}"


class TestRegistry(NamesConformance):
    ttl = 0.5

    @pytest.fixture
    def url(self, registry_url: str) -> str:
        return registry_url


class TestFile(NamesConformance):
    ttl = 0.5

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return (tmp_path / "nämes of this run").as_uri()


class TestRedis(NamesConformance):
    ttl = 0.5

    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return redis_url


class TestEtcd(NamesConformance):
    ttl = 1.5  # the shortest that etcd can hold: a lease of one second, and half a second to notice its end

    @pytest.fixture
    def url(self, etcd_url: str) -> str:
        return etcd_url


if shutil.which("consul"):

    class TestConsul(NamesConformance):
        ttl = 0.5

        @pytest.fixture
        def url(self, consul_url: str) -> str:
            return consul_url
else:

    def test_consul() -> None:
        pytest.skip("there is no `consul` on the PATH, so the real server is not tested here; its twin is")


class TestConsulTwin(NamesConformance):
    """Not Consul: our own imitation of the part of its HTTP API that the backend uses. See `consul_twin.py`."""

    ttl = 0.5

    @pytest.fixture
    def url(self, consul_twin_url: str) -> str:
        return consul_twin_url
