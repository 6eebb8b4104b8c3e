"""A call of a model that waits for its batch, and how outcomes get back to whoever called."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.rows import Leaves, RowLayout

__all__ = ["Request", "Sink", "deliver", "split"]


class Sink(Protocol):
    """Who is told of outcomes, by the thread that ran them."""

    def deliver(self, tokens: list[Any], results: list[Any]) -> None: ...

    def fail(self, tokens: list[Any], error: BaseException) -> None: ...


class Request:
    """Rows of one caller, and the version that it wants them run by."""

    __slots__ = ("is_row", "layout", "leaves", "num_rows", "sink", "token", "version")

    def __init__(
        self, version: int, layout: RowLayout, leaves: Leaves, num_rows: int, is_row: bool, sink: Sink, token: Any
    ) -> None:
        self.version = version
        self.layout = layout
        self.leaves = leaves
        self.num_rows = num_rows
        self.is_row = is_row  # one row that was given without a row axis
        self.sink = sink
        self.token = token


def split(outputs: Nest, requests: list[Request]) -> list[Any]:
    """Each request's own rows; of one row that came without a row axis, the row itself."""
    if all(request.is_row for request in requests):
        return list(outputs) if type(outputs) is np.ndarray else nests.unstack(outputs)
    parts = nests.split(outputs, [request.num_rows for request in requests])
    return [nests.take(part, 0) if request.is_row else part for part, request in zip(parts, requests, strict=True)]


def deliver(requests: list[Request], results: list[Any]) -> None:
    """One message to each sink."""
    sink = requests[0].sink
    if all(request.sink is sink for request in requests):
        sink.deliver([request.token for request in requests], results)
        return
    sinks: dict[int, tuple[Sink, list[Any], list[Any]]] = {}
    for request, result in zip(requests, results, strict=True):
        _, tokens, own = sinks.setdefault(id(request.sink), (request.sink, [], []))
        tokens.append(request.token)
        own.append(result)
    for each, tokens, own in sinks.values():
        each.deliver(tokens, own)
