"""Whose turn it is, where learners take turns: each gets its share of the steps from the moment it joins.

    turns = Turns()
    turns.add("main")
    turns.spend("main", steps=4_096, share=2.0)
    turns.next()                                       # the name of who has used least of its share

A learner that joins late does not catch up on what the others have trained before. Another share counts from now on.
"""

from __future__ import annotations

from ludus.data.nest import Nest

__all__ = ["Turns"]


class Turns:
    """Steps divided by shares, of each learner. A learner keeps its number, so that it stays in one process."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._numbers: dict[str, int] = {}
        self._num_added = 0

    def add(self, name: str) -> None:
        """It begins level with the one that has used least."""
        self._used[name] = min(self._used.values(), default=0.0)
        self._numbers[name] = self._num_added
        self._num_added += 1

    def remove(self, name: str) -> None:
        """Nothing happens if it is not there."""
        self._used.pop(name, None)
        self._numbers.pop(name, None)

    def spend(self, name: str, *, steps: int, share: float) -> None:
        self._used[name] += steps / share

    def next(self, part: int = 0, num_parts: int = 1) -> str | None:
        """Of this part of the learners, the first of those that used least; `None` if the part is empty."""
        own = [name for name, number in self._numbers.items() if number % num_parts == part]
        return min(own, key=self._used.__getitem__, default=None)

    def save(self) -> Nest:
        """For the codec."""
        rows = [[name, number, self._used[name]] for name, number in self._numbers.items()]
        return {"learners": rows, "num_added": self._num_added}

    def restore(self, saved: Nest) -> None:
        self._numbers = {name: int(number) for name, number, _ in saved["learners"]}
        self._used = {name: float(used) for name, _, used in saved["learners"]}
        self._num_added = int(saved["num_added"])
