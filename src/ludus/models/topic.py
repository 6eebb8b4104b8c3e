"""Publish and subscribe to the parameters of a model: each subscriber is notified of every new version.

    topic = Topic(pool, "policy")                            # a pool, a folder's store, or a service on another host
    topic.publish(policy.weights())

    with topic.subscribe(on_update) as subscription:         # on_update(update), in a thread of its own
        ...
    subscription.stats().num_missed

The versions are the messages: what is published is there for those who come later, and neither a publisher that is
killed nor one that is restarted changes anything for those who listen. A subscriber never holds up a publisher: it
looks for itself, and a slow one has its own queue, which is bounded.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

from numpy.typing import NDArray

from ludus import errors
from ludus.models.pools.pool import ModelPool
from ludus.models.versions.changes import ATTEND_S, Changes
from ludus.models.versions.client import FarVersions
from ludus.models.versions.store import Version, VersionStore

__all__ = ["OnUpdate", "Subscription", "SubscriptionStats", "Topic", "TopicSource", "Update"]

_log = logging.getLogger(__name__)
_RETRY_AFTER_S = 0.2
_JOIN_S = 5.0
_LOOK_EVERY_S = 0.005


TopicSource: TypeAlias = ModelPool | VersionStore | FarVersions
"""Where the versions of a topic are."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """A new version of a model."""

    version: Version
    weights: Mapping[str, NDArray[Any]]  # read-only
    num_missed: int  # versions since the update before, of which this subscriber was not notified

    @property
    def number(self) -> int:
        return self.version.number


OnUpdate = Callable[[Update], object]
Publisher = Callable[[Mapping[str, NDArray[Any]]], Version]


@dataclass(frozen=True, kw_only=True)
class SubscriptionStats:
    num_updates: int  # given to the callback
    num_missed: int  # not given to it: it was too slow, or they were removed or damaged before they were read
    num_failed: int  # calls of the callback that raised
    num_pending: int  # read, and not given to it yet


class Topic:
    """The parameters of one model. `publisher` makes a version, if more is to be done than its source does."""

    def __init__(self, source: TopicSource, model: str, *, publisher: Publisher | None = None) -> None:
        self.model = model
        self._source = source
        self._publisher = publisher

    def publish(self, weights: Mapping[str, NDArray[Any]]) -> int:
        """Make the next version; its number. Returns when it is there; it never waits for subscribers."""
        if self._publisher is not None:
            return self._publisher(weights).number
        if isinstance(self._source, VersionStore | FarVersions):
            return self._source.publish(self.model, weights, number=None).number
        return self._source.put(self.model, weights).number

    def subscribe(self, callback: OnUpdate, *, max_pending: int = 8) -> Subscription:
        """Call `callback` with the newest version, if there is one, and then with every new one, in order.

        max_pending: how many updates wait for a callback that is slower than the publisher; beyond, the oldest is
        dropped, and the next one that is given says so by `num_missed`. They hold their weights in memory.

        Raises what its source does when that cannot be reached; lost later, it is looked for until it is there again.
        """
        return Subscription(self._source, self.model, callback, max_pending=max_pending)


class Subscription:
    """Made by `Topic.subscribe`; two threads, one that looks and one that calls back. `close` ends both.

    One that looks into a source that is gone ends when that has given up.
    """

    def __init__(self, source: TopicSource, model: str, callback: OnUpdate, *, max_pending: int = 8) -> None:
        if max_pending < 1:
            raise errors.ConfigError(f"max_pending={max_pending} must be at least 1, or no update could be given")
        if not callable(callback):
            raise errors.ConfigError(f"the callback of {model!r} is {callback!r}: it must be a function of one update")
        self.model = model
        self._source = source
        self._callback = callback
        self._max_pending = max_pending
        self._changed = threading.Condition()
        self._pending: collections.deque[Update] = collections.deque()
        self._is_closed = threading.Event()
        self._is_lost = False  # its source does not answer: a look may last until its deadline
        self._num_updates = self._num_missed = self._num_failed = 0
        self._follower = _Follower(source, model)
        self._threads = [
            threading.Thread(target=self._look, daemon=True, name=f"topic-{model}"),
            threading.Thread(target=self._call, daemon=True, name=f"topic-{model}-callback"),
        ]
        for thread in self._threads:
            thread.start()

    def stats(self) -> SubscriptionStats:
        with self._changed:
            return SubscriptionStats(
                num_updates=self._num_updates,
                num_missed=self._num_missed,
                num_failed=self._num_failed,
                num_pending=len(self._pending),
            )

    # -- looking

    def _look(self) -> None:
        source = self._source
        every_s = _LOOK_EVERY_S if isinstance(source, VersionStore | FarVersions) else source.look_every_s
        while not self._is_closed.is_set():
            try:
                for update in self._follower.updates():
                    self._enqueue(update)
                if self._is_lost:
                    _log.info("the topic %r is there again", self.model)
                self._is_lost = False
            except (errors.LudusError, OSError) as error:
                if not self._is_lost:
                    _log.warning("the topic %r is lost for now, and is looked for again: %s", self.model, error)
                self._is_lost = True
            self._is_closed.wait(_RETRY_AFTER_S if self._is_lost else every_s)

    def _enqueue(self, update: Update) -> None:
        with self._changed:
            if self._is_closed.is_set():
                return
            self._num_missed += update.num_missed
            self._pending.append(update)
            if len(self._pending) > self._max_pending:
                dropped, first = self._pending.popleft(), self._pending.popleft()
                self._num_missed += 1
                num_missed = first.num_missed + dropped.num_missed + 1
                self._pending.appendleft(Update(version=first.version, weights=first.weights, num_missed=num_missed))
            self._changed.notify_all()

    # -- calling back

    def _call(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._is_closed.is_set())
                if self._is_closed.is_set():
                    return
                update = self._pending.popleft()
                self._num_updates += 1
            try:
                self._callback(update)
            except Exception:
                with self._changed:
                    self._num_failed += 1
                _log.exception("a subscriber of %r failed at version %d; it goes on", self.model, update.number)

    def close(self) -> None:
        """No callback begins after this; one that runs is waited for, unless this is called in it."""
        with self._changed:
            self._is_closed.set()
            self._pending.clear()
            self._changed.notify_all()
        for thread in self._threads[1:] if self._is_lost else self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Follower:
    """Which versions are new since it last looked, and how many came and went in between."""

    def __init__(self, source: TopicSource, model: str) -> None:
        self._source = source
        self._model = model
        self._given = ""  # the digest of the last one
        self._missed = 0  # since the last one
        self._attended = -ATTEND_S
        self._attend()
        self._begin(source.changes(model))

    def _begin(self, found: Changes) -> None:
        """With the newest: at first, and when numbers stand for other weights than before."""
        self._num_rewinds = found.num_rewinds
        self._num_seen = found.num_published - min(1, len(found.numbers))  # of all: given, missed, or from before
        self._newest = found.numbers[-1] - 1 if found.numbers else -1

    def updates(self) -> Iterator[Update]:
        """In order; costs next to nothing when there is nothing new. What raises is gone on with at the next look."""
        self._attend()
        published, rewinds = self._source.num_published(self._model), self._source.num_rewinds(self._model)
        if published == self._num_seen and rewinds == self._num_rewinds:
            return
        found = self._source.changes(self._model)
        if found.num_rewinds != self._num_rewinds:
            self._begin(found)
        new = [number for number in found.numbers if number > self._newest]
        missed = max(0, found.num_published - self._num_seen - len(new))
        self._missed += missed
        self._num_seen += missed
        for number in new:
            update = self._read(number)
            self._newest = number
            self._num_seen += 1
            if update is not None:
                yield update
        self._num_seen = found.num_published

    def _attend(self) -> None:
        now = time.monotonic()
        if now - self._attended > ATTEND_S / 3:
            self._source.attend(self._model)
            self._attended = now

    def _read(self, number: int) -> Update | None:
        """`None` if it is gone or damaged, which is a miss, or is what was given last."""
        try:
            version, weights = self._source.get(self._model, number)
        except errors.DataError as error:
            _log.debug("version %d of %r was missed: %s", number, self._model, error)
            self._missed += 1
            return None
        key = f"{number}-{version.digest}"
        if key == self._given:
            return None
        missed, self._missed, self._given = self._missed, 0, key
        return Update(version=version, weights=weights, num_missed=missed)
