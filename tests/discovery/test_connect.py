from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import ludus
from ludus import core, discovery, errors
from ludus.discovery import name_resolve

from . import servers


def test_connections_to_one_memory_see_each_other_and_no_other() -> None:
    one, same, other = (discovery.connect(f"memory://{name}") for name in ("one", "one", "other"))
    one.add("a", "1")
    assert same.get("a") == "1"
    assert other.find_subtree("a") == []
    same.delete("a")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("regsitry://x", "Did you mean 'registry'?"),
        ("rdis://localhost", "Did you mean 'redis'?"),
        ("zookeeper://localhost", "There are: consul, etcd, file, memory, redis"),
        ("localhost:6379", "is not the url of a name service"),
        ("etcd://localhost:port", "is not the url of a name service"),
        ("file://names", "absolute path"),
        ("file:///", "absolute path"),
        ("registry://no address", "registry"),
    ],
)
def test_a_url_that_makes_no_sense_is_answered_with_what_would(url: str, says: str) -> None:
    with pytest.raises(errors.DiscoveryError) as caught:
        discovery.connect(url)
    assert says in str(caught.value)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ludus.discovery.redis", "ludus.redis_server"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delattr(ludus, "redis_server", raising=False)  # `from ludus import` looks there first
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(errors.MissingExtra, match=r"pip install 'ludus\[redis\]'"):
        discovery.connect("redis://localhost")


@pytest.mark.parametrize("scheme", ["redis", "etcd", "consul"])
def test_a_server_that_is_not_there_is_a_discovery_error(scheme: str) -> None:
    names = discovery.connect(f"{scheme}://127.0.0.1:{servers.free_port()}")
    with pytest.raises(errors.DiscoveryError):
        names.get("a")
    with pytest.raises(errors.DiscoveryError):
        names.add("a", "1", ttl=1.0)
    with pytest.raises(errors.DiscoveryError):
        names.watch_names("a/", print)
    names.close()


@pytest.fixture
def fresh_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LUDUS_NAMES", f"memory://{uuid.uuid4().hex}")
    name_resolve.reconfigure()
    yield
    name_resolve.reconfigure()


@pytest.mark.usefixtures("fresh_default")
def test_name_resolve_has_the_whole_contract_as_functions() -> None:
    calls: list[tuple[str, str | None]] = []
    name_resolve.add("a/b", "1", ttl=5.0)
    name_resolve.add("a/b", "2", replace=True)
    assert name_resolve.get("a/b") == name_resolve.wait("a/b", 1.0) == "2"
    assert name_resolve.find_subtree("a") == ["a/b"]
    assert name_resolve.get_subtree("a") == ["2"]
    watch = name_resolve.watch_names("a/c", lambda name, value: calls.append((name, value)))
    name_resolve.delete("a/b")
    name_resolve.add("a/c", "3")
    name_resolve.clear_subtree("a")
    watch.close()
    assert name_resolve.find_subtree("a") == []
    methods = {name for name in vars(core.Names) if not name.startswith("_")} - {"close"}
    assert methods <= set(name_resolve.__all__)


@pytest.mark.usefixtures("fresh_default")
def test_name_resolve_can_be_reconfigured_and_then_closes_what_it_had(tmp_path: Path) -> None:
    before = name_resolve.default()
    name_resolve.add("a", "1", ttl=5.0)
    name_resolve.reconfigure(tmp_path.as_uri())
    assert name_resolve.find_subtree("a") == []
    with pytest.raises(errors.DiscoveryError, match="closed"):
        before.get("a")
    name_resolve.reconfigure()
    assert name_resolve.find_subtree("a") == [], "a closed connection leaves no lease behind"
