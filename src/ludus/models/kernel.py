"""A model in this process: whoever is free runs everything that is pending, one forward pass for each version.

    host = ModelHost(ModelFolder(folder, "policy"))
    host.prepare()
    host.submit(12, (image,), {}, sink, token)      # from any thread
    host.run_pending()                              # `sink` is told, once for each batch

Calls that arrive while a batch runs make the next one, so batches grow with the load by themselves and nobody waits
for a timer. Rows are copied once, into memory that is used again for the next batch.

`run_pending` may be called by as many threads as there are `lanes`: each runs batches of its own on one core, so none
waits for another in the middle of a pass, and what else the machine does costs one of them its share and no more.
"""

from __future__ import annotations

import concurrent.futures
import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import errors
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.rows import MAX_LAYOUTS, Layouts, Leaves, RowLayout, row_count
from ludus.models import verify
from ludus.models.backends import Backend, prepare
from ludus.models.definition import Definition, ModelFolder
from ludus.models.ready_versions import Holds, Ready, ReadyVersions
from ludus.models.request import Request, Sink, deliver, split
from ludus.models.settings import ModelSettings
from ludus.models.statistics import HostStatistics
from ludus.models.versions.store import VersionStore

__all__ = ["ModelHost"]

_MAX_PENDING = 65_536
_NUM_RECORDED = 64
_RECORD_EVERY_S = 0.05
_NUMPY_KEEPS_LOCK = 500  # elements, below which a copy is made without letting go of the interpreter's lock
_LEAST_SHARE = 12  # rows of a batch that are not worth sharing with another lane
_CHECKED_ROWS = 16  # of what was recorded, when a version is loaded


def _copy_rows(sources: list[NDArray[Any] | None], rows: NDArray[Any]) -> None:
    """Put arrays one after the other into `rows`.

    As bytes: NumPy lets go of the interpreter's lock for every array that it copies, and getting it back, beside an
    event loop that is busy, takes longer than the copy.
    """
    if not rows.size:
        return
    into, at = rows.data.cast("B"), 0
    for source in sources:
        assert source is not None, "of one layout"
        content = np.ascontiguousarray(source).data.cast("B")
        into[at : at + len(content)] = content
        at += len(content)


def _copied(leaf: NDArray[Any]) -> NDArray[Any]:
    """In memory of its own, one row after the other."""
    if leaf.size < _NUMPY_KEEPS_LOCK or not leaf.flags.c_contiguous:
        return leaf.copy()
    copy = np.empty_like(leaf)
    copy.data.cast("B")[:] = leaf.data.cast("B")  # as bytes: see `_copy_rows`
    return copy


class _OwnMemory(threading.local):
    """Where the thread that runs puts its batches together."""

    def __init__(self) -> None:
        self._batches: dict[int, tuple[RowLayout, Leaves]] = {}  # with the layout, so that no other has its id

    def of(self, layout: RowLayout, num_rows: int, max_batch: int) -> Leaves:
        """Arrays with room for these rows, as they were left by the last batch of this layout."""
        known = self._batches.get(id(layout))
        if known is not None and next(len(leaf) for leaf in known[1] if leaf is not None) >= num_rows:
            return known[1]
        if known is None and len(self._batches) >= MAX_LAYOUTS:
            del self._batches[next(iter(self._batches))]
        room = max(num_rows, min(2 * num_rows, max_batch))
        memory: Leaves = [None if spec is None else np.empty((room, *spec[0]), spec[1]) for spec in layout.specs]
        self._batches[id(layout)] = layout, memory
        return memory


