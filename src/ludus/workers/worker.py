"""The worker: a life in named phases around one short, repeated piece of work.

    class Counter(Worker):
        def _configure(self, config):
            self.step = config.get("step", 1)
            self.total = 0

        def _poll(self):
            self.total += self.step

        def _stats(self):
            return {"total": self.total}

Between polls the worker answers its server: the control commands below, and whatever else is registered there.
Commands wait while `_poll` runs, so `_poll` should be short (milliseconds).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ludus import errors
from ludus.core import WorkerStatus
from ludus.telemetry import counts
from ludus.workers.register import commands_of
from ludus.workers.server import WorkerServer

__all__ = ["ServiceWorker", "Worker", "make_worker"]

_log = logging.getLogger(__name__)
_REQUESTS_BETWEEN_POLLS = 64
_RUN_LASTS_S = 5.0  # a service whose `run` has gone on for so long has got to work


class Worker:
    """Subclass and override `_poll` and, as needed, the other methods with a leading underscore.

    `idle_s` is how long the loop waits for requests when `_poll` returned 0, that is, had nothing to do.
    """

    idle_s = 0.005

    def __init__(self, server: WorkerServer) -> None:
        self.server = server
        self.config: dict[str, Any] = {}
        self.status = WorkerStatus.CREATED
        self.exit_reason = ""
        self.result: Any = None
        self._exit_asked: str | None = None
        self._drain = True
        self._born = time.monotonic()
        self._last_poll = self._born
        self._num_polls = 0
        self.loop_thread: int | None = None  # the ident of the thread that is in `run`
        self.on_work: Callable[[], None] | None = None  # called once, at the first unit of work
        commands = ("configure", "start", "pause", "resume", "reconfigure", "stats", "ping", "interrupt", "exit")
        for command in commands:
            server.register_handler(command, getattr(self, command))
        server.on_name_taken = self._be_replaced

    # -- for subclasses -----------------------------------------------------------------------------------------

    def _configure(self, config: Mapping[str, Any]) -> None:
        """Take the configuration, before the start."""

    def _reconfigure(self, config: Mapping[str, Any]) -> None:
        """Take changed settings while running; the default is `_configure` with the merged configuration."""
        self._configure(self.config)

    def _start(self) -> None:
        """Called once, when the worker starts."""

    def _poll(self) -> int | None:
        """One short piece of work. Returning 0 means that there was nothing to do; call `finish` to end."""
        raise NotImplementedError(f"{type(self).__name__} must define _poll")

    def _exit(self) -> None:
        """Called once at the end of a worker that was started, whatever the reason, except `interrupt`."""

    def _stats(self) -> Mapping[str, Any]:
        """What `stats` shows beside the worker's own stats."""
        return {}

    @staticmethod
    def metric_counts(stats: Mapping[str, Any]) -> counts.Counts | None:
        """What of `stats` becomes metrics of the trial; none by default. Called in the driver, every few seconds."""
        return None

    def activity(self, method: str) -> str:
        """What the loop is doing, for status lines; empty while it waits. Called by the heartbeat's thread.

        `method` is the command or method that it is in, as its stack shows.
        """
        return method

    def progress_mark(self) -> object:
        """Something that changes whenever the loop makes progress. Called by the heartbeat's thread."""
        return self._num_polls, self.server.num_run

    def has_worked(self, *, is_busy: bool) -> bool:
        """Whether a first unit of work is done: a worker that dies before that three times is given up on.

        `is_busy`: the loop is in a call or poll now, which is not done yet.
        """
        return self._num_polls > 0 or self.server.num_run > int(is_busy)

    def is_warming_up(self, doing: str) -> bool:
        """Whether what the loop is doing may take ten times as long as usual before it is taken for hung.

        To load, to compile, to run for the first time. Called by the heartbeat's thread.
        """
        return False

    def note_work(self) -> None:
        """Report the first unit of work at once, before the next one can end the process. Safe from any thread.

        The loop calls this itself when `has_worked` says so; a worker that works in other threads calls it there.
        """
        on_work, self.on_work = self.on_work, None
        if on_work is not None:
            on_work()

    def report(self) -> Mapping[str, float]:
        """Numbers that every heartbeat carries to the driver: few, and quick to get. Called by its thread."""
        return {}

    def finish(self, result: Any = None) -> None:
        """End well after this poll: the worker is done. Its driver gets `result`, as JSON, in its last `End`."""
        self.result = result
        self.status = WorkerStatus.DONE

    # -- commands -----------------------------------------------------------------------------------------------

    def configure(self, config: Mapping[str, Any] | None = None) -> None:
        """created → ready."""
        self._expect("configure", WorkerStatus.CREATED)
        self.config = dict(config or {})
        self._configure(self.config)
        self.status = WorkerStatus.READY

    def start(self) -> None:
        """ready → running."""
        self._expect("start", WorkerStatus.READY)
        self._start()
        self.status = WorkerStatus.RUNNING

    def pause(self) -> None:
        """running → paused: requests are answered, `_poll` is not called."""
        self._expect("pause", WorkerStatus.RUNNING, WorkerStatus.PAUSED)
        self.status = WorkerStatus.PAUSED

    def resume(self) -> None:
        """paused → running."""
        self._expect("resume", WorkerStatus.PAUSED, WorkerStatus.RUNNING)
        self.status = WorkerStatus.RUNNING

    def reconfigure(self, config: Mapping[str, Any] | None = None) -> None:
        """Change settings of a live worker. When it refuses them, the old ones stay."""
        self._expect("reconfigure", WorkerStatus.READY, WorkerStatus.RUNNING, WorkerStatus.PAUSED)
        before = self.config
        self.config = {**before, **(config or {})}
        try:
            self._reconfigure(config or {})
        except BaseException:
            self.config = before
            raise

    def ping(self) -> dict[str, Any]:
        """Proof of life."""
        return {
            "status": self.status.value,
            "pid": os.getpid(),
            "uptime_s": time.monotonic() - self._born,
            "since_poll_s": time.monotonic() - self._last_poll,
        }

    def stats(self) -> dict[str, Any]:
        """Stats of the worker, of its server, and its own."""
        server = self.server.statistics()
        return {
            **self.ping(),
            "num_polls": self._num_polls,
            "num_requests": server.num_run,
            "num_failed": server.num_failed,
            "num_waiting": server.num_waiting,
            "batches": {name: [b.num_batches, b.num_calls] for name, b in server.batches.items()},
            **({"inside": inside} if (inside := counts.counted_here()) else {}),
            **self._stats(),
        }

    def interrupt(self) -> None:
        """Leave at once, without `_exit`."""
        self._drain = False
        self.request_exit("interrupted")

    def exit(self) -> None:
        """Leave after the present poll."""
        self.request_exit("asked to exit")

    def request_exit(self, reason: str) -> None:
        """Have `run` return soon. Safe from any thread and from signal handlers."""
        self._exit_asked = reason
        self.server.wake()

    def _be_replaced(self) -> None:
        """Another process has this worker's name: this one was taken for dead. Leave without `_exit`."""
        _log.error("%s: another process has taken over its name; this one ends", self.server.worker_name)
        self._drain = False
        self.request_exit("replaced: another process has its name")

    def _expect(self, command: str, *allowed: WorkerStatus) -> None:
        if self.status not in allowed:
            raise errors.WorkerError(
                f"cannot {command} worker {self.server.worker_name}: it is {self.status.value}, "
                f"and must be {' or '.join(allowed)}"
            )

    # -- life ---------------------------------------------------------------------------------------------------

    def run(self, *, start: bool = True) -> None:
        """Live until done, failed or asked to exit; raises what `_poll` raised.

        With `start=False` a worker that is not started waits for its `configure` and `start` commands.
        """
        self.server.start()
        self.loop_thread = threading.get_ident()
        started = False
        try:
            if start:
                if self.status is WorkerStatus.CREATED:
                    self.configure()
                if self.status is WorkerStatus.READY:
                    self.start()
                    started = True
            while not self.status.is_final and self._exit_asked is None:
                self._turn()
                started = started or self.status in (WorkerStatus.RUNNING, WorkerStatus.PAUSED)
        except BaseException:
            self.status = WorkerStatus.FAILED
            raise
        finally:
            self._leave(started)

    def _turn(self) -> None:
        if self.status is not WorkerStatus.RUNNING:
            self.server.handle_requests(timeout_s=0.5)
            return
        self._answer(_REQUESTS_BETWEEN_POLLS)
        if self.status is not WorkerStatus.RUNNING or self._exit_asked is not None:
            return
        worked = self._poll()
        self._num_polls += 1
        self._last_poll = time.monotonic()
        if self.on_work is not None:
            self._look_for_work()
        if worked == 0 and self.status is WorkerStatus.RUNNING:
            self._answer(None, timeout_s=self.idle_s)

    def _answer(self, max_count: int | None, *, timeout_s: float = 0.0) -> None:
        if self.on_work is None:
            self.server.handle_requests(max_count, timeout_s=timeout_s)
        else:  # one by one: the second may end the process, and then the first must have been reported
            self.server.handle_requests(1, timeout_s=timeout_s)
            self._look_for_work()

    def _look_for_work(self) -> None:
        if self.has_worked(is_busy=False):
            self.note_work()

    def _leave(self, started: bool) -> None:
        if not self.status.is_final:
            self.status = WorkerStatus.EXITED
            self.exit_reason = self._exit_asked or ""
        try:
            if started and self._drain:
                self._exit()
        finally:
            self.server.close()


