"""What a process has done per second lately."""

from __future__ import annotations

import pytest

from ludus.clock import FakeClock
from ludus.league.pace import Pace


def test_rates_are_of_the_last_ten_seconds_or_so() -> None:
    clock = FakeClock()
    pace = Pace(clock=clock)
    assert pace.rates() == {}
    for number in range(1, 401):
        clock.advance(0.1)
        pace.note({"train": 0.06 * number, "steps": 0.0 if number < 200 else 10.0 * (number - 200)})
    assert pace.rates() == pytest.approx({"train": 0.6, "steps": 100.0})
    assert len(pace._marks) < 50


def test_of_a_note_that_comes_seldom_the_rate_is_since_the_one_before_it() -> None:
    clock = FakeClock()
    pace = Pace(clock=clock)
    for total in (1.0, 2.0, 62.0):
        clock.advance(60.0)
        pace.note({"train": total})
    assert pace.rates() == {"train": 1.0}


def test_what_is_under_way_does_not_count_yet() -> None:
    clock = FakeClock()
    pace = Pace(clock=clock)
    clock.advance(2.0)
    pace.note({"play": 1.0})
    clock.advance(30.0)
    assert pace.rates() == {"play": 0.5}
