from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from ludus import discovery, errors
from ludus.discovery.http import HttpClient
from ludus.testing.names import Recorder

from . import servers


def revision(port: int) -> int:
    answer = HttpClient("127.0.0.1", port, what="etcd").request("POST", "/v3/kv/range", b'{"key": "AA=="}')
    return int(msgspec.json.decode(answer.body)["header"]["revision"])


def test_etcd_keeps_leases_through_renewals_and_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = servers.free_port()
    command = servers.etcd_command(port, tmp_path, election_ms=1000)
    names, recorder = discovery.connect(f"etcd://127.0.0.1:{port}"), Recorder()
    with servers.running(command, port=port, folder=tmp_path):
        names.add("a/plain", "2")
        names.add("a/lease", "1", ttl=1.0)
        assert "lapse within 2.5 s" in caplog.text, "two seconds is this server's shortest lease"
        names.watch_names("a/", recorder)
        recorder.expect({"a/lease": "1", "a/plain": "2"})
        before = revision(port)
        time.sleep(1.0)
        assert revision(port) == before, "a renewal writes nothing to etcd's history"
    with pytest.raises(errors.DiscoveryError, match="etcd"):
        names.get("a/plain")
    with servers.running(command, port=port, folder=tmp_path):
        assert names.wait("a/lease", timeout=60.0) == "1"
        names.add("a/late", "3")
        recorder.expect({"a/lease": "1", "a/plain": "2", "a/late": "3"})
        names.close()
        again = discovery.connect(f"etcd://127.0.0.1:{port}")
        assert again.find_subtree("a") == ["a/late", "a/plain"]
        again.close()
