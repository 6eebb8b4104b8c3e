"""What a buffer is of: segments, or any nests. How one is read, sent and counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ludus import errors
from ludus.data.nest import Nest
from ludus.data.segment import Segment

__all__ = ["NEST", "SEGMENT", "Kind", "kind_of"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`read` makes an item of what came over the wire, `send` is its inverse, `num_rows` is what `min_rows` counts."""

    name: str
    read: Callable[[Nest], Any]
    send: Callable[[Any], Nest]
    num_rows: Callable[[Any], int]


SEGMENT = Kind(
    name="segment", read=Segment.from_nest, send=lambda item: item.to_nest(), num_rows=lambda item: int(item.num_rows)
)
NEST = Kind(name="nest", read=lambda nest: nest, send=lambda item: item, num_rows=lambda item: 1)


def kind_of(name: str) -> Kind:
    """The kind of that name. Raises `ConfigError` for any other."""
    for kind in (SEGMENT, NEST):
        if kind.name == name:
            return kind
    raise errors.ConfigError(f"of={name!r}: a buffer is of 'segment' or 'nest'")
