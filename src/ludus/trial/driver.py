"""What the driver of a named trial has: runs beside each other, services in its own threads, the metrics.

Other processes ask it for these by the commands of `DriverService`, worker `driver/0`.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import operator
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus import errors, launch, spelling
from ludus.launch import signals
from ludus.program.program import Program
from ludus.services.buffer import buffer_stats
from ludus.services.trainer.service_host import HostedService, ServiceHost
from ludus.trial import services
from ludus.trial.counting import Service, ServiceCounts, services_of
from ludus.trial.metrics import TrialMetrics
from ludus.trial.trial import EXPERIMENT
from ludus.workers.context import Context
from ludus.workers.register import register
from ludus.workers.solver import Solver

__all__ = ["Driver", "DriverService", "Stage", "check_count", "check_name"]

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_EXIT_AFTER_S = 0.5


class Stage(enum.IntEnum):
    """In this order what runs is asked to stop, each when those before are gone."""

    TRAINERS = 0
    GATEWAYS = 1  # sessions end, and push what they have
    REST = 2


@dataclass(kw_only=True)
class _Started:
    run: launch.Run
    stage: Stage
    counted: Sequence[Service]
    is_failure_reported: bool = False


def check_name(what: str, name: str) -> None:
    """Raise `ConfigError` unless `name` can be part of a worker's name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise errors.ConfigError(
            f"{name!r} cannot name a {what}: a name is letters, digits, '_', '-' and '.', because it becomes part of "
            "file names and of names in the name service."
        )


def check_count(what: str, value: Any) -> int:
    """`value` as an int. Raise `ConfigError` unless it is a whole number of 1 or more."""
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise errors.ConfigError(f"{what}={value!r}: it is a whole number of 1 or more")
    return count


