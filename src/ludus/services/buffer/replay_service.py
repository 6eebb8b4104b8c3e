"""Replay as a service, for items of one shape: rows of arrays, inserted and sampled by the batch.

    program.add("replay", ReplayService, spec, TableSettings(sampler=Prioritised()), num_slots=100_000)

Its columns are in shared memory. A client on the same host asks for the keys of a sample only, and reads the items
itself; clients elsewhere get them by the call. `replay_client.py` has both.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.rpc.address import host_id
from ludus.rpc.deferred import Deferred
from ludus.services.buffer.column_folder import SHARED_MEMORY, ColumnFolder
from ludus.services.buffer.columns import ColumnSpec
from ludus.services.buffer.mapped_replay import MappedReplay
from ludus.services.buffer.table import TableSettings, as_keys
from ludus.services.buffer.waiting_calls import WaitingCalls
from ludus.workers import context
from ludus.workers.register import register

__all__ = ["INSERTED", "ReplayService"]

INSERTED = "inserted"
"""The answer to an insert that was made; another text says why it was not made in time."""
_KEY_BYTES = 8
_MAX_DRAWS = 1 << 20  # by one call
_MAX_ROW_BYTES = 1 << 30  # in one answer: no larger one can be sent


class ReplayService:
    """Commands: `insert`, `draw`, `gather`, `update_priorities`, `statistics`, `describe`.

    Without a `folder` the columns are in shared memory, or in the trial's folder if there is no room, and are removed
    at the end. In a `folder` on disk there may be more of them than there is memory. `persist`: they are kept there,
    and an insert that was answered survives kill -9.
    """

    def __init__(
        self,
        spec: Mapping[str, ColumnSpec],
        settings: TableSettings | None = None,
        *,
        num_slots: int,
        folder: Path | None = None,
        persist: bool = False,
        seed: int = 0,
    ) -> None:
        if persist and folder is None:
            raise errors.ConfigError("persist=True needs a folder: shared memory is lost with the machine's power")
        spec = {name: ArraySpec(leaf.shape, leaf.dtype) for name, leaf in spec.items()}
        self._row_bytes = sum(np.dtype(leaf.dtype).itemsize * int(np.prod(leaf.shape)) for leaf in spec.values())
        num_bytes = num_slots * (self._row_bytes + _KEY_BYTES)
        self._folder = _make_folder(num_bytes) if folder is None else ColumnFolder.use(Path(folder))
        try:
            at = self._folder.path if persist or folder is None else self._folder.path / "columns"
            if not persist and folder is not None:
                _remove(at)
            self.replay = MappedReplay(spec, settings, num_slots=num_slots, folder=at, persist=persist, seed=seed)
        except BaseException:
            self._folder.close()
            raise
        self._lock = threading.RLock()
        self._inserts = WaitingCalls(self._lock, on_expired=self._serve)
        self._draws = WaitingCalls(self._lock, on_expired=self._serve)
        self._num_duplicates = 0
        self._is_closed = False

    @register
    def insert(
        self, batch: Mapping[str, NDArray[Any]], insert_id: str, priorities: Any = None, wait_s: float = 0.0
    ) -> Deferred | str:
        """Insert rows, as soon as the limiter allows: answers `INSERTED`. The same id again is inserted once only.

        When it could not be in `wait_s`, the answer says why, and nothing was inserted.
        """
        with self._lock:
            self._expect_open()
            num = self.replay.check(batch, priorities)
            answer = self._inserts.answer(
                lambda: self._insert(batch, insert_id, priorities, num), self._why_not_insert, wait_s
            )
            self._serve()
            return answer

    def _insert(self, batch: Mapping[str, NDArray[Any]], insert_id: str, priorities: Any, num: int) -> str:
        if self.replay.has_inserted(insert_id):
            self._num_duplicates += 1
            return INSERTED
        if not self.replay.table.can_insert(num):
            return ""
        self.replay.insert(batch, priorities, insert_id=insert_id)
        return INSERTED

    def _why_not_insert(self) -> str:
        return self.replay.table.statistics().inserting or "inserting waits for samples: fewer rows could be inserted"

    @register
    def draw(self, n: int, num_batches: int = 1, wait_s: float = 0.0, rows: bool = False) -> Deferred | Nest:
        """Draw `num_batches` times `n` samples, or fewer batches if the limiter allows no more, but one at least.

        `{"keys", "probabilities", "token", "mass", "size"}`, the first two arrays of `[batches * n]`; with `rows` also
        the items, `"rows"`. `{"waits": why}` when the limiter did not allow one in `wait_s`.
        """
        if not _is_count(n) or not _is_count(num_batches):
            raise errors.ConfigError(f"cannot draw {num_batches!r} batches of {n!r}: both are 1 or more")
        num_batches = min(num_batches, max(1, self._most_at_once(rows) // n))
        self._expect_few(n, rows)
        with self._lock:
            self._expect_open()
            answer = self._draws.answer(
                lambda: self._draw(n, num_batches, rows), lambda: {"waits": self._why_not_draw(n)}, wait_s
            )
            self._serve()
            return answer

    def _draw(self, n: int, num_batches: int, rows: bool) -> Nest:
        table = self.replay.table
        while not self._can_draw(n, num_batches):
            if num_batches == 1:
                return None
            num_batches //= 2
        keys, probabilities = self.replay.draw(n * num_batches)
        answer = {
            "keys": keys,
            "probabilities": probabilities,
            "token": self.replay.token,
            "mass": table.mass,
            "size": table.size,
        }
        if rows:
            answer["rows"] = self.replay.gather(keys)[0]
        return answer

    def _can_draw(self, n: int, num_batches: int) -> bool:
        try:
            return self.replay.table.can_sample(n * num_batches)
        except errors.ConfigError:
            if num_batches == 1:
                raise
            return False

    def _why_not_draw(self, n: int) -> str:
        stats = self.replay.table.statistics()
        return stats.sampling or f"sampling waits for inserts: {n} are asked for at once, fewer could be sampled"

    @register
    def gather(self, keys: NDArray[np.int64]) -> Nest:
        """The items of drawn keys: `{"rows", "is_there"}`. What is not there any more has no valid row."""
        keys = as_keys(keys)
        self._expect_few(len(keys), True)
        with self._lock:
            rows, is_there = self.replay.gather(keys)
        return {"rows": rows, "is_there": is_there}

    def _most_at_once(self, rows: bool) -> int:
        return min(_MAX_DRAWS, _MAX_ROW_BYTES // max(1, self._row_bytes)) if rows else _MAX_DRAWS

    def _expect_few(self, num: int, rows: bool) -> None:
        most = self._most_at_once(rows)
        if num > most:
            what = f"{num} rows of {self._row_bytes} bytes" if rows else f"{num} draws"
            raise errors.ConfigError(f"{what} are too many for one call, which has at most {most}. Ask for fewer")

    @register
    def update_priorities(self, keys: Any, priorities: Any) -> int:
        """Keys that are gone are ignored; how many were there."""
        with self._lock:
            num = self.replay.table.update_priorities(keys, priorities)
            self._serve()
            return num

    @register
    def describe(self) -> Nest:
        """What a client must know: the columns, and where they are."""
        return {
            "spec": {name: [leaf.dtype.str, list(leaf.shape)] for name, leaf in self.replay.spec.items()},
            "folder": str(self.replay.folder),
            "host": host_id(),
            "token": self.replay.token,
            "is_in_memory": self.replay.folder.is_relative_to(SHARED_MEMORY),
            "is_lasting": not self.replay.table.max_times_sampled,
        }

    @register
    def statistics(self) -> dict[str, Any]:
        """`TableStats` by name, `mass`, and who waits."""
        with self._lock:
            return {
                **asdict(self.replay.table.statistics()),
                "mass": self.replay.table.mass,
                "num_duplicates": self._num_duplicates,
                "num_waiting_inserts": len(self._inserts),
                "num_waiting_draws": len(self._draws),
            }

    def stats(self) -> dict[str, Any]:
        """What `ludus ctl stats` shows."""
        return self.statistics()

    def close(self) -> None:
        """Those that wait get their answers: why it was not done. Twice is fine."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._inserts.close()
            self._draws.close()
            self.replay.close()
            self._folder.close()

    def _expect_open(self) -> None:
        if self._is_closed:
            raise errors.Unreachable("the replay service was closed; nothing was done")

    def _serve(self) -> None:
        """Inserts make draws possible, and draws inserts: until neither does."""
        while self._inserts or self._draws:
            before = len(self._inserts) + len(self._draws)
            self._inserts.serve()
            self._draws.serve()
            if len(self._inserts) + len(self._draws) == before:
                return


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and int(value) >= 1


def _make_folder(num_bytes: int) -> ColumnFolder:
    trial = context.current().folder if context.is_given() else None
    return ColumnFolder.make(num_bytes, otherwise=trial)


def _remove(folder: Path) -> None:
    """What an earlier process left that did not persist."""
    if folder.is_dir():
        for path in folder.iterdir():
            path.unlink()
