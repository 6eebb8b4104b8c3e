from __future__ import annotations

import random

import pytest

from ludus import errors
from ludus.data import codec
from ludus.services.buffer.seen_segments import WINDOW, SeenSegments, parse_segment_id


def test_each_number_of_each_producer_is_new_once() -> None:
    seen = SeenSegments()
    for producer in ("a/0-x", "a/1-y"):
        for number in range(1, 1000):
            segment_id = f"{producer}/{number}"
            assert not seen.has(segment_id)
            seen.add(segment_id)
            assert seen.has(segment_id)
    assert seen.has("a/0-x/1"), "what is older than the window counts as seen"
    assert len(seen) == 2


def test_numbers_may_overtake_each_other_within_the_window() -> None:
    numbers = list(range(1, 2000))
    for start in range(0, len(numbers), WINDOW // 2):
        part = numbers[start : start + WINDOW // 2]
        random.Random(start).shuffle(part)
        numbers[start : start + WINDOW // 2] = part
    seen = SeenSegments()
    for number in numbers:
        assert not seen.has(f"p/{number}")
        seen.add(f"p/{number}")
    assert all(seen.has(f"p/{number}") for number in numbers)


def test_it_can_be_saved_and_restored() -> None:
    seen = SeenSegments()
    for number in (1, 2, 5):
        seen.add(f"p/{number}")
    other = SeenSegments()
    other.restore(seen.save())
    assert [other.has(f"p/{number}") for number in range(1, 7)] == [True, True, False, False, True, False]


@pytest.mark.parametrize(
    "segment_id",
    [
        "",
        "p",
        "p/",
        "/1",
        "p/x",
        "p/-1",
        "p/²",
        None,
        5,
        "p/" + "9" * 19,
        "p/" + "9" * 5000,
        "p\n/1",
        "\ud800/1",
        "p" * 2000 + "/1",
    ],
)
def test_what_is_no_id_is_refused(segment_id: str) -> None:
    with pytest.raises(errors.DataError, match="producer/number"):
        parse_segment_id(segment_id)


def test_the_largest_number_can_be_saved() -> None:
    seen = SeenSegments()
    seen.add("p/" + "9" * 18)
    other = SeenSegments()
    other.restore(codec.decode(codec.encode(seen.save())))
    assert other.has("p/" + "9" * 18)
