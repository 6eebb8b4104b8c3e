"""One call of a model on its way through the kernel, and who gets the outcome."""

from __future__ import annotations

from typing import Any, Protocol

from ludus.data import nest as nests
from ludus.data import rows
from ludus.data.nest import Nest
from ludus.data.rows import Leaves, RowLayout
from ludus.models.verify import Verification

__all__ = ["Inference", "Request", "Sink", "deliver", "split"]


class Sink(Protocol):
    """Receives outcomes, in the thread that ran the batch."""

    def deliver(self, tokens: list[Any], results: list[Any], version: int) -> None: ...

    def fail(self, tokens: list[Any], error: BaseException) -> None: ...


class Inference(Protocol):
    """What runs a model for the callers of this process: `KernelThreads` here, or `ModelClient`, by workers."""

    @property
    def is_closed(self) -> bool: ...

    def submit(self, version: int | str, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink, token: Any) -> None:
        """Ask for the outputs of one row, without a row axis. The arrays must not change before there is an outcome.

        Raises `SpecError` for what the model cannot take, and `Overloaded` if too many calls wait.
        """
        ...

    def verification(self, *, again: bool = False) -> Verification:
        """Which backend runs; waits until it is chosen. `again`: choose it again, on recently seen rows, too."""
        ...

    def stats(self) -> dict[str, Any]:
        """`KernelStats` by name."""
        ...

    def close(self) -> None:
        """Run no more calls; those that wait fail. Closing twice does nothing."""
        ...

    def abandon(self) -> None:
        """In a forked child: mark as closed here; the threads are the parent's."""
        ...


class Request:
    """Rows of one caller, to be run by the version that it names: a number, a tag or "latest"."""

    __slots__ = ("is_row", "layout", "leaves", "num_rows", "sink", "token", "version")

    def __init__(
        self, version: int | str, layout: RowLayout, leaves: Leaves, num_rows: int, is_row: bool, sink: Sink, token: Any
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
        return rows.unstack(outputs, len(requests), "forward")
    if len(requests) == 1:
        return [outputs]
    parts = nests.split(outputs, [request.num_rows for request in requests])
    return [nests.take(part, 0) if request.is_row else part for part, request in zip(parts, requests, strict=True)]


def deliver(requests: list[Request], results: list[Any], version: int) -> None:
    """One message to each sink."""
    sink = requests[0].sink
    if all(request.sink is sink for request in requests):
        sink.deliver([request.token for request in requests], results, version)
        return
    sinks: dict[int, tuple[Sink, list[Any], list[Any]]] = {}
    for request, result in zip(requests, results, strict=True):
        _, tokens, own = sinks.setdefault(id(request.sink), (request.sink, [], []))
        tokens.append(request.token)
        own.append(result)
    for each, tokens, own in sinks.values():
        each.deliver(tokens, own, version)
