"""The metrics of a trial: a line of JSON and a TensorBoard event for each step that is written.

    with MetricsWriter(trial_dir) as metrics:
        metrics.write(2048, {"train/loss": 0.1, "episode/return": 22.0})
    read_metrics(trial_dir)[-1]["episode/return"]

A line is `{"step": 2048, "time": 1763236800.1, "wall_s": 1.7, "train/loss": 0.1, …}`: `time` since 1970, `wall_s` since
the trial began, not counting the time it was stopped. A value that is not finite is null, and named in `"not_finite"`.
A line with `"axis": "seconds"` was written where no loop counts steps: its step is a second since the trial began.
"""

from __future__ import annotations

import collections
import errno
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ludus import errors, files
from ludus.telemetry.metrics import check_name
from ludus.telemetry.tensorboard import EventFile

__all__ = ["METRICS_FILE", "Axis", "MetricsWriter", "axis_of", "read_last_metrics", "read_metrics"]

METRICS_FILE = "metrics.jsonl"
Axis = Literal["steps", "seconds"]
_TAIL_BYTES = 64 * 1024
_MOST_TAIL_BYTES = 512 * _TAIL_BYTES  # of a file without any lines of ours
_BY_SECONDS = b'"axis": "seconds"'
_NUM_TRIED = 16  # of the last lines, some of which may be damaged


class MetricsWriter:
    """Appends to `metrics.jsonl` and `events/` of a trial's folder. A kill loses nothing that was written.

    is_loop: a loop that counts steps begins or goes on here. `resume_step`: it goes on after this step, so what was
        written of later ones is dropped, and no step is there twice; without it, the loop starts over. Lines by seconds
        are never dropped. If not `is_loop`, nothing is.
    age_s: how long ago this run of the loop began.

    TensorBoard forgets the later steps of a loop that is resumed. So that it keeps what is by seconds, this is in
    `events/seconds` where a loop's steps are in `events`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        is_loop: bool = True,
        resume_step: int | None = None,
        age_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        files.make_folder(folder)
        self._path = folder / METRICS_FILE
        self._clock = clock
        self._events = {"steps": EventFile(folder / "events"), "seconds": EventFile(folder / "events")}
        wall_s = self._begin_loop(folder, resume_step) if is_loop else self._go_on(folder)
        self._file: int | None = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._opened = clock()
        self._began = self._opened - age_s - wall_s

    def _begin_loop(self, folder: Path, resume_step: int | None) -> float:
        """Drop later steps. Returns the seconds that were trained up to there."""
        last_step = -1 if resume_step is None else resume_step
        lines, events = read_metrics(folder), folder / "events"
        by_seconds = [line for line in lines if axis_of(line) == "seconds"]
        steps = [line for line in lines if axis_of(line) == "steps" and line["step"] <= last_step]
        files.remove_parts(folder, METRICS_FILE)
        if self._path.exists():  # also when nothing is dropped: a line that a kill tore must not swallow the next
            kept = {id(line) for line in (*by_seconds, *steps)}
            files.replace(self._path, [(json.dumps(line) + "\n").encode() for line in lines if id(line) in kept])
        if by_seconds and len(by_seconds) == len(lines):  # a trial that had no loop before
            _move_events(events, events / "seconds")
        is_first = resume_step is None and not any(events.glob("events.*"))
        self._events["steps"] = EventFile(events, purge_step=None if is_first else last_step + 1)
        self._events["seconds"] = EventFile(events / "seconds")
        self._is_torn = False  # the last line was only written in part
        self._next_second = by_seconds[-1]["step"] + 1 if by_seconds else 0
        return float(steps[-1].get("wall_s") or 0.0) if steps else 0.0

    def _go_on(self, folder: Path) -> float:
        """After all that is there. Returns the seconds up to there."""
        has_loop = (folder / "config.json").exists() or (folder / "events" / "seconds").exists()
        if has_loop:
            self._events["seconds"] = EventFile(folder / "events" / "seconds")
        self._is_torn = _is_torn(self._path)
        last = _last_by_seconds(self._path, also_unmarked=not has_loop)
        self._next_second = last["step"] + 1 if last else 0
        return float(last.get("wall_s") or 0.0) if last else 0.0

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One line and one event: names such as `train/loss`, and numbers. Raises `ConfigError`: see `check_name`."""
        self._write("steps", int(step), values)

    def write_by_seconds(self, values: Mapping[str, float]) -> None:
        """The same, where no loop counts steps."""
        self._write("seconds", self._next_second + int(self._clock() - self._opened), values)

    def _write(self, axis: Axis, step: int, values: Mapping[str, float]) -> None:
        if self._file is None:
            raise errors.TrainingError("metrics were written after their writer was closed.")
        for name in values:
            check_name(name)
        numbers = {name: float(value) for name, value in values.items()}
        now = time.time()
        line: dict[str, Any] = {"step": step, "time": round(now, 3), "wall_s": round(self._clock() - self._began, 4)}
        if axis == "seconds":
            line["axis"] = axis
        not_finite = [name for name, number in numbers.items() if not math.isfinite(number)]
        line |= {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        if not_finite:
            line["not_finite"] = not_finite
        self._append((json.dumps(line) + "\n").encode())
        self._events[axis].write(step, numbers, time_s=now)

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
            for events in self._events.values():
                events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def axis_of(line: Mapping[str, Any]) -> Axis:
    """What the step of a line counts."""
    return "seconds" if line.get("axis") == "seconds" else "steps"


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a trial, oldest first; none if it has written none. A line that a kill tore is left out."""
    try:
        content = (folder / METRICS_FILE).read_bytes()
    except FileNotFoundError:
        return []
    return _parse(content.split(b"\n"))


def read_last_metrics(folder: Path) -> list[dict[str, Any]]:
    """The last lines by steps, of as many bytes as it takes to find some, from tens of kilobytes on: mostly quick."""
    try:
        with files.open_regular(folder / METRICS_FILE) as file:
            end, num_bytes = file.seek(0, os.SEEK_END), _TAIL_BYTES
            while True:
                file.seek(max(0, end - num_bytes))
                lines = file.read().split(b"\n")
                found = _parse([line for line in (lines if end <= num_bytes else lines[1:]) if _BY_SECONDS not in line])
                if found or num_bytes >= min(end, _MOST_TAIL_BYTES):
                    return found
                num_bytes *= 8
    except FileNotFoundError:
        return []


def _parse(lines: list[bytes]) -> list[dict[str, Any]]:
    found = []
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("step"), int):
            found.append(value)
    return found


def _last_by_seconds(path: Path, *, also_unmarked: bool) -> dict[str, Any] | None:
    """`also_unmarked`: a trial without a loop wrote all lines by seconds before that was said in them."""
    last: collections.deque[bytes] = collections.deque(maxlen=_NUM_TRIED)
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.endswith(b"\n") and (also_unmarked or _BY_SECONDS in line):
                    last.append(line)
    except FileNotFoundError:
        return None
    found = _parse(list(last))
    return found[-1] if found else None


def _is_torn(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read() != b"\n"
    except FileNotFoundError:
        return False


def _move_events(source: Path, target: Path) -> None:
    for path in sorted(source.glob("events.*")):
        files.make_folder(target, durable=False)
        files.move(path, target / path.name, durable=False)
