"""The inference kernel: pending calls of one model become one batch per version and layout, run by one backend.

    kernel = Kernel.of(ModelFolder(folder, "policy"))
    kernel.prepare()
    kernel.submit(12, (image,), {}, sink, token)      # from any thread
    kernel.run_pending()                              # delivers to `sink`, once for each batch

Calls that arrive while a batch runs make up the next one, so batches grow with the load and no timer is needed. Rows
are copied once, into memory that the next batch uses again. Tags and "latest" are resolved when a batch is taken.

As many threads as there are `lanes` may call `run_pending`: each runs batches of its own on one core.
"""

from __future__ import annotations

import concurrent.futures
import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import errors
from ludus.data.rows import Layouts, Leaves, RowLayout, RowMemory, own_rows, row_count
from ludus.models import verify
from ludus.models.backends import prepare
from ludus.models.definition import Definition, ModelFolder
from ludus.models.ready_versions import Holds, Ready, ReadyVersions, VersionSource
from ludus.models.request import Request, Sink, deliver, split
from ludus.models.settings import ModelSettings
from ludus.models.stats import KernelStats
from ludus.models.versions.store import VersionStore

__all__ = ["Kernel"]

_MAX_PENDING = 65_536
_NUM_RECORDED = 64
_RECORD_EVERY_S = 0.05
_MIN_SHARE = 12  # rows; a batch is not shared with other lanes below this
_NUM_CHECKED = 16  # recorded rows on which a version is compared with eager when it is loaded


