from __future__ import annotations

import pytest

from ludus import errors
from ludus.discovery.store import Record
from ludus.discovery.table import Table
from ludus.discovery.watching import PollFeed, Watcher
from ludus.testing.names import Recorder


class FlakyTable(Table):
    """A table that can be out of reach, and has to be polled."""

    down = False

    def read(self, root: str) -> dict[str, str]:
        if self.down:
            raise errors.DiscoveryError("out of reach")
        return super().read(root)

    def follow(self, roots: object) -> PollFeed:  # type: ignore[override]
        return PollFeed(0.01)


def test_a_watch_survives_an_outage_and_tells_then_what_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    table, recorder = FlakyTable(), Recorder()
    table.put("a/gone", Record(value="1", owner="x"), replace=False)
    watcher = Watcher(table, ["a/"], recorder, resync_s=1.0)
    watcher.start()
    recorder.expect({"a/gone": "1"})
    table.down = True
    table.remove("a/gone", owner=None)
    table.put("a/new", Record(value="2", owner="x"), replace=False)
    while not caplog.records:
        assert recorder.calls == [("a/gone", "1")], "nothing is reported while nothing is known"
    table.down = False
    recorder.expect({"a/gone": None, "a/new": "2"})
    watcher.close()
    assert "cannot look" in caplog.messages[0]
    assert len(caplog.messages) == 2, "logged once when it begins and once when it ends"


def test_a_watch_that_cannot_begin_raises() -> None:
    table = FlakyTable()
    table.down = True
    with pytest.raises(errors.DiscoveryError, match="out of reach"):
        Watcher(table, ["a/"], Recorder(), resync_s=1.0).start()


def test_a_malformed_name_cannot_be_watched() -> None:
    with pytest.raises(errors.DiscoveryError, match="is not a name"):
        Watcher(Table(), ["a//"], Recorder(), resync_s=1.0)
