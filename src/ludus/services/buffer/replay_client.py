"""The client of a `ReplayService`: inserts rows and samples them, from any process.

    replay = ReplayClient(remote)                           # what a handle becomes in a worker; or connect(address)
    replay.insert({"obs": obs, "action": actions})          # arrays [n, ...]; waits while the limiter does not allow it
    batch, keys, probabilities = replay.sample(256)
    replay.update_priorities(keys, abs(errors))

On the service's host it maps the columns, asks for keys of several batches per call, one call ahead, and copies the
items itself. Elsewhere the items come with the keys.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.data.spec import ArraySpec
from ludus.rpc.address import host_id
from ludus.rpc.call import Pending
from ludus.rpc.client import RpcClient
from ludus.services.buffer.mapped_replay import ColumnReader
from ludus.services.buffer.output_buffers import OutputBuffers
from ludus.services.buffer.replay_service import INSERTED
from ludus.services.buffer.seen_segments import WINDOW

__all__ = ["ReplayClient", "ReplayClientStats", "connect"]

_WAIT_S = 0.5  # a wait at the service is made of these: a dead client is waited for no longer
_WAY_S = 10.0  # what a call may take beyond what it waits for
_RETRY_AFTER_S = 0.05
_MAX_UPDATES = 16  # on the way
_MAX_ANSWER_BYTES = 16 << 20
_MAX_MAPPED_TRIES = 3

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]


class _Remote(Protocol):
    """What a handle becomes: `ludus.workers.remote.Remote`."""

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending: ...

    def within(self, timeout_s: float) -> _Remote: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ReplayClientStats:
    num_inserted: int  # rows that are known to be inserted
    num_inserts_under_way: int  # calls
    num_repeated: int  # calls that were made again: the service was lost, or the limiter did not allow it in time
    num_sampled: int
    num_lost_updates: int  # of priorities, with a service that was killed
    num_overwritten: int  # drawn rows that were overwritten before they were read, and drawn again
    insert_waited_s: float
    sample_waited_s: float
    is_mapped: bool


class _Insert(NamedTuple):
    insert_id: str
    batch: Arrays
    priorities: Any
    num: int
    until: float
    pending: Pending


class _Draws(NamedTuple):
    """What a call has drawn and is not used yet."""

    keys: Ints
    probabilities: Floats
    rows: Arrays | None  # if they came with it

    def split(self, num: int) -> tuple[_Draws, _Draws]:
        rows = self.rows
        first = None if rows is None else {name: array[:num] for name, array in rows.items()}
        rest = None if rows is None else {name: array[num:] for name, array in rows.items()}
        return (
            _Draws(self.keys[:num], self.probabilities[:num], first),
            _Draws(self.keys[num:], self.probabilities[num:], rest),
        )


class ReplayClient:
    """Used by one thread.

    num_ahead: batches that one call draws, and one call is made ahead; 0: each batch is drawn when it is asked for.
    credits: inserts that may be unanswered; then `insert` waits. So the rate limiter reaches the producer.
    mapped: read the service's memory, if it is on this host; otherwise items come by the connection. They do so, too,
        from tables with `max_times_sampled`: none of their items may be lost between its last draw and its reading.
    num_buffers: what `sample` returns is written to again by the so many-th call after it; 0: never.
    copy: `insert` copies the rows. If not, they must not change until `credits` inserts later, or `flush`.
    timeout_s: how long `insert` and `sample` may take, be the service gone or the limiter closed.
    """

    def __init__(
        self,
        remote: _Remote,
        *,
        num_ahead: int = 4,
        credits: int = 4,
        mapped: bool = True,
        num_buffers: int = 2,
        copy: bool = True,
        timeout_s: float = 60.0,
    ) -> None:
        if num_ahead < 0 or not 1 <= credits <= WINDOW:
            raise errors.ConfigError(f"num_ahead={num_ahead}, credits={credits}: they are 0 or more, and 1 to {WINDOW}")
        self._remote = remote
        self._waiting_remote = remote.within(2 * _WAIT_S + _WAY_S)
        self._num_ahead = num_ahead
        self._credits = credits
        self._may_map = mapped
        self._num_buffers = num_buffers
        self._copy = copy
        self._timeout_s = timeout_s
        self._identity = f"insert-{uuid.uuid4().hex[:16]}"
        self._number = 0
        self._inserts: deque[_Insert] = deque()
        self._updates: deque[Pending] = deque()
        self._draws: deque[_Draws] = deque()
        self._num_ready = 0
        self._next: tuple[Pending, bool] | None = None  # the call ahead, and whether its items come with it
        self._reader: ColumnReader | None = None
        self._token = ""
        self._spec: dict[str, ArraySpec] = {}
        self.mass = 0.0  # of the service's table, as of the last answer
        self._num_inserted = self._num_repeated = self._num_sampled = self._num_overwritten = 0
        self._num_lost_updates = 0
        self._insert_waited_s = self._sample_waited_s = 0.0

    # -- inserting

    def insert(self, batch: Arrays, priorities: Any = None) -> None:
        """Insert rows; waits while `credits` inserts are unanswered. `flush` waits until this one is answered.

        Raises what the service refused one of the inserts before with, or `DeadlineExceeded`, which says what it waited
        for; either is not inserted any more.
        """
        self._collect_inserts(self._credits - 1)
        if not self._spec:
            self._describe(time.monotonic() + self._timeout_s)
        num = len(next(iter(batch.values()))) if batch else 0
        if self._copy:
            batch = self._copied(batch)
            priorities = None if priorities is None else np.array(priorities, np.float64)
        self._number += 1
        insert_id = f"{self._identity}/{self._number}"
        until = time.monotonic() + self._timeout_s
        self._inserts.append(
            _Insert(insert_id, batch, priorities, num, until, self._send_insert(batch, insert_id, priorities))
        )

    def _copied(self, batch: Arrays) -> Arrays:
        """Into memory that was used before, which has no page faults."""
        num = len(next(iter(batch.values()))) if batch else 0
        fits = batch.keys() == self._spec.keys() and all(
            np.shape(batch[name]) == (num, *leaf.shape) for name, leaf in self._spec.items()
        )
        if not fits:  # the service says what is wrong with it
            return {name: np.array(rows) for name, rows in batch.items()}
        copied = self._staging.next(num)
        for name, rows in batch.items():
            np.copyto(copied[name], rows, casting="same_kind")
        return copied

    def _send_insert(self, batch: Arrays, insert_id: str, priorities: Any) -> Pending:
        return self._waiting_remote.submit("insert", dict(batch), insert_id, priorities, _WAIT_S)

    def flush(self) -> None:
        """Wait until every insert is answered, and every update of priorities. Raises as `insert` does."""
        self._collect_inserts(0)
        while self._updates:
            self._settle_update()

    def _collect_inserts(self, most: int) -> None:
        while self._inserts and (len(self._inserts) > most or self._inserts[0].pending.done):
            began = time.monotonic()
            try:
                self._settle(self._inserts[0])
            finally:
                self._inserts.popleft()
                self._insert_waited_s += time.monotonic() - began

    def _settle(self, insert: _Insert) -> None:
        pending = insert.pending
        while True:
            try:
                why = pending.result()
                if why == INSERTED:
                    self._num_inserted += insert.num
                    return
            except errors.UNANSWERED as error:
                why = str(error)
                time.sleep(_RETRY_AFTER_S)
            if time.monotonic() >= insert.until:
                raise errors.DeadlineExceeded(
                    f"{insert.num} rows were not inserted in {self._timeout_s:g} s and are given up: {why}"
                )
            self._num_repeated += 1
            pending = self._send_insert(insert.batch, insert.insert_id, insert.priorities)

    # -- sampling

    def sample(self, n: int, timeout_s: float | None = None) -> tuple[dict[str, NDArray[Any]], Ints, Floats]:
        """Rows, their keys, and the probability that each had. Raises `DeadlineExceeded`, which says why it waited."""
        until = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        first = self._take(n, n, until)
        if first.rows is not None and len(first.keys) == n:  # no need to copy them once more
            self._num_sampled += n
            return dict(first.rows), first.keys, first.probabilities
        out = self._out.next(n)
        keys, probabilities = self._fill(out, n, first, until)
        return out, keys, probabilities

    def sample_into(self, out: Arrays, n: int, until: float) -> tuple[Ints, Floats]:
        """`sample` into arrays of the caller, `[n, ...]`; until then on the monotonic clock."""
        return self._fill(out, n, self._take(n, n, until), until)

    @property
    def spec(self) -> Mapping[str, ArraySpec]:
        """Of one row."""
        if not self._spec:
            self._describe(time.monotonic() + self._timeout_s)
        return self._spec

    def _fill(self, out: Arrays, n: int, first: _Draws, until: float) -> tuple[Ints, Floats]:
        if len(first.keys) == n:
            keys, probabilities = first.keys, first.probabilities
            places = np.flatnonzero(~self._read(first, out))
        else:
            keys, probabilities = np.empty(n, np.int64), np.empty(n)
            places = np.arange(n)
            missing = self._put(first, out, keys, probabilities, places)
            places = np.concatenate((missing, places[len(first.keys) :]))
        if len(places):
            if len(first.keys) == n:
                keys, probabilities = keys.copy(), probabilities.copy()
            self._fill_places(out, n, keys, probabilities, places, until)
        self._num_sampled += n
        return keys, probabilities

    def _fill_places(self, out: Arrays, n: int, keys: Ints, probabilities: Floats, places: Ints, until: float) -> None:
        """Draw again until all places have whole rows. Where inserts are faster than reading, rows come by the call."""
        num_tries = 0
        while len(places):
            is_mapped = num_tries < _MAX_MAPPED_TRIES
            drawn = self._take(len(places), n, until) if is_mapped else self._draw_rows(len(places), until)
            num = len(drawn.keys)
            missing = self._put(drawn, out, keys, probabilities, places[:num])
            places = np.concatenate((missing, places[num:]))
            num_tries += 1

    def _draw_rows(self, num: int, until: float) -> _Draws:
        """Draws whose rows the service reads: it does not insert at the same time."""
        while True:
            try:
                answer = self._waiting_remote.submit("draw", num, 1, _WAIT_S, True).result()
                why = answer.get("waits")
            except errors.UNANSWERED as error:
                answer, why = {}, str(error)
                time.sleep(_RETRY_AFTER_S)
            if why is None:
                return _Draws(answer["keys"], answer["probabilities"], answer["rows"])
            if time.monotonic() >= until:
                raise errors.DeadlineExceeded(f"{num} rows could not be sampled in time: {why}")

    def _put(self, drawn: _Draws, out: Arrays, keys: Ints, probabilities: Floats, places: Ints) -> Ints:
        """The drawn rows in these places; returns those whose rows were not there any more."""
        places = places[: len(drawn.keys)]
        part = {name: np.empty((len(places), *leaf.shape), leaf.dtype) for name, leaf in self._spec.items()}
        is_whole = self._read(drawn, part)
        for name, rows in part.items():
            out[name][places] = rows
        keys[places], probabilities[places] = drawn.keys, drawn.probabilities
        return places[~is_whole]

    def _read(self, drawn: _Draws, out: Arrays) -> NDArray[np.bool_]:
        if drawn.rows is not None:
            for name, rows in drawn.rows.items():
                np.copyto(out[name], rows)
            return np.ones(len(drawn.keys), np.bool_)
        assert self._reader is not None
        is_whole = self._reader.gather(drawn.keys, out)
        self._num_overwritten += int(np.count_nonzero(~is_whole))
        return is_whole

    def _take(self, num: int, batch: int, until: float) -> _Draws:
        """Up to `num` draws, one at least; before they are used, the next call is on its way."""
        while not self._draws:
            self._receive(batch, until)
        head = self._draws[0]
        if len(head.keys) > num:
            taken, self._draws[0] = head.split(num)
        else:
            taken = self._draws.popleft()
        if self._num_ahead and self._next is None:
            self._next = self._submit_draw(batch)
        return taken

    def _submit_draw(self, batch: int) -> tuple[Pending, bool]:
        with_rows = self._reader is None
        num_batches = max(1, self._num_ahead)
        if with_rows:
            num_batches = max(1, min(num_batches, _MAX_ANSWER_BYTES // max(1, batch * self._row_bytes)))
        return self._waiting_remote.submit("draw", batch, num_batches, _WAIT_S, with_rows), with_rows

    def _receive(self, batch: int, until: float) -> None:
        """The draws of the call ahead; of a new one if there is none."""
        if not self._spec:
            self._describe(until)
        began = time.monotonic()
        pending, with_rows = self._next or self._submit_draw(batch)
        self._next = None
        try:
            answer = pending.result()
            why = answer.get("waits")
        except errors.UNANSWERED as error:
            answer, why = {}, str(error)
            self._num_repeated += 1
            self._token = ""  # it may be another process now
            time.sleep(_RETRY_AFTER_S)
        self._sample_waited_s += time.monotonic() - began
        if why is not None:
            if time.monotonic() >= until:
                raise errors.DeadlineExceeded(f"{batch} rows could not be sampled in time: {why}")
            return
        self.mass = answer["mass"]
        if answer["token"] != self._token:
            self._describe(until)
        if not with_rows and (self._reader is None or answer["token"] != self._reader.token):
            return  # keys of a process that is gone, or of columns that cannot be read: they are drawn again
        self._draws.append(_Draws(answer["keys"], answer["probabilities"], answer["rows"] if with_rows else None))

    def _describe(self, until: float) -> None:
        """Which columns there are, and whether they can be read from here."""
        while True:
            try:
                about = self._remote.submit("describe").result()
                break
            except errors.UNANSWERED as error:
                if time.monotonic() >= until:
                    raise errors.DeadlineExceeded(f"the replay service does not answer: {error}") from error
                time.sleep(_RETRY_AFTER_S)
        self._spec = {name: ArraySpec(tuple(shape), np.dtype(dtype)) for name, (dtype, shape) in about["spec"].items()}
        self._row_bytes = sum(leaf.dtype.itemsize * int(np.prod(leaf.shape)) for leaf in self._spec.values())
        self._out = OutputBuffers(self._spec, self._num_buffers)
        self._staging = OutputBuffers(self._spec, self._credits + 1)
        self._token = about["token"]
        self._unmap()
        # What leaves the table with its last draw could be overwritten before it is read here, and would be lost.
        if self._may_map and about["is_lasting"] and about["host"] == host_id():
            self._reader = ColumnReader.open(Path(about["folder"]), self._token, touch=about["is_in_memory"])

    # -- priorities

    def update_priorities(self, keys: Any, priorities: Any) -> None:
        """Of rows that were sampled; those that are gone are ignored. Not waited for: `flush` does.

        An update is lost with the service. Raises what an update before was refused with.
        """
        while self._updates and (self._updates[0].done or len(self._updates) >= _MAX_UPDATES):
            self._settle_update()
        keys, priorities = np.array(keys, np.int64), np.array(priorities, np.float64)
        self._updates.append(self._remote.submit("update_priorities", keys, priorities))

    def _settle_update(self) -> None:
        try:
            self._updates.popleft().result()
        except errors.UNANSWERED:
            self._num_lost_updates += 1  # with the service

    # -- all else

    def statistics(self) -> dict[str, Any]:
        """Of the service: `TableStats` by name, and who waits."""
        stats: dict[str, Any] = self._remote.submit("statistics").result()
        self.mass = stats["mass"]
        return stats

    def client_stats(self) -> ReplayClientStats:
        return ReplayClientStats(
            num_inserted=self._num_inserted,
            num_inserts_under_way=len(self._inserts),
            num_repeated=self._num_repeated,
            num_sampled=self._num_sampled,
            num_lost_updates=self._num_lost_updates,
            num_overwritten=self._num_overwritten,
            insert_waited_s=self._insert_waited_s,
            sample_waited_s=self._sample_waited_s,
            is_mapped=self._reader is not None,
        )

    def close(self) -> None:
        """Hang up. What is under way may or may not be inserted: `flush` before."""
        self._unmap()
        self._remote.close()

    def _unmap(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _Direct:
    """Calls to the server at an address, without a name service."""

    def __init__(self, client: RpcClient, timeout_s: float | None = None) -> None:
        self._client = client
        self._timeout_s = timeout_s

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending:
        return self._client.submit(command, args, kwargs, timeout_s=self._timeout_s)

    def within(self, timeout_s: float) -> _Direct:
        return _Direct(self._client, timeout_s)

    def close(self) -> None:
        self._client.close()


def connect(address: str, *, secret: str | None = None, transport: str | None = None, **options: Any) -> ReplayClient:
    """A client of the service whose server is at this address; `options` are those of `ReplayClient`."""
    return ReplayClient(_Direct(RpcClient(address, secret=secret, transport=transport)), **options)
