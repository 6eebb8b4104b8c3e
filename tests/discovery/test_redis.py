from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from ludus import discovery, errors
from ludus.testing.names import Recorder

from . import servers


def test_leases_and_watches_survive_a_restart_that_forgets_everything(tmp_path: Path) -> None:
    port = servers.free_port()
    names, recorder = discovery.connect(f"redis://127.0.0.1:{port}"), Recorder()
    with servers.running(servers.redis_command(port), port=port, folder=tmp_path):
        names.add("a/lease", "1", ttl=2.0)
        names.watch_names("a/", recorder)
        recorder.expect({"a/lease": "1"})
    time.sleep(2.1)  # longer than the ttl
    with pytest.raises(errors.DiscoveryError, match="Redis"):
        names.get("a/lease")
    with servers.running(servers.redis_command(port), port=port, folder=tmp_path):
        assert names.wait("a/lease", timeout=60.0) == "1"
        time.sleep(2.1)
        assert names.get_subtree("a") == ["1"]
        names.close()


def test_what_is_not_ours_is_left_alone_and_the_order_is_tidied(tmp_path: Path) -> None:
    port = servers.free_port()
    with (
        servers.running(servers.redis_command(port), port=port, folder=tmp_path),
        redis.Redis(port=port) as client,
    ):
        names = discovery.connect(f"redis://127.0.0.1:{port}/0")
        client.set("a/b", "somebody's")
        client.set("ludus:name:a/invalid", "not a record")
        client.zadd("ludus:names", {"a/invalid": 0, "a/expired": 0})
        names.add("a/c", "1")
        assert names.find_subtree("a") == ["a/c"]
        assert client.zrange("ludus:names", 0, -1) == [b"a/c", b"a/invalid"]
        names.clear_subtree("a")
        assert client.get("a/b") == b"somebody's"
        names.close()
