"""What a process has played for a learner: a segment, and the learner's episodes that ended in it."""

from __future__ import annotations

from dataclasses import dataclass

from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.services.simulator.episodes import Episode

__all__ = ["Collected"]


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The segment has only the learner's own steps active. `num_games` were counted by the league."""

    segment: Segment
    episodes: list[Episode]
    num_games: int

    def to_nest(self) -> Nest:
        """For the codec."""
        return {
            "segment": self.segment.to_nest(),
            "episodes": [[each.total, each.length, each.row] for each in self.episodes],
            "num_games": self.num_games,
        }

    @classmethod
    def from_nest(cls, nest: Nest) -> Collected:
        """Raises `DataError` unless it has a segment."""
        return cls(
            segment=Segment.from_nest(nest["segment"]),
            episodes=[Episode(*each) for each in nest["episodes"]],
            num_games=nest["num_games"],
        )
