"""The figures of a trial: what its processes `merge`, joined by the driver and written every ten seconds."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus import files
from ludus.telemetry.metrics import RESERVED, Windows
from ludus.telemetry.metrics_file import MetricsWriter, read_last_metrics

__all__ = ["Figures"]

_LOG = logging.getLogger(__name__)
_FIRST_S = 1.5  # after the first figure: processes tell their first after a second
_PERIOD_S = 10.0
DESCRIPTIONS_FILE = "metrics_descriptions.json"


class Figures:
    """`metrics.jsonl` and TensorBoard's `events/` of the trial; a step is a second since the trial began.

    In the folder of a `ludus train`, which has its own of these, they are in its folder `merged`. A trial that is taken
    up again goes on with its seconds. The thread that writes starts with the first figures.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "merged" if (folder / "config.json").exists() else folder
        self._lock = threading.Lock()
        self._windows = Windows()
        self._descriptions: dict[str, str] = {}
        self._writer: MetricsWriter | None = None
        self._first_step = 0
        self._began = time.monotonic()
        self._left_out: set[str] = set()  # of which that was told
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self, rows: Sequence[Any]) -> None:
        """Take in a process's windows."""
        with self._lock:
            self._windows.join(rows)
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._live, name="ludus-figures", daemon=True)
                self._thread.start()

    def write(self) -> None:
        """Write what has come since the last time."""
        with self._lock:
            windows, self._windows = self._windows, Windows()
            if not windows:
                return
            if self._writer is None:
                self._writer = self._open()
            step = self._first_step + int(time.monotonic() - self._began)
            self._writer.write(step, self._writable(windows.scalars()))
            words = self._descriptions | windows.descriptions()
            if words != self._descriptions:
                self._descriptions = words
                text = json.dumps(words, indent=2, ensure_ascii=False)
                files.replace(self._folder / DESCRIPTIONS_FILE, [text.encode() + b"\n"])

    def close(self) -> None:
        """Write the rest. May be called twice."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5.0)
        try:
            self.write()
        finally:
            with self._lock:
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None

    def _live(self) -> None:
        wait_s = _FIRST_S
        while not self._closing.wait(wait_s):
            wait_s = _PERIOD_S
            try:
                self.write()
            except Exception:  # a full disk, or whatever else: the next may be written
                _LOG.exception("the figures of the last %g s could not be written", wait_s)

    def _writable(self, scalars: dict[str, float]) -> dict[str, float]:
        """All but those that have the name of a line's own field: one of them is not to lose the others."""
        for tag in (RESERVED & scalars.keys()) - self._left_out:
            self._left_out.add(tag)
            _LOG.warning("figure %r is not written: every line of metrics.jsonl has a field of that name", tag)
        return {tag: value for tag, value in scalars.items() if tag not in RESERVED}

    def _open(self) -> MetricsWriter:
        lines = read_last_metrics(self._folder)
        last = int(lines[-1]["step"]) if lines else None
        self._first_step = 0 if last is None else last + 1
        return MetricsWriter(self._folder, resume_step=last)
