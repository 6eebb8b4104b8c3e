"""A failure inside a nest: raised where it happens, it collects its path on the way up.

Walking with the path in hand would cost something at every leaf; this costs only when something is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Fault", "brief", "spell"]


def spell(parts: Sequence[str | int]) -> str:
    """A path as people read it: `obs/image/0`."""
    return "/".join(map(str, parts))


def brief(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Fault(Exception):
    """Every container on the way up calls `at(key)`; the outermost function turns it into a public error."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self._parts: list[str | int] = []

    def at(self, key: str | int) -> Fault:
        self._parts.append(key)
        return self

    @property
    def path(self) -> str:
        return spell(self._parts[::-1])
