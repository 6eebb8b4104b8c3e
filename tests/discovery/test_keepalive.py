from __future__ import annotations

import logging
import threading

import pytest

from ludus import errors
from ludus.clock import FakeClock
from ludus.discovery.keepalive import KeepAlive
from ludus.discovery.store import Record


class Backend:
    """Remembers when it was asked to renew what, and fails or refuses on demand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.renewed: list[tuple[str, float]] = []
        self.down = False
        self.taken = False

    def renew(self, name: str, record: Record) -> bool:
        self.renewed.append((name, round(self.clock.now(), 6)))
        if self.down:
            raise errors.DiscoveryError("out of reach")
        return not self.taken


class UnthreadedKeepAlive(KeepAlive):
    def _run(self) -> None:
        """The test is its thread."""

    def run_until(self, clock: FakeClock, end: float) -> None:
        while (step := self.renew_due()) + clock.now() <= end:
            clock.advance(step)


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def keepalive(backend: Backend) -> UnthreadedKeepAlive:
    return UnthreadedKeepAlive(backend.renew, clock=backend.clock)


def lease(ttl: float) -> Record:
    return Record(value="1", owner="me", ttl=ttl)


def test_a_lease_is_renewed_three_times_within_its_ttl(backend: Backend, keepalive: UnthreadedKeepAlive) -> None:
    keepalive.hold("a", lease(3.0))
    keepalive.hold("b", lease(6.0))
    keepalive.run_until(backend.clock, 4.0)
    assert backend.renewed == [("a", 1.0), ("a", 2.0), ("b", 2.0), ("a", 3.0), ("a", 4.0), ("b", 4.0)]


def test_a_dropped_lease_is_renewed_no_more(backend: Backend, keepalive: UnthreadedKeepAlive) -> None:
    keepalive.hold("a", lease(3.0))
    keepalive.drop("a")
    keepalive.drop("never held")
    keepalive.run_until(backend.clock, 10.0)
    assert backend.renewed == []


def test_an_outage_is_survived_and_reported_twice(
    backend: Backend, keepalive: UnthreadedKeepAlive, caplog: pytest.LogCaptureFixture
) -> None:
    keepalive.hold("a", lease(30.0))
    backend.down = True
    keepalive.run_until(backend.clock, 60.0)
    assert len(backend.renewed) > 30, "once it fails it is tried every second, not every third of the ttl"
    backend.down = False
    keepalive.run_until(backend.clock, 90.0)
    assert keepalive.held().keys() == {"a"}
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "cannot renew" in caplog.messages[0]
    assert "renewed again" in caplog.messages[1]


def test_a_lease_that_is_somebody_elses_now_is_let_go(
    backend: Backend, keepalive: UnthreadedKeepAlive, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[str] = []
    keepalive.hold("a", lease(3.0), on_taken=lambda: taken.append("a"))
    backend.taken = True
    keepalive.run_until(backend.clock, 10.0)
    assert backend.renewed == [("a", 1.0)]
    assert taken == ["a"]
    assert keepalive.held() == {}
    assert "belongs to somebody else" in caplog.text


def test_closing_while_a_renewal_is_under_way_ends_the_thread() -> None:
    renewing, go_on = threading.Event(), threading.Event()

    def renew(name: str, record: Record) -> bool:
        renewing.set()
        return go_on.wait(5.0)

    keepalive = KeepAlive(renew)
    keepalive.hold("a", lease(0.03))
    assert renewing.wait(5.0)
    closing = threading.Thread(target=keepalive.close)
    closing.start()
    go_on.set()
    closing.join(5.0)
    assert not closing.is_alive()
