"""A trial as one process sees it: whom it can call, what it may start, how it hears of the end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ludus import errors
from ludus.discovery import names as naming
from ludus.program import folder as folders
from ludus.program import lock
from ludus.workers import context

if TYPE_CHECKING:  # a run in one process needs none of these
    from ludus import launch
    from ludus.program.program import Program
    from ludus.trial.counting import Service
    from ludus.trial.driver import Driver, Stage
    from ludus.workers.remote import Remote

__all__ = ["EXPERIMENT", "Start", "Trial", "stop_key"]

EXPERIMENT = "ludus"
"""The experiment under which all workers of a named trial are found."""

_LOG = logging.getLogger(__name__)
_GONE_S = 1.0  # what a killed driver has to be gone
_LOOK_EVERY_S = 0.05
_HEAR_S = 1.0  # what those who joined have to hear that the trial stops
T = TypeVar("T")

Start = Callable[[], "tuple[context.Context, Driver]"]
"""Begins the names of a trial and `driver/0`, by which others join."""


class Trial:
    """A trial as one process sees it. Made by `ludus.init` and `ludus.train`; safe to use from several threads.

    The process that drives it has its lock (`drive`), and hosts its names and services. These begin when somebody first
    asks for them (`start`): a run in one process needs none. Any other process has joined, or is a worker: it has its
    context (`here`).
    """

    def __init__(
        self,
        folder: Path,
        *,
        engine: str,
        resources: contextlib.ExitStack,
        here: context.Context | None = None,
        drive: lock.Drive | None = None,
        start: Start | None = None,
        joined: folders.TrialRecord | None = None,
    ) -> None:
        self.folder = folder
        self.engine = engine
        self.on_closed: Callable[[], None] | None = None
        self._here = here
        self._driver: Driver | None = None
        self._drive = drive
        self._start = start
        self._joined = joined
        self._resources = resources
        self._stopping = threading.Event()
        self._lock = threading.RLock()
        self._remotes: dict[str, Remote] = {}
        self._kept: dict[str, Any] = {}
        self._before_close: list[Callable[[], None]] = []
        self._closing = threading.Lock()
        self._is_closing = False
        self._is_closed = False
        self._owner_pid = os.getpid()
        self._is_inherited = False

    @property
    def is_driver(self) -> bool:
        return self._drive is not None

    @property
    def driver(self) -> Driver:
        """Raises `WorkerError` in any other process."""
        self.expect_own()
        if self._drive is None:
            who = f"process {self._joined.driver_pid} on {self._joined.driver_host}" if self._joined else "the process"
            raise errors.WorkerError(
                f"only the driver of trial {self.folder.name!r} can do this: {who} that drives it, by ludus.init "
                "or ludus train. Do it there."
            )
        self.context  # noqa: B018 - it is started
        assert self._driver is not None
        return self._driver

    @property
    def is_stopping(self) -> bool:
        """Whether the trial was asked to stop, or this process was."""
        return self._stopping.is_set()

    def wait_stopping(self, timeout_s: float) -> bool:
        """Wait for that; says whether it is so."""
        return self._stopping.wait(timeout_s)

    def note_stopping(self) -> None:
        """This process is asked to stop, whatever the rest of the trial does."""
        self._stopping.set()

    def has_ended(self) -> bool:
        """For one who cannot reach it: whether the trial is over, or runs again without this process.

        A driver that was just killed is still a process for a moment, so this may take a second to say no.
        """
        until = time.monotonic() + _GONE_S
        while self._joined is not None and not self._stopping.is_set():
            known = folders.TrialFolder(self.folder).load()
            if known.names_url != self._joined.names_url or not known.is_live:
                self._stopping.set()
            elif time.monotonic() >= until:
                break
            else:
                self._stopping.wait(_LOOK_EVERY_S)
        return self._stopping.is_set()

    @property
    def is_driver_gone(self) -> bool:
        """Whether the process that drives the trial this one joined is no more. Quick: nothing is asked or read."""
        return self._joined is not None and not self._joined.is_live

    def remote(self, node: str) -> Remote:
        """Calls to the workers of a node, e.g. `remote("model-policy")`. Kept, and closed with the trial."""
        with self._lock:
            self.expect_open()
            made = self._remotes.get(node)
            if made is None:
                from ludus.workers.remote import Remote

                here = self.context
                made = self._remotes[node] = Remote(
                    node, experiment=here.experiment, trial=here.trial, names=here.names, secret=here.secret
                )
            return made

    def run(
        self, program: Program, *, stage: Stage | None = None, counted: Sequence[Service] | None = None
    ) -> launch.Run:
        """Driver only: start more workers, found by all processes of the trial. They end with it at the latest.

        stage: when the trial stops, who is asked first; by default they are asked last. counted: which of them count,
        and as what; by default as their nodes say.
        """
        return self.driver.run(program, stage=stage, counted=counted)

    def ask_driver(self, command: str, *args: Any, **kwargs: Any) -> Any:
        """Have the driver do something, from any process: see `DriverService`."""
        return self.remote("driver").submit(command, *args, **kwargs).result()

    def workers(self) -> list[launch.WorkerRecord]:
        """Driver only: the workers of all runs."""
        return [record for run in self.driver.runs() for record in run.workers()]

    def address(self, worker: str, *, timeout_s: float = 30.0) -> str:
        """Where a worker answers, once it does."""
        self.expect_open()
        here = self.context
        return here.names.wait(naming.worker(here.experiment, here.trial, worker), timeout_s)

    @property
    def has_started(self) -> bool:
        """Whether it has names, by which others can be called."""
        return self._here is not None

    @property
    def context(self) -> context.Context:
        """Where its names are; in its driver they are started, with `driver/0`, when this is first asked for."""
        with self._lock:
            if self._here is None:
                self.expect_open()
                assert self._start is not None, "either it has names, or it can begin them"
                self._here, self._driver = self._start()
                if self._drive is not None:
                    self._drive.mark(lock.Phase.DRIVING)  # trial.json says how to join it
            return self._here

    def send_metrics(self, rows: list[Any], *, timeout_s: float) -> None:
        """For `merge`."""
        if self.is_driver:
            self.driver.metrics.join(rows)
        else:
            self.remote("driver").solver.submit("driver", "merge", [rows], timeout_s=timeout_s).result()

    def keep(self, key: str, make: Callable[[], T]) -> T:
        """What `make` made when this was first called with `key`: one for the process."""
        with self._lock:
            self.expect_open()
            if key not in self._kept:
                self._kept[key] = make()
            kept: T = self._kept[key]
            return kept

    def before_close(self, callback: Callable[[], None]) -> None:
        """Have it called by `close`, while everybody can still be reached; at once if that is under way."""
        with self._lock:
            if not self._is_closing:
                self._before_close.append(callback)
                return
        callback()

    def close(self, grace_s: float = 5.0) -> None:
        """The driver stops all runs, within `grace_s`, and services; any other process disconnects. Twice is fine.

        What goes wrong on the way keeps nothing from being ended, and is raised at the end.
        """
        with self._closing:
            if self._is_closed:
                return
            try:
                self._close(grace_s)
            finally:
                self._is_closed = True
                if self.on_closed is not None:
                    self.on_closed()
                self._resources.close()

    def _close(self, grace_s: float) -> None:
        if self._driver is not None:
            self._driver.interrupts.is_draining = True
        if self._drive is not None:
            self._drive.mark(lock.Phase.ENDING)
        with self._lock:
            self._is_closing = True
            callbacks, self._before_close = self._before_close, []
        with contextlib.ExitStack() as steps:  # from the last to the first, each whatever became of those before
            steps.callback(self._close_remotes)
            if self._driver is not None:
                steps.callback(self._driver.close, grace_s)
            for callback in reversed(callbacks):
                steps.callback(callback)
            if self._driver is not None:
                self._tell_stopping()

    def _close_remotes(self) -> None:
        with self._lock:
            remotes, self._remotes = self._remotes, {}
        for remote in remotes.values():
            remote.close()

    def _tell_stopping(self) -> None:
        self._stopping.set()
        here = self.context
        names, joined = here.names, naming.kind_root(here.experiment, here.trial, "joined")
        try:
            names.add(stop_key(here), self.driver.stop_reason or "closed", replace=True)
            until = time.monotonic() + _HEAR_S
            while names.find_subtree(joined) and time.monotonic() < until:
                time.sleep(0.01)
        except errors.DiscoveryError as error:
            _LOG.warning("the processes of the trial cannot be notified that it stops: %s", error)

    def leave_to_parent(self) -> None:
        """This process was forked: the trial stays its parent's. Nothing of it is closed here, or can be used."""
        self._lock, self._closing = threading.RLock(), threading.Lock()  # a thread that is not here may hold them
        self._is_closed = self._is_inherited = True
        if self._driver is not None:
            self._driver.interrupts.restore()

    def expect_own(self) -> None:
        """Raise `WorkerError` in a process that was forked from the trial's."""
        if self._is_inherited:
            raise errors.WorkerError(
                f"this process was forked from process {self._owner_pid}, and trial {self.folder.name!r}, with all "
                "that was made of it there, can be used in that process only. Start processes by spawn instead "
                "(multiprocessing.get_context('spawn')), and call ludus.init in them."
            )

    def expect_open(self) -> None:
        """Raise `WorkerError` once it is closed, or where it cannot be used."""
        if self._is_closed:
            self.expect_own()
            raise errors.WorkerError(f"trial {self.folder.name!r} was closed. Call ludus.init(project, trial) again.")

    def __repr__(self) -> str:
        return f"Trial({str(self.folder)!r}, {'driver' if self.is_driver else 'joined'})"

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        is_terminated = isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM  # by `signals.Interrupts`
        driver = None if self._is_closed else self._driver
        if driver is not None and driver.runs() and (is_terminated or isinstance(error, KeyboardInterrupt)):
            driver.interrupts.is_draining = True  # before it is said: the next Ctrl-C is the second
            _LOG.warning("interrupted: the workers are asked to exit; a second Ctrl-C kills them at once")
        self.close()


def stop_key(here: context.Context) -> str:
    """The name that is there once the trial is asked to stop."""
    return naming.key(here.experiment, here.trial, "state", "stopping")
