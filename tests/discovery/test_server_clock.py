from __future__ import annotations

import email.utils
import random

import pytest

from ludus.discovery.server_clock import ServerClock


def learn(clock: ServerClock, *, offset_s: float, num_answers: int, round_trip_s: float = 0.002) -> None:
    """Answers at random moments from a server that is `offset_s` ahead."""
    chance = random.Random(0)
    for _ in range(num_answers):
        sent_at = 1e9 + chance.random() * 100
        date = email.utils.formatdate(int(sent_at + round_trip_s / 2 + offset_s), usegmt=True)
        clock.note(date, sent_at=sent_at, received_at=sent_at + round_trip_s)


def test_clocks_in_step_are_left_alone() -> None:
    clock = ServerClock()
    learn(clock, offset_s=0.0, num_answers=200)
    assert clock.offset_s == 0.0


@pytest.mark.parametrize("offset_s", [-7.3, 0.9, 100.5])
def test_a_difference_is_found_within_a_second_at_once_and_closely_after_many(offset_s: float) -> None:
    clock = ServerClock()
    learn(clock, offset_s=offset_s, num_answers=1)
    assert abs(clock.offset_s - offset_s) <= 1.01
    learn(clock, offset_s=offset_s, num_answers=200)
    assert abs(clock.offset_s - offset_s) < 0.05


def test_a_clock_that_was_set_is_learnt_again() -> None:
    clock = ServerClock()
    learn(clock, offset_s=50.0, num_answers=100)
    learn(clock, offset_s=-50.0, num_answers=100)
    assert abs(clock.offset_s + 50.0) < 0.05


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_an_answer_without_a_sensible_date_teaches_nothing(date: str | None) -> None:
    clock = ServerClock()
    clock.note(date, sent_at=1e9, received_at=1e9)
    assert clock.offset_s == 0.0
