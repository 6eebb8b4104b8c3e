"""The metrics of a trial: one writer, in its driver.

What processes `merge` and what services count is written every ten seconds; the lines of a training loop as they come.
Everything has the loop's steps for its axis while a loop trains, and seconds since the trial began otherwise.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus import files
from ludus.telemetry.metrics import RESERVED, Windows, check_name
from ludus.telemetry.metrics_file import MetricsWriter

__all__ = ["LoopMetrics", "TrialMetrics"]

_LOG = logging.getLogger(__name__)
_FIRST_S = 1.5  # processes send their first metrics after a second
_PERIOD_S = 10.0
_SILENT_S = 60.0  # a loop that has written nothing for so long does not take the others' metrics along any more
DESCRIPTIONS_FILE = "metrics_descriptions.json"


class TrialMetrics:
    """`metrics.jsonl` and TensorBoard's `events/` of a trial. Safe to use from several threads.

    Without a loop, a line every ten seconds at most (in the first ten, three), and none when there is nothing new: an
    idle trial writes nothing. With a loop, its next line has the others' metrics, too. A trial that is taken up again
    goes on with its seconds. The thread that writes starts with the first that there is to write.

    is_loops: the trial is there for a loop, so nothing is written before its first line or by seconds.
    """

    def __init__(self, folder: Path, *, is_loops: bool = False, period_s: float = _PERIOD_S) -> None:
        self._folder = folder
        self._period_s = period_s
        self._is_loops = is_loops
        self._lock = threading.Lock()
        self._windows = Windows()
        self._counted: dict[str, float] = {}  # by services, and not written yet
        self._count: Callable[[], dict[str, float]] | None = None
        self._counting = threading.Lock()
        self._descriptions: dict[str, str] = {}
        self._writer: MetricsWriter | None = None
        self._loop: Mapping[str, Any] | None = None  # the loop that writes, as it began
        self._loop_step = 0
        self._loop_wrote_at = 0.0
        self._is_due = False  # the loop's next line takes along what others have
        self._is_failing = False
        self._left_out: set[str] = set()  # names that were warned of
        self._closing = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def join(self, rows: Sequence[Any]) -> None:
        """Take in the windows of a process: see `Windows.rows`. Once it is closed, they are left out."""
        with self._lock:
            if not self._is_closed:
                self._windows.join(rows)
                self._start()

    def watch(self, count: Callable[[], dict[str, float]]) -> None:
        """Have `count` called every ten seconds: the metrics that services have counted since, if any."""
        with self._lock:
            self._count = count
            self._start()

    def write_loop(
        self, loop: Mapping[str, Any], lines: Sequence[tuple[int, Mapping[str, float]]], *, raises: bool = False
    ) -> None:
        """Lines of a training loop. `loop`: its `id`, and the `resume_step` and `age_s` that it began with.

        `raises`: the caller sees to an `OSError`.
        """
        with self._lock:
            if self._is_closed:
                return
            if self._loop is None or self._loop["id"] != loop["id"]:
                self._close_writer()
                self._loop = loop
            for step, values in lines:
                along = self._take_pending() if self._is_due else {}
                self._is_due = False
                self._loop_step, self._loop_wrote_at = step, time.monotonic()
                self._write({**along, **values}, raises=raises)

    def end_loop(self, loop_id: str) -> None:
        """The loop is over: from here on, seconds count, unless the trial was there for it."""
        with self._lock:
            if self._loop is not None and self._loop["id"] == loop_id and not self._is_loops:
                self._close_writer()
                self._loop = None

    def flush(self) -> None:
        """Write what there is, or have the loop's next line take it along."""
        self._ask_services()
        with self._lock:
            if self._loop is not None and time.monotonic() - self._loop_wrote_at <= _SILENT_S:
                self._is_due = True
            else:
                self._write_pending()

    def count_last(self) -> None:
        """Before services stop: what they have counted up to now is written by `close`, unless it is a loop's trial."""
        if not self._is_loops:
            self._ask_services()

    def close(self) -> None:
        """Write the rest. May be called twice."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5.0)
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True  # a writer that began now would drop the lines of the loop
            try:
                if self._loop is None or self._windows:  # counts of services are left to the next run of the loop
                    self._write_pending()
            finally:
                self._close_writer()

    # -- writing, with the lock held --------------------------------------------------------------------------------

    def _write_pending(self) -> None:
        if self._is_loops and self._loop is None:
            return
        if values := self._take_pending():
            self._loop_wrote_at = time.monotonic()
            self._write(values)

    def _take_pending(self) -> dict[str, float]:
        windows, self._windows = self._windows, Windows()
        counted, self._counted = self._counted, {}
        if words := windows.descriptions():
            self._describe(words)
        return {**counted, **self._writable(windows.scalars())}

    def _write(self, values: Mapping[str, float], *, raises: bool = False) -> None:
        """A full disk, or whatever else, is warned of once, and does not end anything: the next may be written."""
        try:
            if self._loop is None:
                self._writer = self._writer or MetricsWriter(self._folder, is_loop=False)
                self._writer.write_by_seconds(values)
            else:
                resume_step, age_s = self._loop["resume_step"], self._loop["age_s"]
                self._writer = self._writer or MetricsWriter(self._folder, resume_step=resume_step, age_s=age_s)
                self._writer.write(self._loop_step, values)
        except OSError as error:
            if raises:
                raise
            if not self._is_failing:
                _LOG.warning(
                    "metrics could not be written to %s: %s. The trial goes on; metrics are missing until they can be "
                    "written again.",
                    self._folder,
                    error,
                )
            self._is_failing = True
            return
        if self._is_failing:
            _LOG.warning("metrics are written again")
        self._is_failing = False

    def _describe(self, words: dict[str, str]) -> None:
        words = self._descriptions | words
        if words != self._descriptions:
            self._descriptions = words
            text = json.dumps(words, indent=2, ensure_ascii=False)
            try:
                files.replace(self._folder / DESCRIPTIONS_FILE, [text.encode() + b"\n"])
            except OSError as error:
                _LOG.warning("%s could not be written: %s", self._folder / DESCRIPTIONS_FILE, error)

    def _writable(self, scalars: dict[str, float]) -> dict[str, float]:
        """All but reserved names, which another process may have sent: one of them is not to lose the others."""
        for name in (RESERVED & scalars.keys()) - self._left_out:
            self._left_out.add(name)
            _LOG.warning("metric %r is not written: lines of metrics.jsonl have a field of that name", name)
        return {name: value for name, value in scalars.items() if name not in RESERVED}

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    # -- the thread -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._live, name="ludus-metrics", daemon=True)
            self._thread.start()

    def _live(self) -> None:
        wait_s = min(_FIRST_S, self._period_s)
        while not self._closing.wait(wait_s):
            try:
                self.flush()
            except Exception:
                _LOG.exception("the metrics of the last %g s are lost", wait_s)
            wait_s = min(2 * wait_s, self._period_s)

    def _ask_services(self) -> None:
        """Without the lock: they may take a while to answer."""
        with self._counting:
            count = self._count
            if count is None:
                return
            try:
                counted = count()
            except Exception:
                _LOG.exception("what the trial's services count could not be read")
                return
        with self._lock:
            self._counted |= counted


class LoopMetrics:
    """Writes as `MetricsWriter` does, by the trial's writer, for a loop in its driver's process."""

    def __init__(
        self,
        metrics: TrialMetrics,
        folder: Path,
        *,
        resume_step: int | None = None,
        age_s: float = 0.0,
        raises: bool = True,
    ) -> None:
        """`folder` is the trial's. `raises`: what cannot be written is an `OSError`; else it is warned of."""
        self._metrics = metrics
        self._raises = raises
        self._loop = {"id": uuid.uuid4().hex, "resume_step": resume_step, "age_s": age_s}

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name in values:
            check_name(name)
        self._metrics.write_loop(self._loop, [(step, values)], raises=self._raises)

    def close(self) -> None:
        """The trial's writer stays open, for what others have; it is closed with the trial."""
