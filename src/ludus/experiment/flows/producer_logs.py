"""The episodes within segments that several producers push, each with a log of its own."""

from __future__ import annotations

from ludus.services.buffer.nest_buffer import Item
from ludus.services.simulator.episodes import Episode, EpisodeLog

__all__ = ["ProducerLogs", "producer_of"]


def producer_of(item: Item) -> str:
    """Who pushed it: a simulator, or a line of sessions."""
    return item.segment_id.rpartition("/")[0]


class ProducerLogs:
    def __init__(self) -> None:
        self._logs: dict[str, EpisodeLog] = {}

    def read(self, item: Item) -> list[Episode]:
        """The episodes that end in a segment; its producer's earlier segments were read before it."""
        producer = producer_of(item)
        log = self._logs.get(producer)
        if log is None:
            log = self._logs[producer] = EpisodeLog(item.segment.num_rows)
        return log.read(item.segment)