class Kernel:
    """`submit` and `submit_rows` are for any thread, `run_pending` for one thread per lane, `prepare` for one.

    `max_batch` counts rows; a call that has more rows is run alone. Each lane's forward passes have an equal share of
    the settings' `num_threads`.
    """

    def __init__(
        self,
        name: str,
        definition: Definition,
        versions: VersionSource,
        *,
        settings: ModelSettings,
        export: Path | None = None,
        holds: Holds | None = None,
        keep_versions: int = 8,
        lanes: int = 1,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """`wake` is called when a version has been loaded that calls wait for."""
        self.name = name
        self.max_batch = settings.max_batch
        self.lanes = lanes
        self.verification: verify.Verification | None = None
        self._settings = settings
        self._store = versions
        self._holds = holds
        self._keep_versions = keep_versions
        self._wake = wake
        self._source = definition.source(export=export)
        self._layouts = Layouts(name, definition.layout)
        self._num_op_threads = max(1, settings.num_threads // lanes)
        self._queue: queue.SimpleQueue[Request | Callable[[], None]] = queue.SimpleQueue()
        self._left: Request | None = None
        self._loader: concurrent.futures.ThreadPoolExecutor | None = None
        self._waiting: dict[int, list[list[Request]]] = {}  # by the version that is being loaded for them
        self._taking = threading.Lock()  # one lane takes a batch while the others run theirs
        self._books = threading.Lock()  # over ready versions, what waits for them, and the counters
        self._memory = RowMemory()
        self._recorded: deque[tuple[RowLayout, Leaves]] = deque(maxlen=_NUM_RECORDED)
        self._record_at = 0.0
        self._versions: ReadyVersions | None = None
        self._num_calls = self._num_rows = self._num_batches = self._num_failed = 0
        self._began = time.monotonic()
        self._busy_s = 0.0

    @classmethod
    def of(
        cls, folder: ModelFolder, *, settings: ModelSettings | None = None, holds: Holds | None = None, **options: Any
    ) -> Kernel:
        """The kernel of a named model, with the model's own settings unless others are given."""
        settings = settings or folder.settings()
        store = VersionStore(folder.folder, keep=settings.keep)
        return cls(
            folder.name,
            folder.definition(),
            store,
            settings=settings,
            export=folder.onnx_path,
            holds=holds,
            **options,
        )

    def prepare(self, weights: Mapping[str, NDArray[Any]] | None = None) -> verify.Verification:
        """Choose the backend, again if it was chosen before; it is verified on `weights`, or on the newest version's.

        Takes about a second for another backend than eager and numpy, and far longer for compile.
        """
        torch.set_num_threads(self._num_op_threads)
        if weights is None:
            weights = self._store.get(self.name, private=True)[1]
        backend, self.verification = verify.choose(
            self._settings.backend,
            self._source,
            weights,
            self._recorded_calls(_NUM_RECORDED),
            tolerance=self._settings.tolerance,
            num_threads=self._num_op_threads,
        )
        self._versions = ReadyVersions(
            self._store,
            self.name,
            backend,
            backend if backend.name == "eager" else prepare("eager", self._source),
            self._holds,
            weights=weights,
            tolerance=self._settings.tolerance,
            keep=self._keep_versions,
            calls=self._checking_calls,
        )
        return self.verification

    # -- asking ---------------------------------------------------------------------------------------------------

    def submit(self, version: int | str, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink, token: Any) -> None:
        """`Inference.submit`."""
        layout, leaves = self._layouts.take(args, kwargs)
        self._put(Request(version, layout, leaves, 1, True, sink, token))

    def submit_rows(
        self, version: int | str, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink, token: Any
    ) -> None:
        """`submit` for arguments with a row axis, of one or more rows; so is the result.

        The arrays are the kernel's from now on: a call that is run alone is not copied, and its model may write to it.
        """
        try:
            num_rows = row_count(args, kwargs)
            layout, leaves = self._layouts.take_rows(args, kwargs)
        except errors.DataError:
            self._num_failed += 1
            raise
        self._put(Request(version, layout, leaves, num_rows, False, sink, token))

    def _put(self, request: Request) -> None:
        if self._queue.qsize() >= _MAX_PENDING:
            raise errors.Overloaded(f"{_MAX_PENDING} calls wait for {self.name!r}, as many as allowed; not run")
        self._queue.put(request)

    def call(self, function: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """Have a thread that runs the kernel call `function` between two batches."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._queue.put(run)
        return future

    # -- running --------------------------------------------------------------------------------------------------

    def run_pending(self, timeout_s: float = 0.0) -> int:
        """Wait for a first call, then run all that are pending, up to `max_batch` rows; the number of rows taken.

        Calls by a version that is still being loaded are run by a later `run_pending`.
        """
        with self._taking:
            taken, calls = self._take(timeout_s)
        for call in calls:
            call()
        if not taken:
            return 0
        began = time.perf_counter()
        num_rows = sum([request.num_rows for requests in taken for request in requests])
        for number, requests in self._resolved(taken):
            self._run(number, requests)
        with self._books:
            self._busy_s += time.perf_counter() - began
        return num_rows

    def load(self, number: int) -> None:
        """Make a version ready before it is asked for."""
        assert self._versions is not None, "prepare comes first"
        with self._books:
            self._versions.get(number)

    def _take(self, timeout_s: float) -> tuple[list[list[Request]], list[Callable[[], None]]]:
        """Requests of one version and layout, in lists, and functions to call before them."""
        groups: dict[tuple[int | str, int], list[Request]] = {}
        calls: list[Callable[[], None]] = []
        pending, num_rows = self._queue, 0
        max_batch = self.max_batch
        if self.lanes > 1:  # share what is there, also with lanes that are busy: the next of them is free soon
            max_batch = min(max_batch, max(-(-pending.qsize() // self.lanes), _MIN_SHARE))
        if self._left is None and pending.empty() and timeout_s <= 0:
            return [], calls
        while num_rows < max_batch:
            item: Any = self._left
            self._left = None
            if item is None:
                if (num_rows or calls) and pending.empty():
                    break
                try:
                    item = pending.get(timeout=0.0 if num_rows or calls else timeout_s)
                except queue.Empty:
                    break
            if type(item) is not Request:
                calls.append(item)
                continue
            if num_rows and num_rows + item.num_rows > max_batch:
                self._left = item
                break
            num_rows += item.num_rows
            key = item.version, id(item.layout)
            group = groups.get(key)
            if group is None:
                groups[key] = [item]
            else:
                group.append(item)
        return list(groups.values()), calls

    def _resolved(self, taken: list[list[Request]]) -> list[tuple[int, list[Request]]]:
        """The same by number: requests that name one version in several ways are run together."""
        groups: dict[tuple[int, int], list[Request]] = {}
        for requests in taken:
            version = requests[0].version
            if type(version) is str:
                try:
                    version = self._store.resolve(self.name, version)
                except errors.LudusError as error:
                    self._num_calls += len(requests)
                    self._fail(requests, error)
                    continue
            key = int(version), id(requests[0].layout)
            groups[key] = groups[key] + requests if key in groups else requests
        return [(number, requests) for (number, _), requests in groups.items()]

    def _run(self, number: int, requests: list[Request]) -> None:
        """One forward pass. An error reaches these callers only, and if one row is to blame, that row's alone."""
        versions = self._versions
        assert versions is not None, "prepare comes first"
        try:
            with self._books:
                self._num_calls += len(requests)
                if number in self._waiting:
                    self._waiting[number].append(requests)
                    return
                ready = versions.find(number)
                if ready is None and versions.loads_slowly:
                    self._load_aside(number, requests)
                    return
                ready = ready or versions.get(number)
        except Exception as error:
            self._give_up(number, requests, error)
        else:
            self._run_with(ready, number, requests)

    def _load_aside(self, number: int, requests: list[Request]) -> None:
        """Load a version in a thread of its own, so that calls by others need not wait for it."""
        versions = self._versions
        assert versions is not None, "prepare comes first"
        if self._loader is None:
            self._loader = concurrent.futures.ThreadPoolExecutor(
                1, "model-loader", torch.set_num_threads, (self._num_op_threads,)
            )
        self._waiting[number] = [requests]
        loading = self._loader.submit(versions.make, number)

        def go_on(_loaded: object) -> None:
            self._queue.put(functools.partial(self._on_loaded, number, loading, versions))
            if self._wake is not None:
                self._wake()

        loading.add_done_callback(go_on)

    def _on_loaded(self, number: int, loading: concurrent.futures.Future[Ready], versions: ReadyVersions) -> None:
        failure: Exception | None = None
        try:
            ready = loading.result()
        except Exception as error:
            failure = error
        with self._books:
            waiting = self._waiting.pop(number, [])
            if failure is None and versions is self._versions:  # otherwise the backend was chosen again since
                versions.add(number, ready)
        for requests in waiting:
            if failure is None:
                self._run_with(ready, number, requests)
            else:
                self._give_up(number, requests, failure)

    def _run_with(self, ready: Ready, number: int, requests: list[Request]) -> None:
        backend, handle = ready
        num_rows = sum([request.num_rows for request in requests])
        layout = requests[0].layout
        try:
            batch = self._joined(layout, requests, num_rows)
            args, kwargs = layout.nest(batch)
            outputs = backend.run(handle, args, kwargs)
            outputs = own_rows(outputs, num_rows, f"forward of {self.name!r}", is_owned=backend.owns_outputs)
            results = split(outputs, requests)
        except Exception as error:
            if len(requests) > 1:  # one row may be to blame
                for request in requests:
                    self._run_with(ready, number, [request])
            else:
                self._fail(requests, error)
            return
        with self._books:
            self._num_batches += 1
            self._num_rows += num_rows
        deliver(requests, results, number)
        now = time.monotonic()
        if now >= self._record_at or len(self._recorded) < _NUM_RECORDED:
            self._record_at = now + _RECORD_EVERY_S
            self._recorded.append((layout, [None if leaf is None else leaf[-1:].copy() for leaf in batch]))

    def _joined(self, layout: RowLayout, requests: list[Request], num_rows: int) -> Leaves:
        """All rows in one batch. One call of rows alone is its own batch, if torch can take it as it is."""
        alone = requests[0].leaves
        if len(requests) == 1 and not requests[0].is_row and all(leaf is None or _is_plain(leaf) for leaf in alone):
            return alone
        parts = [request.leaves for request in requests]
        return self._memory.join(layout, parts, num_rows=num_rows, max_rows=self.max_batch)

    def _give_up(self, number: int, requests: list[Request], error: Exception) -> None:
        """Fail calls whose version cannot be loaded; those by a name that stands for another version now go again.

        It does if the version was removed between being resolved and being loaded.
        """
        again = [request for request in requests if type(request.version) is str and self._has_moved(request, number)]
        for request in again:
            self._queue.put(request)
        if again and self._wake is not None:
            self._wake()
        self._fail([request for request in requests if request not in again], error)

    def _has_moved(self, request: Request, number: int) -> bool:
        try:
            return self._store.resolve(self.name, request.version) != number
        except errors.LudusError:  # the name is gone as well
            return False

    def _fail(self, requests: list[Request], error: BaseException) -> None:
        self._num_failed += len(requests)
        for request in requests:
            request.sink.fail([request.token], error)

    # -- recorded rows --------------------------------------------------------------------------------------------

    def _recorded_calls(self, max_rows: int) -> list[verify.Call]:
        """The rows recorded last, joined by layout."""
        kinds: dict[int, tuple[RowLayout, list[Leaves]]] = {}
        for layout, leaves in list(self._recorded)[-max_rows:]:
            kinds.setdefault(id(layout), (layout, []))[1].append(leaves)
        calls = []
        for layout, rows in kinds.values():
            columns = zip(*rows, strict=True)
            calls.append(layout.nest([None if column[0] is None else np.concatenate(column) for column in columns]))
        return calls

    def _checking_calls(self) -> list[verify.Call]:
        recorded = self._recorded_calls(_NUM_CHECKED)
        if recorded or self._source.args is None:
            return recorded
        return verify.example_calls(self._source.args, self._source.kwargs or {})[1:2]

    def stats(self) -> KernelStats:
        versions = self._versions
        return KernelStats(
            num_calls=self._num_calls,
            num_rows=self._num_rows,
            num_batches=self._num_batches,
            num_failed=self._num_failed,
            num_pending=self._queue.qsize() + sum([len(groups) for groups in self._waiting.values()]),
            max_pending=_MAX_PENDING,
            num_loads=0 if versions is None else versions.num_loads,
            versions=() if versions is None else versions.numbers,
            held=() if self._holds is None else self._holds.numbers,
            num_refused_versions=0 if versions is None else versions.num_refused,
            backend="" if self.verification is None else self.verification.chosen,
            busy_s=self._busy_s,
            idle_s=time.monotonic() - self._began - self._busy_s,
        )

    def refuse_pending(self, error: BaseException) -> None:
        """Fail all calls that wait."""
        left, self._left = self._left, None
        requests = [left] if left is not None else []
        waiting, self._waiting = self._waiting, {}
        requests += [each for groups in waiting.values() for group in groups for each in group]
        while not self._queue.empty():
            item = self._queue.get_nowait()
            if isinstance(item, Request):
                requests.append(item)
            else:
                item()
        self._fail(requests, error)

    def close(self) -> None:
        """Fail all calls that wait. Holds stay until they are released, or closed by their owner."""
        self._store.close()
        if self._loader is not None:
            self._loader.shutdown(cancel_futures=True)
        self.refuse_pending(errors.Unreachable(f"the model {self.name!r} is closed here; the call was not run"))


def _is_plain(leaf: NDArray[Any]) -> bool:
    return leaf.flags.c_contiguous and leaf.flags.writeable
