"""Processes that play for a learner while it learns: its weights go there, segments come back.

    distant = DistantCollectors(Remote("simulator"), num=1)
    distant.ask("main", weights, version)              # as many calls as there is room for
    distant.take("main")                               # a `Collected` that has come back, or None

A segment is by the weights with which it was asked for: a few updates old when it is learnt from.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from ludus import errors
from ludus.league.collected import Collected
from ludus.rpc.call import Pending

__all__ = ["DistantCollectors"]

_LOG = logging.getLogger(__name__)
_EACH = 2  # calls on their way to one process: it goes on with the second while the first is learnt from
_TIMEOUT_S = 600.0  # a search takes its time


class _Simulators(Protocol):
    """A `Remote`."""

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending: ...

    def replica(self, index: int) -> _Simulators: ...

    def within(self, timeout_s: float) -> _Simulators: ...


class DistantCollectors:
    """`num` replicas of a simulator. One that dies loses what it was playing, and is asked again."""

    def __init__(self, simulators: _Simulators, *, num: int) -> None:
        self._replicas = [simulators.replica(index).within(_TIMEOUT_S) for index in range(num)]
        self._pending: dict[str, list[collections.deque[Pending]]] = {}

    def ask(self, name: str, weights: Mapping[str, NDArray[Any]], version: int) -> None:
        """For segments of this learner, where fewer than two are on their way."""
        queues = self._pending.setdefault(name, [collections.deque() for _ in self._replicas])
        for replica, queue in zip(self._replicas, queues, strict=True):
            while len(queue) < _EACH:
                queue.append(replica.submit("collect", name, dict(weights), version))

    def take(self, name: str) -> Collected | None:
        """One that has come back; never waits."""
        for queue in self._pending.get(name, ()):
            while queue and _is_done(queue[0]):
                try:
                    return Collected.from_nest(queue.popleft().result())
                except errors.UNANSWERED as error:
                    _LOG.info("a segment of %s was lost, and is asked for again: %s", name, error)
        return None

    def forget(self, name: str) -> None:
        """What is on its way for this learner is not wanted any more."""
        self._pending.pop(name, None)


def _is_done(call: Pending) -> bool:
    if not call.done and call.link is not None:
        call.link.pump()
        call.link.tend()
    return call.done
