"""Worker processes that are forked by a template (`template.py`): the driver's side."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ludus.launch import template, vitals
from ludus.telemetry import logs

__all__ = ["Fork", "Forks", "modules_to_preload"]

_LOG = logging.getLogger(__name__)
_ANSWER_S = 120.0  # to import all on a machine that is busy with other work
_END_S = 10.0
_LOOK_S = 0.5
_LIBRARIES = ("gymnasium",)
_NOT_PRELOADED = ("ludus.cli", "ludus.testing", "ludus.__main__")


class Fork:
    """One worker process. Its parent is the template."""

    def __init__(self, running: _Running) -> None:
        self.pid: int | None = None  # known once it is there
        self.last_words: tuple[str, ...] = ()  # of the template, if that ended before it could start this one
        self._running = running
        self._has_started = threading.Event()
        self._has_ended = threading.Event()
        self._code = -signal.SIGKILL

    def wait_started(self) -> None:
        """Until it is there, or never will be."""
        self._running.wait_for(self._has_started)

    def wait_ended(self) -> None:
        """Until it has ended; its id stays its own until `reap`."""
        if self.pid is not None:
            fd = os.pidfd_open(self.pid)
            try:
                select.select([fd], [], [])
            finally:
                os.close(fd)
        self._running.wait_for(self._has_ended)

    def reap(self) -> int:
        """Its exit code, or minus the signal that ended it. Its id may be another's from now on."""
        if self.pid is not None:
            self._running.reap(self.pid)
        return self._code

    def note_started(self, pid: int) -> None:
        self.pid = pid
        self._has_started.set()

    def note_ended(self, code: int) -> None:
        self._code = code
        self._has_ended.set()
        self._has_started.set()


class Forks:
    """Starts workers by a template that is started with the first of them, and again if it dies. Thread-safe.

    Workers do not outlive their template: they notice that their parent is gone, and are killed from here.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        modules: Sequence[str],
        *,
        on_start: Callable[[int], None],
        on_end: Callable[[int], None],
    ) -> None:
        """`on_start` and `on_end` are called with the ids of template processes."""
        self._folder = folder
        self._environment = dict(environment)
        self._modules = list(modules)
        self._on_start = on_start
        self._on_end = on_end
        self._lock = threading.Lock()
        self._number = 0
        self._running: _Running | None = None
        self._reader: threading.Thread | None = None

    def start(self, spec: Path, fds: Sequence[int]) -> Fork:
        """`fds`: its lifeline, its heartbeats, its log. Returns at once."""
        with self._lock:
            if self._running is None or self._running.is_over:
                self._running = _Running(self._folder, self._environment, self._modules)
                self._on_start(self._running.pid)
                self._reader = threading.Thread(target=self._read, args=(self._running,), name="ludus-template")
                self._reader.daemon = True
                self._reader.start()
            self._number += 1
            return self._running.start(self._number, spec, fds)

    def _read(self, running: _Running) -> None:
        running.read()
        self._on_end(running.pid)

    def close(self) -> None:
        """The workers have ended."""
        with self._lock:
            if self._running is not None:
                self._running.close()
                self._running = None
            if self._reader is not None:
                self._reader.join()
                self._reader = None


class _Running:
    """One template process."""

    def __init__(self, folder: Path, environment: Mapping[str, str], modules: Sequence[str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._waiting: dict[int, Fork] = {}  # by request
        self._forks: dict[int, Fork] = {}  # by process
        self.is_over = False
        self._log = folder / "logs" / "template.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = logs.size(self._log)
        words = [str(theirs.fileno()), str(folder), ",".join(modules), template.PADDING]
        with theirs, open(self._log, "ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "ludus.launch", "--template", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.pid = self._popen.pid

    def start(self, number: int, spec: Path, fds: Sequence[int]) -> Fork:
        fork = Fork(self)
        message = json.dumps({"start": number, "spec": str(spec)}).encode()
        with self._lock:
            if self.is_over:
                fork.note_ended(-signal.SIGKILL)
                return fork
            self._waiting[number] = fork
            with contextlib.suppress(OSError):  # it has died: `read` tells
                socket.send_fds(self._channel, [message], fds)
        return fork

    def wait_for(self, event: threading.Event) -> None:
        """For something that the template is to tell. One that is stopped, or does not, is killed."""
        until = time.monotonic() + _ANSWER_S
        num_stopped = 0
        while not event.wait(_LOOK_S):
            process = vitals.read_process(self.pid)
            num_stopped = num_stopped + 1 if process is not None and process[0] else 0
            if (num_stopped * _LOOK_S >= vitals.STOPPED_S or time.monotonic() > until) and not self.is_over:
                _LOG.error("the process that forks workers (pid %d) does not answer; it is killed", self.pid)
                self._popen.kill()  # and with it all that it has forked
                num_stopped, until = 0, time.monotonic() + _ANSWER_S

    def reap(self, pid: int) -> None:
        with self._lock:
            if self._forks.pop(pid, None) is not None and not self.is_over:
                with contextlib.suppress(OSError):
                    self._channel.send(json.dumps({"reap": pid}).encode())

    def read(self) -> None:
        """Until the template ends."""
        while message := self._receive():
            answer = json.loads(message)
            with self._lock:
                if "started" in answer:
                    fork = self._waiting.pop(answer["started"])
                    self._forks[answer["pid"]] = fork
                    fork.note_started(answer["pid"])
                elif answer["ended"] in self._forks:
                    self._forks[answer["ended"]].note_ended(answer["code"])
        code = self._wait()
        with self._lock:
            self.is_over = True
            if self._waiting or self._forks:
                _LOG.error("the process that forks workers has ended (%d); its log: %s", code, self._log)
            for pid, fork in self._forks.items():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
                fork.note_ended(-signal.SIGKILL)
            for fork in self._waiting.values():
                fork.last_words = tuple(logs.tail(self._log, since=self._log_start))
                fork.note_ended(code)
            self._forks.clear()
            self._waiting.clear()
            self._channel.close()

    def _receive(self) -> bytes:
        try:
            return self._channel.recv(template.MAX_MESSAGE)
        except OSError:
            return b""

    def _wait(self) -> int:
        """For its end, which it was asked for; one that is stopped does not hear that."""
        try:
            return self._popen.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()

    def close(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)


def modules_to_preload() -> list[str]:
    """Those of Ludus that this process has imported, and the libraries that envs begin with; no code of a user."""
    own = [name for name in sys.modules if name.startswith("ludus.") and not name.startswith(_NOT_PRELOADED)]
    return sorted([*own, *(name for name in _LIBRARIES if name in sys.modules)])
