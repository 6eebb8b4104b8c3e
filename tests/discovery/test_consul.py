"""The Consul backend against our imitation of Consul; see `consul_twin.py` for what that proves."""

from __future__ import annotations

import time

import pytest

from ludus import discovery, errors
from ludus.discovery.consul import ConsulStore
from ludus.discovery.store import Record

from .consul_twin import ConsulTwin


def test_hosts_whose_clocks_disagree_agree_on_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """One host is in step with the server, the other's clock is 100 s behind both."""
    lease = Record(value="1", owner="x", ttl=4.0)
    with ConsulTwin() as twin:
        right = ConsulStore("127.0.0.1", twin.port)
        began = time.monotonic()
        right.put("a", lease, replace=False)
        real_time = time.time
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: real_time() - 100.0)
            twin.clock_offset_s = 100.0  # which is in this process too
            behind = ConsulStore("127.0.0.1", twin.port)
            for _ in range(20):
                behind.get("a")
                time.sleep(0.06)  # so that its answers fall on many parts of a second
            assert behind.get("a") == "1", "with its own clock it would see the lease for 100 s more, or for ever"
            time.sleep(max(0.0, began + lease.ttl + 0.3 - time.monotonic()))
            assert behind.get("a") is None


def test_what_has_lapsed_long_ago_is_swept_by_the_next_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    with ConsulTwin() as twin:
        store = ConsulStore("127.0.0.1", twin.port)
        store.put("a/dead", Record(value="1", owner="x", ttl=0.01), replace=False)
        store.put("a/alive", Record(value="2", owner="x"), replace=False)
        time.sleep(0.02)
        assert store.read("a") == {"a/alive": "2"}
        assert "ludus/names/a/dead" in twin.keys
        monkeypatch.setattr("ludus.discovery.consul._SWEEP_AFTER_S", 0.01)
        assert store.read("a") == {"a/alive": "2"}
        assert list(twin.keys) == ["ludus/names/a/alive"]


def test_a_token_is_sent_and_a_refusal_is_a_discovery_error() -> None:
    with ConsulTwin(token="open sesame") as twin:
        names = discovery.connect(f"consul://:open%20sesame@127.0.0.1:{twin.port}")
        names.add("a", "1")
        assert names.get("a") == "1"
        stranger = discovery.connect(f"consul://127.0.0.1:{twin.port}")
        with pytest.raises(errors.DiscoveryError, match="403"):
            stranger.get("a")


def test_keys_of_others_are_taken_as_absent() -> None:
    with ConsulTwin() as twin:
        twin.keys["ludus/names/a/invalid"] = (b"not a record", 5)
        twin.keys["ludus/names/a/empty"] = (b"", 6)
        names = discovery.connect(f"consul://127.0.0.1:{twin.port}")
        assert names.find_subtree("a") == []
        names.add("a/invalid", "1")
        assert names.get("a/invalid") == "1"