class Driver:
    """Safe to use from several threads. `close` ends everything, in its order."""

    def __init__(self, place: launch.Place, here: Context, *, engine: str, metrics: TrialMetrics) -> None:
        self.stop_asked = threading.Event()
        self.stop_reason = ""
        self.interrupts = signals.Interrupts()
        self.metrics = metrics
        self.names_url = place.names_url
        self._place = place
        self._here = here
        self._engine: Callable[..., launch.Run] = launch.ray if engine == "ray" else launch.local
        self._lock = threading.RLock()
        self._started: list[_Started] = []
        self._hosts: dict[str, ServiceHost] = {}
        self._counted: list[Service] = []  # of what is hosted
        self._buffers: dict[str, services.NamedBuffer] = {}
        self._solver: Solver | None = None
        self._declared: dict[str, dict[str, Any]] = {}  # the settings of each buffer
        self._models: set[str] = set()
        self._nodes: dict[str, dict[str, Any]] = {}
        self._edges: list[list[str]] = []
        self._is_closing = False

    # -- what runs ----------------------------------------------------------------------------------------------

    def run(
        self, program: Program, *, stage: Stage | None = None, counted: Sequence[Service] | None = None
    ) -> launch.Run:
        """See `Trial.run`."""
        if program.name != EXPERIMENT:
            raise errors.ProgramError(
                f"a program that runs inside a trial is named {EXPERIMENT!r}, not {program.name!r}: "
                "so its workers are found."
            )
        with self._lock:
            self._expect_open()
            for node in program.nodes:
                self._expect_free(node.name)
            run = self._engine(program, within=self._place)
            counted = services_of(program.nodes) if counted is None else counted
            self._started.append(_Started(run=run, stage=Stage.REST if stage is None else stage, counted=counted))
            self._watch_services()
            described = program.describe()
            self._nodes |= {node["name"]: node for node in described["nodes"]}
            self._edges += [edge for edge in described["edges"] if edge not in self._edges]
            self._save_program()
        return run

    def host(self, service: HostedService, node: str, *, counted: Service | None = None) -> None:
        """Answer for `service` as worker `node/0`, in a thread of this process, until the trial is closed.

        counted: what of it becomes metrics of the trial, if anything.
        """
        with self._lock:
            self._expect_open()
            self._expect_free(node)
            host = ServiceHost(service, f"{node}/0", host=self._place.host, here=self._here)
            host.start()
            self._hosts[node] = host
            if counted is not None:
                self._counted.append(counted)
                self._watch_services()
            of = type(service)
            self._nodes[node] = {
                "name": node,
                "class": f"{of.__module__}.{of.__qualname__}",
                "workers": [f"{node}/0"],
                "has_end": False,
                "args": [],
                "kwargs": {},
            }
            self._save_program()

    def runs(self, stage: Stage | None = None) -> list[launch.Run]:
        """All, or those of one stage, in the order they were started."""
        with self._lock:
            return [one.run for one in self._started if stage in (None, one.stage)]

    def note_failure_reported(self, run: launch.Run) -> None:
        """The caller knows why this run failed and has handled it: the trial goes on."""
        with self._lock:
            for one in self._started:
                one.is_failure_reported |= one.run is run

    @property
    def failure(self) -> errors.ProgramError | None:
        """Why the first run failed that was not reported yet."""
        with self._lock:
            return next(
                (one.run.failure for one in self._started if one.run.failure and not one.is_failure_reported), None
            )

    def open_buffer(self, name: str, given: Mapping[str, Any]) -> str:
        check_name("buffer", name)
        settings, persist = services.buffer_settings(given)
        with self._lock:
            known = self._declared.get(name)
            if known is None:
                folder = self._place.folder.path / "buffers" / name if persist else None
                buffer = services.buffer(settings, folder)
                node = f"buffer-{name}"
                counted = Service(
                    prefix=f"buffer/{name}", worker=f"{node}/0", counts=buffer_stats.counts, stats=buffer.stats
                )
                self.host(buffer, node, counted=counted)
                self._declared[name] = known = {**settings.resolved(), "persist": persist}
                self._buffers[name] = buffer
            for key, value in given.items():
                if known[key] != value:
                    raise errors.ConfigError(
                        f"buffer {name!r} has {_spell(key, known[key])} already and cannot have {value!r}. Give the "
                        "same everywhere, or none."
                    )
            return str(self._buffers[name].when_full)

    def start_model(
        self, name: str, num_workers: int, max_batch: int, num_threads: int, max_busy_s: float = 0.0
    ) -> None:
        check_name("model", name)
        with self._lock:
            if name in self._models:
                return
            program = services.model_program(
                self._place.folder.path,
                name,
                num_workers=num_workers,
                max_batch=max_batch,
                num_threads=num_threads,
                max_busy_s=max_busy_s,
            )
            self.run(program)
            self._models.add(name)

    # -- what services count --------------------------------------------------------------------------------------

    def _watch_services(self) -> None:
        if self._solver is None:
            here = self._here
            self._solver = Solver(here.experiment, here.trial, names=here.names, secret=here.secret)
            self.metrics.watch(ServiceCounts(self._services, self.records, self._solver))

    def records(self) -> list[launch.WorkerRecord]:
        """The workers of all runs that are not over."""
        return [record for run in self.runs() if not run.is_over for record in run.workers()]

    def restart(self, worker: str) -> None:
        """Have a worker exit and be started again. Raises `ProgramError` if it cannot be."""
        for run in self.runs():
            if not run.is_over and worker in {record.name for record in run.workers()}:
                run.restart(worker)
                return
        known = [record.name for record in self.records()]
        raise errors.ProgramError(
            f"{worker!r} cannot be restarted: it is a thread of the driver's process, or not there. "
            f"{spelling.nearest(worker, known)}"
        )

    def _services(self) -> list[Service]:
        with self._lock:
            return [*self._counted, *(each for one in self._started if not one.run.is_over for each in one.counted)]

    def _expect_open(self) -> None:
        if self._is_closing:
            raise errors.WorkerError("the trial is being closed; nothing more is started in it")

    def _expect_free(self, node: str) -> None:
        taken = {name for one in self._started if not one.run.is_over for name in _node_names(one.run.program)}
        if node in taken or node in self._hosts:
            raise errors.ProgramError(
                f"the trial has workers named {node!r} already. Choose another name, or stop those first."
            )

    def _save_program(self) -> None:
        self._place.folder.save_program(
            {"program": EXPERIMENT, "nodes": list(self._nodes.values()), "edges": self._edges}
        )

    # -- the end ------------------------------------------------------------------------------------------------

    def ask_stop(self, reason: str) -> None:
        """Have `run_until_asked_to_stop` come back."""
        if not self.stop_asked.is_set():
            self.stop_reason = reason
            self.stop_asked.set()

    def close(self, grace_s: float) -> None:
        """Stop the runs stage by stage, each within `grace_s` or, if hurried, at once; then what is hosted."""
        with self._lock:
            self._is_closing = True
        with contextlib.ExitStack() as steps:  # from the last to the first, each whatever became of those before
            steps.callback(self._close_metrics)
            steps.callback(services.remove_abandoned)
            for host in self._hosts.values():
                steps.callback(host.close)
            for stage in reversed(Stage):
                steps.callback(self._stop_runs, stage, grace_s)
            if not self.interrupts.is_hurried:
                self.metrics.count_last()

    def _close_metrics(self) -> None:
        self.metrics.close()
        if self._solver is not None:
            self._solver.close()

    def _stop_runs(self, stage: Stage, grace_s: float) -> None:
        runs = self.runs(stage)
        for run in runs:
            run.ask_stop(grace_s)
        while not all(run.is_over for run in runs):
            if self.interrupts.is_hurried:
                for run in runs:
                    run.ask_stop(0.0)
            time.sleep(0.01)
        for run in runs:
            run.stop(0.0)  # which is over: lets go of what it holds