class ServiceWorker(Worker):
    """Hosts an object of a plain class: its `@register`ed methods are served.

    If it has a `run()` method, that runs in a thread of its own; when it returns, the worker is done, and when it
    raises, the worker fails. `stop()` is called to end a `run` that is still going, and `close()` at the very end;
    both are optional.
    """

    idle_s = 0.5

    def __init__(self, server: WorkerServer, cls: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__(server)
        self._make: Callable[[], Any] = lambda: cls(*args, **kwargs)
        self.service: Any = None
        self._thread: threading.Thread | None = None
        self._thread_error: BaseException | None = None
        self._thread_ended = False

    def _configure(self, config: Mapping[str, Any]) -> None:
        if self.service is None:
            self.service = self._make()
            self.server.register_service(self.service)

    def _start(self) -> None:
        run = getattr(self.service, "run", None)
        if callable(run) and "run" not in commands_of(self.service):
            self._thread = threading.Thread(target=self._run_service, args=(run,), daemon=True, name="run")
            self._thread.start()

    def _run_service(self, run: Any) -> None:
        try:
            run()
        except BaseException as error:
            self._thread_error = error
        finally:
            self._thread_ended = True
            self.server.wake()

    def has_worked(self, *, is_busy: bool) -> bool:
        """It has answered a call, or its `run` has lasted a while: what that has done cannot be seen from here."""
        lasted = self._thread is not None and time.monotonic() - self._born > _RUN_LASTS_S
        return lasted or self.server.num_run > int(is_busy)

    def _poll(self) -> int:
        if self._thread_ended:
            if self._thread_error is not None:
                raise self._thread_error
            self.finish()
        return 0

    def _stats(self) -> Mapping[str, Any]:
        stats = getattr(self.service, "stats", None)
        return dict(stats()) if callable(stats) and "stats" not in commands_of(self.service) else {}

    def _exit(self) -> None:
        thread = self._thread
        if thread is not None and thread.is_alive() and callable(getattr(self.service, "stop", None)):
            self.service.stop()
            thread.join(1.0)
        if callable(getattr(self.service, "close", None)):
            self.service.close()


def make_worker(server: WorkerServer, cls: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Worker:
    """A worker of `cls`: itself, if it is a `Worker`, or one that hosts an object of it."""
    if issubclass(cls, Worker):
        return cls(server, *args, **kwargs)
    return ServiceWorker(server, cls, args, kwargs)
