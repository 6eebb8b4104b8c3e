"""The life of a worker process, top to bottom: spec → lifeline → logs → names → server → worker → run → end.

    python -m ludus.launch SPEC_FILE LIFELINE_FD PULSE_FD

Heartbeats go into the pipe PULSE_FD, from a thread of their own, from the first moment to the last.
The exit code is 0 when the worker is done or was asked to exit, 1 when it failed; how it ended is written beside its
spec first, because an exit code cannot carry a traceback.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from ludus import core, discovery
from ludus.launch import lifeline as lifelines
from ludus.launch import spec as specs
from ludus.launch import supervisor
from ludus.program import folder as folders
from ludus.program import program as programs
from ludus.rpc import address
from ludus.telemetry import logs, relay
from ludus.workers import context, heartbeat, remote, server
from ludus.workers import worker as workers

__all__ = ["END_MARK", "LOG_MARK", "ExitRequest", "PulsePipe", "decode_end", "live", "main", "read_end"]

_LOG = logging.getLogger(__name__)
END_MARK = b"end "
LOG_MARK = b"log "


class AskedToExit(BaseException):
    """Raised in a process that is asked to exit while its worker is still being built."""


class ExitRequest:
    """How a worker is asked to exit from the first moment of its life, when there is no worker yet to ask."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._worker: workers.Worker | None = None

    @property
    def is_attached(self) -> bool:
        return self._worker is not None

    def __call__(self, reason: str) -> None:
        self.reason = reason
        if self._worker is not None:
            self._worker.request_exit(reason)

    def attach(self, worker: workers.Worker) -> None:
        """From now on it is `worker` that is asked; if that has been done before, it is asked now."""
        self._worker = worker
        if self.reason is not None:
            worker.request_exit(self.reason)


def main(argv: Sequence[str]) -> int:
    spec = specs.read_spec(Path(argv[0]))
    ask_exit = ExitRequest()
    lifeline = lifelines.Lifeline(int(argv[1]), ask_exit=ask_exit, parent_pid=os.getppid())
    lifeline.start()
    folder = folders.TrialFolder(Path(spec.folder))
    logs.log_process(spec.worker, folder.log_file(spec.worker))
    pipe = PulsePipe(int(argv[2]))
    logging.getLogger().addHandler(relay.RelayHandler(lambda line: pipe.send(LOG_MARK + line + b"\n")))
    faulthandler.enable()
    _exit_on_signals(ask_exit)

    def on_hung(reason: str, stack: str) -> None:
        _LOG.error("%s; this process ends. The loop's stack:\n%s", reason, stack)
        end = supervisor.End(status=core.WorkerStatus.FAILED, reason=reason, traceback=stack)
        _write_end(folder, spec.worker, end, pipe)
        lifelines.end_process_group()

    def send(beat: heartbeat.Beat) -> None:
        pipe.send(heartbeat.encode_beat(beat))

    pulse = heartbeat.Heartbeat(send, max_busy_s=spec.max_busy_s, on_hung=on_hung)
    pulse.start()
    end = live(spec, ask_exit, pulse=pulse)
    _write_end(folder, spec.worker, end, pipe)
    if lifeline.is_lost:
        lifelines.end_process_group()  # nobody is left to clear up after this worker
    return 1 if end.status is core.WorkerStatus.FAILED else 0


