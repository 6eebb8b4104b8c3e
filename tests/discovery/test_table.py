from __future__ import annotations

import pytest

from ludus.clock import FakeClock
from ludus.discovery.store import Record
from ludus.discovery.table import Table


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def table(clock: FakeClock) -> Table:
    return Table(clock=clock)


def record(owner: str, *, ttl: float | None = None) -> Record:
    return Record(value=f"of {owner}", owner=owner, ttl=ttl)


def test_a_lease_lapses_at_its_ttl_unless_renewed(table: Table, clock: FakeClock) -> None:
    table.put("a", record("x", ttl=2.0), replace=False)
    clock.advance(1.5)
    assert table.put("a", record("x", ttl=2.0), replace=False), "its own record can be put again"
    clock.advance(1.5)
    assert table.get("a") == "of x"
    assert table.seconds_to_lapse() == 0.5
    clock.advance(0.5)
    assert table.get("a") is None
    assert len(table) == 0


def test_a_lapsed_name_can_be_taken_and_its_old_owner_does_not_get_it_back(table: Table, clock: FakeClock) -> None:
    table.put("a", record("x", ttl=2.0), replace=False)
    assert not table.put("a", record("y"), replace=False)
    clock.advance(2.0)
    assert table.put("a", record("y"), replace=False)
    assert not table.put("a", record("x", ttl=2.0), replace=False)
    assert not table.remove("a", owner="x")
    assert table.get("a") == "of y"


def test_renewals_are_no_change_and_lapses_are(table: Table, clock: FakeClock) -> None:
    table.put("a/b", record("x", ttl=2.0), replace=False)
    version = table.version
    table.put("a/b", record("x", ttl=2.0), replace=False)
    assert not table.has_changed(["a"], since=version)
    clock.advance(2.0)
    assert table.has_changed(["a"], since=version)
    assert not table.has_changed(["b", "a/bc"], since=version)


def test_what_is_too_long_ago_to_tell_counts_as_changed(table: Table) -> None:
    for number in range(2000):
        table.put(f"a/{number}", record("x"), replace=False)
    assert table.has_changed(["b"], since=1)
    assert not table.has_changed(["b"], since=1900)
    assert table.has_changed(["b"], since=9999), "a version of a table that is no more"
