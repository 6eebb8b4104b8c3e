"""The trainer as a worker: it hosts a job, which learns turn by turn, and answers calls between turns."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ludus.core import WorkerStatus
from ludus.workers.register import register
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["Job", "TrainerService"]


class Job(Protocol):
    """What a trainer does."""

    @property
    def is_done(self) -> bool: ...

    def turn(self) -> bool:
        """One update; false if there was nothing to learn from yet."""
        ...

    def finish(self) -> dict[str, Any]:
        """The run is over: what remains to be done. Returns the result for the driver."""
        ...

    def ask_stop(self) -> None:
        """Stop before the end, after the present turn, having kept what is needed to go on: `is_stopped` then."""
        ...

    @property
    def is_stopped(self) -> bool: ...

    def stop(self) -> None:
        """The run is stopped before its end by this rank alone: keep what is needed to go on, as far as it can."""
        ...

    @property
    def shown(self) -> tuple[int, dict[str, float]]:
        """The step, and metrics, for progress displays."""
        ...

    @property
    def doing(self) -> str:
        """What the present turn is doing: collect, update, checkpoint, … Called by another thread."""
        ...

    def close(self) -> None: ...


class TrainerService(Worker):
    """`make_job(server)` builds the job in the worker's process; it may register commands of its own at the server."""

    idle_s = 0.001  # its job has waited already

    def __init__(self, server: WorkerServer, make_job: Callable[[WorkerServer], Job]) -> None:
        super().__init__(server)
        self._make_job = make_job
        self._job: Job | None = None
        self._is_finished = threading.Event()
        server.register_service(self)

    def _start(self) -> None:
        self._job = self._make_job(self.server)

    def _poll(self) -> int:
        assert self._job is not None
        if self._job.is_stopped:
            self._is_finished.set()
            self.request_exit("stopped")
            return 1
        if self._job.is_done:
            result = self._job.finish()
            self._is_finished.set()
            self.finish(result)
            return 1
        return int(self._job.turn())

    def activity(self, method: str) -> str:
        return self._job.doing if method == "poll" and self._job is not None else method

    def has_worked(self, *, is_busy: bool) -> bool:
        return bool(self.progress().get("step"))

    def report(self) -> Mapping[str, float]:
        """The step, and the metrics shown last."""
        progress = self.progress()
        if not progress.get("values"):
            return {}
        values = {name: float(value) for name, value in progress["values"].items()}
        return {"step": progress["step"], **{name: value for name, value in values.items() if math.isfinite(value)}}

    @register
    def stop(self) -> None:
        """Have all ranks write a checkpoint after their present turn, and leave."""
        if self._job is not None:
            self._job.ask_stop()

    @register
    def progress(self) -> dict[str, Any]:
        """How far it is."""
        return dict(zip(("step", "values"), self._job.shown, strict=True)) if self._job is not None else {}

    def _stats(self) -> Mapping[str, Any]:
        return self.progress()

    def _exit(self) -> None:
        if self._job is None:
            return
        try:
            # after an error its state may be that of half a turn, which is not to go on from
            if not self._is_finished.is_set() and self.status is not WorkerStatus.FAILED:
                self._job.stop()
        finally:
            self._job.close()