class PulsePipe:
    """Puts lines into a pipe: beats, warnings, how the worker ended. Never waits; thread-safe.

    A line that finds no room, because nobody reads just now, is dropped; one that was started is completed first.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._rest = b""
        self._lock = threading.RLock()  # a signal handler may log while its thread is in here

    def send(self, line: bytes) -> None:
        with self._lock, contextlib.suppress(BlockingIOError, BrokenPipeError):
            if self._rest:
                self._rest = self._rest[os.write(self._fd, self._rest) :]
            if not self._rest:
                self._rest = line[os.write(self._fd, line) :]


def _write_end(folder: folders.TrialFolder, worker: str, end: supervisor.End, pipe: PulsePipe) -> None:
    content = json.dumps(asdict(end)).encode()
    try:
        folders.write_private(folder.end_file(worker), content)
    except OSError as error:  # a full disk, perhaps: the driver learns of it by the pipe
        _LOG.error("how this worker ended cannot be written to %s: %s", folder.path, error)
        pipe.send(END_MARK + content + b"\n")


def live(
    spec: specs.WorkerSpec,
    ask_exit: ExitRequest,
    *,
    names: core.Names | None = None,
    pulse: heartbeat.Heartbeat | None = None,
) -> supervisor.End:
    """One worker's life in the calling thread, and how it ended. Raises nothing.

    Without `names`, this process has that one worker only, and belongs to its trial. `pulse` describes its loop.
    """
    log_file = folders.TrialFolder(Path(spec.folder)).log_file(spec.worker)
    log_start = logs.size(log_file)
    try:
        with contextlib.ExitStack() as stack:
            if names is None:
                names = stack.enter_context(contextlib.closing(discovery.connect(spec.names_url)))
                here = context.Context(
                    experiment=spec.experiment,
                    trial=spec.trial,
                    names=names,
                    secret=spec.secret,
                    folder=Path(spec.folder),
                )
                context.use(here)
                stack.callback(context.leave)
            worker = _build(spec, names, stack)
            ask_exit.attach(worker)
            if pulse is not None:
                pulse.attach(worker)
            worker.run()
            _LOG.info("%s: %s", worker.status, worker.exit_reason or "finished")
            return supervisor.End(status=worker.status, reason=worker.exit_reason or "finished", result=worker.result)
    except AskedToExit as asked:
        return supervisor.End(status=core.WorkerStatus.EXITED, reason=str(asked))
    except BaseException as error:
        last_lines = tuple(logs.tail(log_file, since=log_start))
        _LOG.exception("%s failed", spec.worker)
        return supervisor.End(
            status=core.WorkerStatus.FAILED,
            reason=f"{type(error).__name__}: {error}",
            traceback=_format(error),
            last_lines=last_lines,
            is_external=supervisor.may_pass(error),
        )


def _build(spec: specs.WorkerSpec, names: core.Names, stack: contextlib.ExitStack) -> workers.Worker:
    """Server, handles, worker; `stack` closes them in reverse."""
    own = server.WorkerServer(
        spec.worker,
        experiment=spec.experiment,
        trial=spec.trial,
        names=names,
        host=spec.host,
        port=None if address.is_loopback(spec.host) else 0,
        secret=spec.secret,
    )
    stack.callback(own.close)

    def connect(handle: programs.Handle) -> remote.Remote:
        made = remote.Remote(handle.node, experiment=spec.experiment, trial=spec.trial, names=names, secret=spec.secret)
        stack.callback(made.close)
        return made

    cls, args, kwargs = spec.unpack()
    args, kwargs = programs.map_handles((args, dict(kwargs)), connect)
    worker = workers.make_worker(own, cls, args, kwargs)
    worker.configure()
    return worker


def _format(error: BaseException) -> str:
    """Its traceback, from where this file called what raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _exit_on_signals(ask_exit: ExitRequest) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        ask_exit(signal.Signals(number).name)
        if not ask_exit.is_attached:
            raise AskedToExit(ask_exit.reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def read_end(path: Path) -> supervisor.End | None:
    """How a worker said it ended; None if it had no time to say it."""
    try:
        return decode_end(path.read_bytes())
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # or it was killed while it said it
        return None


def decode_end(said: bytes) -> supervisor.End:
    content: dict[str, Any] = json.loads(said)
    status = core.WorkerStatus(content.pop("status"))
    last_lines = tuple(content.pop("last_lines"))
    return supervisor.End(status=status, last_lines=last_lines, **content)