class ModelHost:
    """`submit`, `hold` and `release` are for any thread; `run_pending` for those that run it, `prepare` for one.

    Of the settings' `num_threads`, each lane's passes have their share.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *,
        definition: Definition | None = None,
        settings: ModelSettings | None = None,
        holds: Holds | None = None,
        keep_versions: int = 8,
        lanes: int = 1,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """`wake` is called when there is something to run that nobody submitted: a version that is loaded now."""
        self.name = folder.name
        self._folder = folder
        self._definition = definition or folder.definition()
        self._settings = settings or folder.settings()
        self._store = VersionStore(folder.folder, keep=self._settings.keep)
        self._holds = holds or Holds(self._store, folder.name)
        self._keep_versions = keep_versions
        self._queue: queue.SimpleQueue[Request | Callable[[], None]] = queue.SimpleQueue()
        self._left: Request | None = None
        self._wake = wake
        self._loader: concurrent.futures.ThreadPoolExecutor | None = None
        self._waiting: dict[int, list[list[Request]]] = {}  # by the version that is being loaded for them
        self._lanes = lanes
        self._record_at = 0.0  # the next row of what is asked
        self._num_op_threads = max(1, self._settings.num_threads // lanes)
        self._taking = threading.Lock()  # one lane takes a batch while the others run theirs
        self._books = threading.Lock()  # over what is ready, what waits for it, and the figures
        self._own = _OwnMemory()
        self._recorded: deque[tuple[RowLayout, Leaves]] = deque(maxlen=_NUM_RECORDED)
        self._source = self._definition.source(export=folder.onnx_path)
        self._layouts = Layouts(folder.name, self._definition.layout)
        self._versions: ReadyVersions | None = None
        self.verification: verify.Verification | None = None
        self._num_calls = self._num_rows = self._num_batches = self._num_failed = 0
        self._busy_s = 0.0

    def prepare(self) -> verify.Verification:
        """Choose the backend. Takes a second if it is another than eager, and more for compile."""
        torch.set_num_threads(self._num_op_threads)
        with self._store.hold(self.name) as held:
            weights = self._store.get(self.name, held.number, private=True)[1]
            self.verification = self._choose(weights)
        return self.verification

    def _choose(self, weights: Mapping[str, NDArray[Any]]) -> verify.Verification:
        settings = self._settings
        backend, verification = verify.choose(
            settings.backend,
            self._source,
            weights,
            self._recorded_calls(_NUM_RECORDED),
            tolerance=settings.tolerance,
            num_threads=self._num_op_threads,
        )
        self._versions = ReadyVersions(
            self._store,
            self.name,
            backend,
            backend if backend.name == "eager" else prepare("eager", self._source),
            self._holds,
            tolerance=settings.tolerance,
            keep=self._keep_versions,
            calls=self._checking_calls,
        )
        return verification

    # -- asking ---------------------------------------------------------------------------------------------------

    def submit(self, version: int, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink, token: Any) -> None:
        """Ask for the outputs of one row, without a row axis. The arrays must not change before there is an outcome.

        Raises `SpecError` for what the model cannot take, and `Overloaded` if too many wait.
        """
        layout, leaves = self._layouts.take(args, kwargs)
        self._put(Request(version, layout, leaves, 1, True, sink, token))

    def submit_rows(self, version: int, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink, token: Any) -> None:
        """`submit` for arguments that have a row axis, of one or more rows; so will the result."""
        num_rows = row_count(args, kwargs)
        layout, leaves = self._layouts.take_rows(args, kwargs)
        self._put(Request(version, layout, leaves, num_rows, False, sink, token))

    def _put(self, request: Request) -> None:
        if self._queue.qsize() >= _MAX_PENDING:
            raise errors.Overloaded(f"{_MAX_PENDING} calls wait for {self.name!r}, as many as allowed; not run")
        self._queue.put(request)

    def call(self, function: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """Have something done by the thread that runs the model, between two batches."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._queue.put(run)
        return future

    def hold(self, version: int | str) -> int:
        """Keep a version in the store and, once it ran, ready, until `release`; its number."""
        return self._holds.hold(version)

    def release(self, number: int) -> None:
        self._holds.release(number)

    # -- running --------------------------------------------------------------------------------------------------

    def run_pending(self, timeout_s: float = 0.0) -> int:
        """Run what is pending, up to `max_batch` rows, after waiting for the first; how many rows there were.

        Those by a version that is being loaded are run by a later call.
        """
        with self._taking:
            taken, calls = self._take(timeout_s)
        for call in calls:
            call()
        if not taken:
            return 0
        began = time.perf_counter()
        for requests in taken:
            self._run(requests)
        with self._books:
            self._busy_s += time.perf_counter() - began
        return sum([request.num_rows for requests in taken for request in requests])

    def load(self, number: int) -> None:
        """Have a version ready."""
        assert self._versions is not None, "prepare comes first"
        with self._books:
            self._versions.get(number)

    def verify_again(self) -> verify.Verification:
        """Choose the backend anew, held to what was asked since, too."""
        return self.prepare()

    def _take(self, timeout_s: float) -> tuple[list[list[Request]], list[Callable[[], None]]]:
        """Requests that are run together, in lists, and what else is to be done before them."""
        groups: dict[tuple[int, int], list[Request]] = {}
        calls: list[Callable[[], None]] = []
        pending, num_rows = self._queue, 0
        max_batch = self._settings.max_batch
        if self._lanes > 1:  # what is there is shared, with lanes that are busy, too: the next of them is free soon
            max_batch = min(max_batch, max(-(-pending.qsize() // self._lanes), _LEAST_SHARE))
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

    def _run(self, requests: list[Request]) -> None:
        """One forward pass. What goes wrong is told to these callers and, if it can be told apart, to no others."""
        assert self._versions is not None, "prepare comes first"
        version = requests[0].version
        with self._books:
            self._num_calls += len(requests)
            if version in self._waiting:
                self._waiting[version].append(requests)
                return
            try:
                ready = self._versions.find(version)
                if ready is None and self._versions.loads_slowly:
                    self._load_aside(version, requests)
                    return
                ready = ready or self._versions.get(version)
            except Exception as error:
                self._fail(requests, error)
                return
        self._run_with(*ready, requests)

    def _load_aside(self, version: int, requests: list[Request]) -> None:
        """Load a version by a thread of its own, so that calls of others need not wait for it."""
        versions = self._versions
        assert versions is not None, "prepare comes first"
        if self._loader is None:
            self._loader = concurrent.futures.ThreadPoolExecutor(
                1, "model-loader", torch.set_num_threads, (self._num_op_threads,)
            )
        self._waiting[version] = [requests]
        loading = self._loader.submit(versions.make, version)

        def tell(_loaded: object) -> None:
            self._queue.put(functools.partial(self._on_loaded, version, loading, versions))
            if self._wake is not None:
                self._wake()

        loading.add_done_callback(tell)

    def _on_loaded(self, version: int, loading: concurrent.futures.Future[Ready], versions: ReadyVersions) -> None:
        with self._books:
            waiting = self._waiting.pop(version, [])
            try:
                ready = loading.result()
            except Exception as error:
                self._fail([request for requests in waiting for request in requests], error)
                return
            if versions is self._versions:  # otherwise the backend was chosen anew meanwhile
                versions.add(version, ready)
        for requests in waiting:
            self._run_with(*ready, requests)

    def _run_with(self, backend: Backend, handle: Any, requests: list[Request]) -> None:
        num_rows = sum([request.num_rows for request in requests])
        layout = requests[0].layout
        try:
            batch = self._gather(layout, requests, num_rows)
            args, kwargs = layout.nest(batch)
            outputs = self._checked(backend.run(handle, args, kwargs), num_rows)
            results = split(outputs, requests)
        except Exception as error:
            if len(requests) > 1:  # it may be one row's fault
                for request in requests:
                    self._run_with(backend, handle, [request])
            else:
                self._fail(requests, error)
            return
        with self._books:
            self._num_batches += 1
            self._num_rows += num_rows
        deliver(requests, results)
        now = time.monotonic()
        if now >= self._record_at or len(self._recorded) < _NUM_RECORDED:
            self._record_at = now + _RECORD_EVERY_S
            self._recorded.append((layout, [None if leaf is None else leaf[-1:].copy() for leaf in batch]))

    def _gather(self, layout: RowLayout, requests: list[Request], num_rows: int) -> list[NDArray[Any] | None]:
        batch: list[NDArray[Any] | None] = []
        for index, leaf in enumerate(self._own.of(layout, num_rows, self._settings.max_batch)):
            if leaf is None:
                batch.append(None)
                continue
            rows = leaf[:num_rows]
            _copy_rows([request.leaves[index] for request in requests], rows)
            batch.append(rows)
        return batch

    def _checked(self, outputs: Nest, num_rows: int) -> Nest:
        """Outputs with a row for each of the batch, in memory of their own, so that who is given one may write to it.

        As the module left them they may share it with the batch, which is used again, with the weights, with each
        other, and one row with the next.
        """

        def check(path: str, leaf: NDArray[Any] | None) -> NDArray[Any] | None:
            if leaf is None:
                return None
            if leaf.shape[:1] != (num_rows,):
                raise errors.DataError(
                    f"forward of {self.name!r} was given {num_rows} rows and {path or 'its output'} has the shape "
                    f"{list(leaf.shape)}: the first axis of all outputs must be the batch's"
                )
            return _copied(leaf)

        if type(outputs) is np.ndarray:
            return check("", outputs)
        return nests.map_with_path(check, outputs)

    def _fail(self, requests: list[Request], error: BaseException) -> None:
        self._num_failed += len(requests)
        for request in requests:
            request.sink.fail([request.token], error)

    # -- what was seen --------------------------------------------------------------------------------------------

    def _recorded_calls(self, most_rows: int) -> list[verify.Call]:
        """The last rows that were recorded, as few calls as there are kinds of them."""
        kinds: dict[int, tuple[RowLayout, list[Leaves]]] = {}
        for layout, leaves in list(self._recorded)[-most_rows:]:
            kinds.setdefault(id(layout), (layout, []))[1].append(leaves)
        calls = []
        for layout, rows in kinds.values():
            columns = zip(*rows, strict=True)
            joined = [None if column[0] is None else np.concatenate(column) for column in columns]
            calls.append(layout.nest(joined))
        return calls

    def _checking_calls(self) -> list[verify.Call]:
        recorded = self._recorded_calls(_CHECKED_ROWS)
        if recorded or self._source.args is None:
            return recorded
        return verify.example_calls(self._source.args, self._source.kwargs or {})[1:2]

    def statistics(self) -> HostStatistics:
        versions = self._versions
        return HostStatistics(
            num_calls=self._num_calls,
            num_rows=self._num_rows,
            num_batches=self._num_batches,
            num_failed=self._num_failed,
            num_pending=self._queue.qsize() + sum([len(groups) for groups in self._waiting.values()]),
            max_pending=_MAX_PENDING,
            num_loads=0 if versions is None else versions.num_loads,
            versions=() if versions is None else versions.numbers,
            held=self._holds.numbers,
            num_refused_versions=0 if versions is None else versions.num_refused,
            backend="" if self.verification is None else self.verification.chosen,
            busy_s=self._busy_s,
        )

    def refuse_pending(self, error: BaseException) -> None:
        """Tell all who wait that they wait in vain."""
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
        """Tell who waits. Holds stay until they are released, or closed by whoever made them."""
        if self._loader is not None:
            self._loader.shutdown(cancel_futures=True)
        self.refuse_pending(errors.Unreachable(f"the model {self.name!r} is closed here; the call was not run"))
