from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

from ludus import discovery, errors
from ludus.discovery.registry import RegistryServer, _ListeningClock
from ludus.rpc import address
from ludus.testing.names import Recorder, eventually

from . import servers


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    server = RegistryServer()
    server.start()
    yield server
    server.close()


def from_elsewhere(url: str) -> str:
    """The url as another host sees it: none of the shortcuts within a process or a host is open to it."""
    front, mark, back = url.rpartition("@") if "@" in url else url.partition("://")
    seen = msgspec.structs.replace(address.parse(back), instance="", host="elsewhere", unix="", pid=0)
    return f"{front}{mark}{seen}"


def test_watchers_are_notified_at_once(server: RegistryServer) -> None:
    watching, adding = discovery.connect(server.url), discovery.connect(server.url)
    recorder = Recorder()
    watching.watch_names("a/", recorder)
    eventually(lambda: server.statistics().num_watches == 1)
    delays = []
    for number in range(5):
        adding.add(f"a/{number}", "1")
        began = time.monotonic()
        while len(recorder.calls) <= number:
            assert time.monotonic() - began < 60.0
            time.sleep(0.0005)
        delays.append(time.monotonic() - began)
    assert sorted(delays)[2] < 0.5, delays
    watching.close()
    adding.close()
    eventually(lambda: server.statistics().num_watches == 0)
    assert server.statistics().num_names == 5


def test_other_hosts_reach_it_over_tcp_with_the_secret_that_is_in_its_url() -> None:
    server = RegistryServer(0, secret="of this/test?")
    server.start()
    url = from_elsewhere(server.url)
    names, recorder = discovery.connect(url), Recorder()
    names.add("a/b", "1", ttl=0.6)
    names.watch_names("a/", recorder)
    recorder.expect({"a/b": "1"})
    time.sleep(0.8)
    names.add("a/c", "x" * 100_000)
    recorder.expect({"a/b": "1", "a/c": "x" * 100_000}, within_s=30.0)
    names.close()
    stranger = discovery.connect(url.replace("this", "that"))
    with pytest.raises(errors.DiscoveryError):
        stranger.get("a/c")
    stranger.close()
    server.close()


def test_a_lease_and_a_watch_survive_a_restart_of_the_registry() -> None:
    port = servers.free_port()
    server = RegistryServer(port)
    server.start()
    names, recorder = discovery.connect(f"registry://127.0.0.1:{port}"), Recorder()
    names.add("a/lease", "1", ttl=0.6)
    names.add("a/plain", "2")
    names.watch_names("a/", recorder)
    recorder.expect({"a/lease": "1", "a/plain": "2"})
    server.close()
    with pytest.raises(errors.DiscoveryError):
        names.get("a/plain")
    server = RegistryServer(port)
    server.start()
    assert names.wait("a/lease", timeout=60.0) == "1"
    recorder.expect({"a/lease": "1", "a/plain": None})
    names.close()
    server.close()


def test_a_registry_that_is_gone_is_a_discovery_error(server: RegistryServer) -> None:
    names = discovery.connect(server.url)
    names.add("a", "1", ttl=5.0)
    server.close()
    server.close()
    with pytest.raises(errors.DiscoveryError, match="does not answer"):
        names.get("a")
    began = time.monotonic()
    names.close()
    assert time.monotonic() - began < 30.0


def test_time_in_which_the_registry_could_not_listen_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = _ListeningClock()
    for passed, expected, counted in [(0.05, 0.1, 0.05), (0.1, 0.1, 0.1), (0.15, 0.1, 0.15), (60.0, 0.1, 0.2)]:
        before = clock.now()
        now += passed
        clock.tick(expected)
        assert clock.now() - before == pytest.approx(counted)
    assert clock.held_up_s == pytest.approx(59.8)
