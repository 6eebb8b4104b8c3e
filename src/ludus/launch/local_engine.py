"""The local engine: every worker a process of its own on this machine, or a thread of this process.

A process gets what it must know by a private file, runs `ludus.launch.child` in a session of its own (so that Ctrl-C in
the terminal reaches only the driver, which drains), and holds the end of a pipe that closes when the driver dies. One
thread waits for each, so a death is noticed at once. Heartbeats come by a pipe of its own, so that a process that is
there but does not run (stopped, frozen) is noticed, too. Where several workers need the same imports, a template has
made them once, and forks the workers (`forks.py`).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Protocol, Self

import ludus
from ludus import core, discovery
from ludus.launch import child, forks, guard, supervisor
from ludus.launch import run as runs
from ludus.launch import spec as specs
from ludus.launch import vitals as vital_signs
from ludus.program import folder as folders
from ludus.program import program as programs
from ludus.telemetry import logs, relay
from ludus.workers import context, heartbeat

__all__ = ["launch"]

_FORKED = ("ludus.",)  # the modules whose classes run in forked workers; code of a user has a process of its own
_WORTH_A_TEMPLATE = 2  # workers
_EXIT_UNFLUSHED = 120  # Python's, when standard output or error could not be flushed at the end


def launch(
    program: programs.Program,
    *,
    trial: str | None = None,
    project: str | Path = "trials",
    threads: bool = False,
    names_url: str | None = None,
    listen_host: str = "127.0.0.1",
    secret: str | None = None,
    on_event: Callable[[supervisor.Event], None] | None = None,
    within: runs.Place | None = None,
) -> runs.Run:
    """Run `program` on this machine; returns at once, with its workers on their way.

    threads: run every worker as a thread of this process, for debugging. A thread cannot be killed: one that does
        not heed its exit is left behind.
    trial, project: the run's folder is `project/trial`; without a name, one is made from the time.
    names_url: a name service to use instead of the registry that this process would host.
    listen_host: what the workers' servers bind to; anything but loopback needs a `secret`.
    on_event: called with starts, crashes and ends, from the supervisor's thread.
    within: a trial that is there already, to run this program in beside others. Instead of all that says where.
    """
    program.validate()
    with contextlib.ExitStack() as stack:
        if within is not None:
            folder, url, listen_host, secret = within.folder, within.names_url, within.host, within.secret
        else:
            folder = runs.take_up(stack, project, trial)
            url = runs.open_names(stack, names_url, host=listen_host, secret=secret)
        worker_specs = specs.make_specs(program, folder, names_url=url, host=listen_host, secret=secret)
        start: supervisor.Start
        if threads:
            start = stack.enter_context(_Threads(worker_specs, folder, url)).start
        else:
            start = stack.enter_context(_Processes(program, worker_specs, folder)).start
        return runs.begin(
            program,
            folder,
            stack,
            start,
            engine="local",
            names_url=url,
            secret=secret,
            on_event=on_event,
            is_within=within is not None,
        )


class _Processes:
    """Starts worker processes, and holds the pipe by which they notice that this one is gone."""

    def __init__(
        self, program: programs.Program, worker_specs: Mapping[str, specs.WorkerSpec], folder: folders.TrialFolder
    ) -> None:
        self._worker_specs = worker_specs
        self._folder = folder
        self._environments = {worker: _environment(node) for node in program.nodes for worker in node.worker_names}
        self._guard = _Guard()
        self._forks = self._make_forks(program)
        self._relay = relay.WarningRelay(folder.path / "logs")

    def _make_forks(self, program: programs.Program) -> dict[str, forks.Forks]:
        """By worker: of those of Ludus's own classes that share their environment with others."""
        if sys.platform != "linux":  # elsewhere libraries are less ready for it
            return {}
        own = [node for node in program.nodes if node.cls.__module__.startswith(_FORKED)]
        groups: collections.defaultdict[str, list[str]] = collections.defaultdict(list)
        for node in own:
            for worker in node.worker_names:
                groups[self._environments[worker]["OMP_NUM_THREADS"]].append(worker)
        made: dict[str, forks.Forks] = {}
        for workers in groups.values():
            if len(workers) >= _WORTH_A_TEMPLATE:
                shared = forks.Forks(
                    self._folder.path,
                    self._environments[workers[0]],
                    forks.modules_to_preload(),
                    on_start=self._guard.add,
                    on_end=self._guard.remove,
                )
                made |= dict.fromkeys(workers, shared)
        return made

    def __enter__(self) -> Self:
        for worker, spec in self._worker_specs.items():
            specs.write_spec(self._folder.spec_file(worker), spec)
        self._lifeline, self._own_end = os.pipe()
        self._guard.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        for shared in set(self._forks.values()):
            shared.close()
        self._guard.close()
        os.close(self._lifeline)
        os.close(self._own_end)

    def start(self, worker: str, ended: Callable[[supervisor.End], None]) -> _Process:
        if not self._folder.spec_file(worker).exists():  # somebody deleted the trial's folder
            self._folder.make()
            specs.write_spec(self._folder.spec_file(worker), self._worker_specs[worker])
        self._folder.end_file(worker).unlink(missing_ok=True)
        log_start = logs.size(self._folder.log_file(worker))
        pulse, worker_end = os.pipe()
        try:
            with open(self._folder.log_file(worker), "ab") as log:
                made = self._make(worker, log, [self._lifeline, worker_end])
        except BaseException:
            os.close(pulse)
            raise
        finally:
            os.close(worker_end)
        process = _Process(
            made,
            self._folder,
            worker,
            ended,
            log_start=log_start,
            guard=self._guard,
            pulse=_Pulse(pulse, warn=functools.partial(self._relay.take, worker)),
        )
        process.watch()
        return process

    def _make(self, worker: str, log: IO[bytes], fds: list[int]) -> _Made:
        spec = self._folder.spec_file(worker)
        if worker in self._forks:
            return self._forks[worker].start(spec, [*fds, log.fileno()])
        return _Spawned(
            subprocess.Popen(
                # -P: the folder it happens to be started in is no place to import from.
                [sys.executable, "-P", "-m", "ludus.launch", spec, *map(str, fds)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environments[worker],
                pass_fds=fds,
                start_new_session=True,
            )
        )


class _Made(Protocol):
    """A process that was made for a worker. It leads a session of its own. See `forks.Fork`."""

    last_words: tuple[str, ...]

    @property
    def pid(self) -> int | None: ...

    def wait_started(self) -> None: ...

    def wait_ended(self) -> None: ...

    def reap(self) -> int: ...


class _Spawned:
    """A child of this process."""

    last_words: tuple[str, ...] = ()

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.pid = popen.pid
        self._popen = popen

    def wait_started(self) -> None:
        """It has."""

    def wait_ended(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def reap(self) -> int:
        return self._popen.wait()


class _Guard:
    """Tells the guard process which process groups there are; see `guard.py`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def add(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        assert self._popen is not None
        with contextlib.suppress(OSError):
            self._popen.communicate()

    def _tell(self, line: str) -> None:
        assert self._popen is not None
        assert self._popen.stdin is not None
        with self._lock, contextlib.suppress(OSError):  # if somebody killed it, the workers' lifelines remain
            self._popen.stdin.write(line)
            self._popen.stdin.flush()


class _Pulse:
    """The driver's end of the pipe by which a worker's heartbeats come; `warn` gets its warnings."""

    def __init__(self, fd: int, warn: Callable[[bytes], None]) -> None:
        os.set_blocking(fd, False)
        self._warn = warn
        self._fd: int | None = fd
        self._rest = b""
        self._last: heartbeat.Beat | None = None
        self.end: supervisor.End | None = None  # sent here by a worker that could not write it to its file

    def last(self) -> heartbeat.Beat | None:
        """The newest beat that has arrived; None before the first."""
        while self._fd is not None:
            try:
                content = os.read(self._fd, 65_536)
            except BlockingIOError:
                break
            if not content:
                break
            *lines, self._rest = (self._rest + content).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):  # whatever else has that descriptor may write to it, too
                    if line.startswith(child.END_MARK):
                        self.end = child.decode_end(line.removeprefix(child.END_MARK))
                    elif line.startswith(child.LOG_MARK):
                        self._warn(line.removeprefix(child.LOG_MARK))
                    else:
                        self._last = heartbeat.decode_beat(line)
        return self._last

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class _Process:
    """One worker process; `ended` is called with how it ended."""

    def __init__(
        self,
        made: _Made,
        folder: folders.TrialFolder,
        worker: str,
        ended: Callable[[supervisor.End], None],
        *,
        log_start: int,
        guard: _Guard,
        pulse: _Pulse,
    ) -> None:
        self.pid = made.pid
        self.host = os.uname().nodename
        self._made = made
        self._worker = worker
        self._folder = folder
        self._ended = ended
        self._log_start = log_start
        self._guard = guard
        self._pulse = pulse
        self._lock = threading.Lock()
        self._is_asked = False
        self._is_killed = False
        self._is_reaped = False
        if self.pid is not None:
            guard.add(self.pid)
        self._thread = threading.Thread(target=self._wait, name=f"ludus-wait-{worker}", daemon=True)

    def watch(self) -> None:
        self._thread.start()

    def ask_exit(self) -> None:
        with self._lock:
            self._is_asked = True
            self._signal()

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            self._signal()

    def _signal(self) -> None:
        """What it was asked; one that is not there yet gets it as soon as it is."""
        if self.pid is None or self._is_reaped:
            return
        if self._is_killed:
            os.killpg(self.pid, signal.SIGKILL)
        elif self._is_asked:
            os.kill(self.pid, signal.SIGTERM)

    def vitals(self) -> vital_signs.Vitals:
        with self._lock:
            process = None if self._is_reaped or self.pid is None else vital_signs.read_process(self.pid)
            is_stopped, cpu_s = process or (False, None)
            return vital_signs.Vitals(beat=self._pulse.last(), is_stopped=is_stopped, cpu_s=cpu_s)

    def _wait(self) -> None:
        self._made.wait_started()
        if self.pid is None and self._made.pid is not None:
            with self._lock:
                self.pid = self._made.pid
                self._guard.add(self.pid)
                self._signal()
        self._made.wait_ended()
        with self._lock:
            if self.pid is not None:
                # While it is a zombie its id cannot belong to anybody else: what it has started can be ended with it.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                self._guard.remove(self.pid)
            code = self._made.reap()
            self._is_reaped = True
            self._pulse.last()
            self._pulse.close()
        self._ended(self._end(code))

    def _end(self, code: int) -> supervisor.End:
        said = child.read_end(self._folder.end_file(self._worker)) or self._pulse.end
        if said is not None:
            return said
        if self._is_asked and code == -signal.SIGTERM:  # it was not yet so far as to handle signals
            return supervisor.End(status=core.WorkerStatus.EXITED, reason="SIGTERM")
        return supervisor.End(
            status=core.WorkerStatus.FAILED,
            reason=_describe_exit(code, self._folder.path),
            is_external=code in (-signal.SIGKILL, -signal.SIGTERM) or code == _EXIT_UNFLUSHED,
            last_lines=self._made.last_words
            or tuple(logs.tail(self._folder.log_file(self._worker), since=self._log_start)),
        )


class _Threads:
    """Starts workers as threads of this process, which share its view of the names."""

    def __init__(
        self, worker_specs: Mapping[str, specs.WorkerSpec], folder: folders.TrialFolder, names_url: str
    ) -> None:
        self._worker_specs = worker_specs
        self._folder = folder
        self._names = discovery.connect(names_url)

    def __enter__(self) -> Self:
        spec = next(iter(self._worker_specs.values()))
        here = context.Context(
            experiment=spec.experiment,
            trial=spec.trial,
            names=self._names,
            secret=spec.secret,
            folder=self._folder.path,
        )
        context.use(here)
        return self

    def __exit__(self, *_exc: object) -> None:
        context.use(None)
        self._names.close()

    def start(self, worker: str, ended: Callable[[supervisor.End], None]) -> _Thread:
        thread = _Thread(self._worker_specs[worker], self._folder.log_file(worker), self._names, ended)
        thread.start()
        return thread


class _Thread:
    """One worker thread; `ended` is called with how it ended."""

    def __init__(
        self, spec: specs.WorkerSpec, log_file: Path, names: core.Names, ended: Callable[[supervisor.End], None]
    ) -> None:
        self.pid = os.getpid()
        self.host = os.uname().nodename
        self._spec = spec
        self._log_file = log_file
        self._names = names
        self._ended = ended
        self._ask_exit = child.ExitRequest()
        self._beat: heartbeat.Beat | None = None
        self._thread = threading.Thread(target=self._live, name=spec.worker, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_exit(self) -> None:
        self._ask_exit("asked by the driver")

    def kill(self) -> None:
        self._ended(
            supervisor.End(status=core.WorkerStatus.FAILED, reason="a thread cannot be killed; it is left running")
        )

    def vitals(self) -> vital_signs.Vitals:
        return vital_signs.Vitals(beat=self._beat, cpu_s=time.process_time())

    def _note(self, beat: heartbeat.Beat) -> None:
        self._beat = beat

    def _live(self) -> None:
        pulse = heartbeat.Heartbeat(self._note)  # a thread that hangs cannot be ended, so nothing is done about it
        pulse.start()
        with logs.log_thread(self._spec.worker, self._log_file):
            end = child.live(self._spec, self._ask_exit, names=self._names, pulse=pulse)
        pulse.close()
        self._ended(end)


def _environment(node: programs.Node) -> dict[str, str]:
    """This process's, in which `ludus` can be imported and maths takes no more threads than the node asked for."""
    home = str(Path(ludus.__file__).parent.parent)
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    threads = {"OMP_NUM_THREADS": str(max(1, int(node.resources.cpus)))}
    return {**threads, **os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def _describe_exit(code: int, folder: Path) -> str:
    if code == _EXIT_UNFLUSHED:
        return f"exit code {code}: its last output could not be written. {describe_space(folder)}"
    if code >= 0:
        return f"exit code {code}, without a word"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    by_whom = " (by somebody, or by the kernel because memory ran out)" if name == "SIGKILL" else ""
    return f"killed by {name}{by_whom}"


def describe_space(folder: Path) -> str:
    """A sentence on how full the disk of a folder is, for somebody whose file could not be written."""
    try:
        there = os.statvfs(folder)
    except OSError as error:
        return f"{folder} cannot be looked at: {error}."
    free = there.f_bavail * there.f_frsize
    if free < 1 << 20:
        return f"The disk of {folder} is full ({free} bytes are free): make room."
    return f"The disk of {folder} has {free >> 20} MB free; is it a quota, or a limit of file sizes?"