def _spell(setting: str, value: Any) -> str:
    return f"a capacity of {value}" if setting == "capacity" else f"{setting}={value!r}"


def _node_names(program: Program) -> list[str]:
    return [node.name for node in program.nodes]


class DriverService:
    """The commands of `driver/0`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @register
    def merge(self, rows: Sequence[Any]) -> None:
        """Take in the metrics of a process."""
        self._driver.metrics.join(rows)

    @register
    def write_metrics(self, loop: Mapping[str, Any], lines: Sequence[Any]) -> None:
        """Lines of a training loop: see `TrialMetrics.write_loop`."""
        self._driver.metrics.write_loop(loop, [(step, values) for step, values in lines])

    @register
    def end_metrics(self, loop_id: str) -> None:
        """That loop is over."""
        self._driver.metrics.end_loop(loop_id)

    @register
    def open_buffer(self, name: str, given: Mapping[str, Any] | None = None) -> str:
        """Have worker `buffer-NAME/0`, a buffer of nests, with the settings of `BufferSettings` and `persist`.

        It is there once; other settings are an error. Returns what it does when it is full.
        """
        return self._driver.open_buffer(name, given or {})

    @register
    def start_model(
        self, name: str, num_workers: int, max_batch: int, num_threads: int, max_busy_s: float = 0.0
    ) -> None:
        """Have workers `model-NAME/0` and so on. They are started once."""
        self._driver.start_model(name, num_workers, max_batch, num_threads, max_busy_s)

    @register
    def stop(self, reason: str = "asked to stop") -> None:
        """End the trial; the driver notices when it calls `run_until_asked_to_stop`."""
        self._driver.ask_stop(reason)

    @register
    def exit(self) -> None:
        """What `ludus ctl TRIAL exit` sends to all workers: the others are to get theirs before they are stopped."""
        later = threading.Timer(_EXIT_AFTER_S, self._driver.ask_stop, ("asked to exit",))
        later.daemon = True
        later.start()

    def stats(self) -> dict[str, Any]:
        runs = self._driver.runs()
        return {"num_runs": len(runs), "is_stopping": self._driver.stop_asked.is_set()}

    def close(self) -> None:
        """There is nothing to close: the driver closes itself."""
