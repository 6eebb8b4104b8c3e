"""The last push of each producer, and how many of its items were queued: the answer if it comes again."""

from __future__ import annotations

from ludus.data.nest import Nest
from ludus.services.buffer.seen_segments import parse_segment_id

__all__ = ["PushCounts"]

_MAX_PRODUCERS = 65_536


class PushCounts:
    """For producers that push one after another."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}

    def again(self, push_id: str) -> int | None:
        """The earlier answer to this push; none if it is new. One older than the last is nobody's any more."""
        producer, number = parse_segment_id(push_id)
        last, count = self._counts.get(producer, (-1, 0))
        if number > last:
            return None
        return count if number == last else 0

    def note(self, push_id: str, count: int) -> None:
        producer, number = parse_segment_id(push_id)
        self._counts.pop(producer, None)  # and put back last: the first is the longest idle
        self._counts[producer] = number, count
        if len(self._counts) > _MAX_PRODUCERS:
            del self._counts[next(iter(self._counts))]

    def save(self) -> Nest:
        return {producer: list(known) for producer, known in self._counts.items()}

    def restore(self, saved: Nest) -> None:
        self._counts = {producer: (number, count) for producer, (number, count) in saved.items()}
