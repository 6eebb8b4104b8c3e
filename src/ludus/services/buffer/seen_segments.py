"""Which segments of a producer have been seen: all that is needed to tell a repeated push from a new one."""

from __future__ import annotations

from collections.abc import Iterator

from ludus import errors
from ludus.data.nest import Nest

__all__ = ["WINDOW", "SeenSegments", "parse_segment_id"]

WINDOW = 256
"""So far apart may two pushes of one producer be that overtake each other. What is older counts as seen."""

_MASK = (1 << WINDOW) - 1
_MAX_PRODUCERS = 65_536
_MAX_LENGTH = 1024
_MAX_DIGITS = 18  # of an int64


def parse_segment_id(segment_id: str) -> tuple[str, int]:
    """`simulator/3-5f2a/17` is number 17 of producer `simulator/3-5f2a`. Raises `DataError` for anything else."""
    producer, _, number = segment_id.rpartition("/") if isinstance(segment_id, str) else ("", "", "")
    is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
    if not producer or not is_number or len(segment_id) > _MAX_LENGTH or not producer.isprintable():
        raise errors.DataError(
            f"{str(segment_id)[:80]!r} is not the id of a segment: those are spelled producer/number, of at most "
            f"{_MAX_LENGTH} printable characters and {_MAX_DIGITS} digits"
        )
    return producer, int(number)


class SeenSegments:
    """For each producer the highest number, and which of the `WINDOW` numbers up to it have been seen."""

    def __init__(self) -> None:
        self._producers: dict[str, tuple[int, int]] = {}  # highest, and a bit for each number: bit i is highest - i

    def __len__(self) -> int:
        return len(self._producers)

    def has(self, segment_id: str) -> bool:
        producer, number = parse_segment_id(segment_id)
        known = self._producers.get(producer)
        if known is None or number > known[0]:
            return False
        age = known[0] - number
        return age >= WINDOW or bool(known[1] >> age & 1)

    def add(self, segment_id: str) -> None:
        producer, number = parse_segment_id(segment_id)
        highest, bits = self._producers.pop(producer, (number, 0))  # and put back last: the first is the longest idle
        if number > highest:
            bits = bits << min(number - highest, WINDOW) & _MASK
            highest = number
        if highest - number < WINDOW:
            bits |= 1 << highest - number
        self._producers[producer] = highest, bits
        if len(self._producers) > _MAX_PRODUCERS:
            del self._producers[next(iter(self._producers))]

    def ids(self) -> Iterator[str]:
        """Ids that, added to another, make it know what this one does: of each producer the highest comes last."""
        for producer, (highest, bits) in self._producers.items():
            for age in range(WINDOW - 1, -1, -1):
                if bits >> age & 1 and highest >= age:
                    yield f"{producer}/{highest - age}"

    def save(self) -> Nest:
        return {producer: [highest, f"{bits:x}"] for producer, (highest, bits) in self._producers.items()}

    def restore(self, saved: Nest) -> None:
        self._producers = {producer: (highest, int(bits, 16)) for producer, (highest, bits) in saved.items()}
