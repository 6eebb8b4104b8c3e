"""Metrics of a trial: a line of JSON and a TensorBoard event for each step that is written.

    with MetricsWriter(trial_dir) as metrics:
        metrics.write(2048, {"train/loss": 0.1, "episode/return": 22.0})
    read_metrics(trial_dir)[-1]["episode/return"]

A line is `{"step": 2048, "time": 1763236800.1, "wall_s": 1.7, "train/loss": 0.1, …}`: `time` since 1970, `wall_s` since
the trial began, not counting the time it was stopped. A value that is not finite is null, and named in `"not_finite"`.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ludus import errors, files
from ludus.telemetry.tensorboard import EventFile

__all__ = ["METRICS_FILE", "MetricsWriter", "read_last_metrics", "read_metrics"]

METRICS_FILE = "metrics.jsonl"
_OWN = frozenset({"step", "time", "wall_s", "not_finite"})
_TAIL_BYTES = 64 * 1024


class MetricsWriter:
    """Appends to `metrics.jsonl` and `events/` of a trial's folder. A kill loses nothing that was written.

    `resume_step`: the trial goes on after this step, so what was written of later ones is dropped, and no step is there
    twice. Without it, the trial begins anew. `age_s`: how long ago this run of it began.
    """

    def __init__(
        self,
        folder: Path,
        *,
        resume_step: int | None = None,
        age_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        files.make_folder(folder)
        path = folder / METRICS_FILE
        kept = [] if resume_step is None else [line for line in read_metrics(folder) if line["step"] <= resume_step]
        files.remove_parts(folder, METRICS_FILE)
        if path.exists():  # also when nothing is dropped: a line that a kill tore must not swallow the next
            files.replace(path, [(json.dumps(line) + "\n").encode() for line in kept])
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._is_torn = False  # the last line was only written in part
        is_first = resume_step is None and not any((folder / "events").glob("*"))
        next_step = 0 if resume_step is None else resume_step + 1
        self._events = EventFile(folder / "events", purge_step=None if is_first else next_step)
        self._clock = clock
        self._began = clock() - age_s - (float(kept[-1].get("wall_s") or 0.0) if kept else 0.0)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One line and one event: names such as `train/loss`, and numbers."""
        if self._file is None:
            raise errors.TrainingError("metrics were written after their writer was closed.")
        if taken := _OWN & values.keys():
            raise errors.ConfigError(f"a metric cannot be named {min(taken)!r}: every line has a field of that name.")
        numbers = {name: float(value) for name, value in values.items()}
        now = time.time()
        line: dict[str, Any] = {
            "step": int(step),
            "time": round(now, 3),
            "wall_s": round(self._clock() - self._began, 4),
        }
        not_finite = [name for name, number in numbers.items() if not math.isfinite(number)]
        line |= {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        if not_finite:
            line["not_finite"] = not_finite
        self._append((json.dumps(line) + "\n").encode())
        self._events.write(int(step), numbers, time_s=now)

    def _append(self, line: bytes) -> None:
        """Raises `OSError` if not all of it could be written; what was is then cut off from the next line."""
        assert self._file is not None
        line = b"\n" + line if self._is_torn else line
        written = 0
        try:
            written = os.write(self._file, line)
        finally:
            self._is_torn = self._is_torn if not written else written < len(line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), METRICS_FILE)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a trial, oldest first; none if it has written none. A line that a kill tore is left out."""
    try:
        content = (folder / METRICS_FILE).read_bytes()
    except FileNotFoundError:
        return []
    return _parse(content.split(b"\n"))


def read_last_metrics(folder: Path) -> list[dict[str, Any]]:
    """The last lines of a trial, as many as are within some tens of kilobytes: quick, however long it is."""
    try:
        with open(folder / METRICS_FILE, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    return _parse(lines[1:] if end > _TAIL_BYTES else lines)


def _parse(lines: list[bytes]) -> list[dict[str, Any]]:
    found = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and isinstance(value.get("step"), int):
            found.append(value)
    return found
