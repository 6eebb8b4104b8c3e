"""A run: what a driver holds while a program runs."""

from __future__ import annotations

import contextlib
import logging
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ludus import core, discovery, errors
from ludus.discovery import registry
from ludus.launch import signals, status
from ludus.launch import supervisor as supervisors
from ludus.program import folder as folders
from ludus.program import lock
from ludus.program import program as programs
from ludus.workers import panel, remote

__all__ = ["Place", "Run", "begin", "open_names", "take_up"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A trial that is there already, in which runs can be started beside each other.

    Its maker keeps its names and its trial.json, handles signals, and says when it has ended. `reserves`: whether
    an engine that places workers should count their CPUs.
    """

    folder: folders.TrialFolder
    names_url: str
    host: str = "127.0.0.1"
    secret: str | None = None
    reserves: bool = True


class Run:
    """A program that runs.

        with launch.local(program) as run:
            run.wait()

    Leaving the `with` block stops all of it; so does the death of this process.
    """

    def __init__(
        self,
        program: programs.Program,
        trial: folders.TrialRecord,
        folder: folders.TrialFolder,
        supervisor: supervisors.Supervisor,
        resources: contextlib.ExitStack,
        *,
        is_within: bool = False,
    ) -> None:
        """Made by the engines. `resources` is closed when the run has ended. `is_within`: its trial has others, too."""
        self.program = program
        self.experiment = trial.experiment
        self.trial = trial.trial
        self.trial_dir: Path = folder.path
        self.names_url = trial.names_url
        self._secret = trial.secret
        self._folder = folder
        self._supervisor = supervisor
        self._resources = resources
        self._interrupts = signals.Interrupts()
        self._is_within = is_within
        self._names: core.Names | None = None
        self._closing = threading.Lock()
        self._is_closed = False
        self._failure_reported = False

    def start(self) -> None:
        if not self._is_within:
            self._interrupts.install()
            self._serve_status()
        self._supervisor.start()

    def _serve_status(self) -> None:
        server = status.StatusServer(
            self._supervisor.records,
            self._supervisor.request_restart,
            experiment=self.experiment,
            trial=self.trial,
            secret=self._secret,
        )
        self._resources.callback(server.close)
        server.start(self._own_names())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._interrupts.is_draining = True  # before it is said: the next Ctrl-C is the second
            _LOG.warning("interrupted: the workers are asked to exit; a second Ctrl-C kills them at once")
        self.stop()
        failure = self._supervisor.failure
        if failure is not None and not self._failure_reported and error is None:
            self._failure_reported = True
            raise failure

    def workers(self) -> list[supervisors.WorkerRecord]:
        """Every worker of the program as its driver sees it now."""
        return self._supervisor.records()

    def restart(self, worker: str) -> None:
        """Have a worker exit and be started again, which uses up no restarts. Raises `ProgramError` if it cannot be."""
        self._supervisor.request_restart(worker)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all workers that have work of their own have ended it; says whether they have.

        Workers that only answer calls do not count, unless there are no others: they go on until `stop`. Raises
        `ProgramError` if the run was ended because a worker kept crashing.
        """
        is_settled = self._supervisor.settled.wait(timeout_s)
        if is_settled and self._supervisor.failure is not None:
            self._failure_reported = True
            raise self._supervisor.failure
        return is_settled

    @property
    def failure(self) -> errors.ProgramError | None:
        """Why it was ended, if that was because a worker kept crashing."""
        return self._supervisor.failure

    @property
    def is_over(self) -> bool:
        """Nothing of it runs any more."""
        return self._supervisor.ended.is_set()

    def ask_stop(self, grace_s: float = 5.0) -> None:
        """The beginning of `stop`: ask all workers to exit, and do not wait for them. A shorter grace overrules."""
        self._supervisor.request_stop(grace_s=grace_s, why="the driver stops the run")

    def stop(self, grace_s: float = 5.0) -> None:
        """Drain: ask all workers to exit, wait for them at most `grace_s`, kill the rest. May be called twice."""
        self._interrupts.is_draining = True
        self._supervisor.request_stop(grace_s=grace_s, why="the driver stops the run")
        if self._supervisor.is_own_thread:
            return
        while not self._supervisor.ended.wait(0.05):
            if self._interrupts.is_hurried:
                self._supervisor.request_stop(grace_s=0.0, why="asked to hurry")
        self._close()

    def remote(self, handle: programs.Handle | str) -> remote.Remote:
        """What the handle becomes in a worker: calls to a node from the driver. Closed with the run."""
        node = self.program.node(handle.node if isinstance(handle, programs.Handle) else handle)
        made = remote.Remote(
            node.name,
            experiment=self.experiment,
            trial=self.trial,
            names=self._own_names(),
            secret=self._secret,
        )
        self._resources.callback(made.close)
        return made

    def panel(self) -> panel.WorkerControlPanel:
        """A control panel of this run's workers. Closed with the run."""
        made = panel.WorkerControlPanel(self.experiment, self.trial, names=self._own_names(), secret=self._secret)
        self._resources.callback(made.close)
        return made

    def _own_names(self) -> core.Names:
        if self._names is None:
            self._names = discovery.connect(self.names_url)
            self._resources.callback(self._names.close)
        return self._names

    def _close(self) -> None:
        with self._closing, contextlib.ExitStack() as stack:
            if self._is_closed:
                return
            self._is_closed = True
            stack.callback(self._interrupts.restore)
            stack.callback(self._resources.close)
            failure = self._supervisor.failure
            if not self._is_within:
                self._folder.mark_ended(str(failure).splitlines()[0] if failure else "stopped")


def open_names(
    stack: contextlib.ExitStack, names_url: str | None, *, host: str = "127.0.0.1", secret: str | None = None
) -> str:
    """The url of the run's names: the given one, or that of a registry hosted by this process until `stack` closes."""
    if names_url is not None:
        return names_url
    server = registry.RegistryServer(host=host, secret=secret)
    server.start()
    stack.callback(server.close)
    return server.url


def take_up(stack: contextlib.ExitStack, project: str | Path, trial: str | None) -> folders.TrialFolder:
    """The folder of a run, whose lock `stack` holds from now on."""
    folder = folders.TrialFolder.create(project, trial)
    stack.enter_context(lock.driving(folder.path))
    return folder


def begin(
    program: programs.Program,
    folder: folders.TrialFolder,
    stack: contextlib.ExitStack,
    start: supervisors.Start,
    *,
    engine: str,
    names_url: str,
    secret: str | None,
    on_event: Callable[[supervisors.Event], None] | None,
    is_within: bool = False,
) -> Run:
    """Write the trial down, unless others have; start the supervisor; from here on the run owns what `stack` holds."""
    trial = folders.TrialRecord.own(
        folder.path, experiment=program.name, names_url=names_url, engine=engine, secret=secret
    )
    if not is_within:
        folder.save(trial)
        folder.save_program(program.describe())
    supervisor = supervisors.Supervisor(program.nodes, start, on_event=on_event)
    run = Run(program, trial, folder, supervisor, stack.pop_all(), is_within=is_within)
    run.start()
    return run
