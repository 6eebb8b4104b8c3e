"""The heartbeat: a thread of a worker's process that reports what the worker's loop is doing, and since when.

    heartbeat = Heartbeat(send, max_busy_s=300.0, on_hung=end_the_process)
    heartbeat.start()                 # beats from here on: the process runs
    heartbeat.attach(worker)          # from here on the beats describe its loop

A beat proves that the process runs, and no more: what the loop does is in `doing` and `busy_s`. A loop that is in one
call or poll for long is busy, not hung, unless it exceeds a limit that was set for it. The loop pays nothing for this:
the thread samples counters that exist anyway, and the loop's stack.

While the loop is held up for more than `HELD_UP_S`, the name service says so, and callers prefer other replicas.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType

import msgspec

from ludus import errors
from ludus.clock import SYSTEM, Clock
from ludus.core import WorkerStatus
from ludus.rpc import batching
from ludus.rpc.server import RpcServer
from ludus.workers import worker as workers
from ludus.workers.server import WorkerServer

__all__ = ["BEAT_EVERY_S", "HELD_UP_S", "Beat", "Heartbeat", "decode_beat", "encode_beat"]

_LOG = logging.getLogger(__name__)
BEAT_EVERY_S = 0.25
HELD_UP_S = 2.0
_WARMING_UP = 10.0  # so many times longer than usual may it take to load, to compile, to run the first time
_SIGN_RETRY_S = 1.0
_STARTING = "start"


@dataclass(frozen=True, kw_only=True)
class Beat:
    """`doing` is empty while the loop waits for work. `has_worked`: this process has completed a unit of work.

    `report`: numbers that the worker wants its driver to have even while its loop is busy.
    """

    number: int
    status: WorkerStatus
    doing: str = ""
    busy_s: float = 0.0
    has_worked: bool = False
    report: Mapping[str, float] = field(default_factory=dict)

    def describe(self) -> str:
        """For a status line: `busy: update, 4.1 s`, or the worker's status."""
        return f"busy: {self.doing}, {self.busy_s:.1f} s" if self.doing else self.status.value


def encode_beat(beat: Beat) -> bytes:
    """One line."""
    return msgspec.json.encode(beat) + b"\n"


def decode_beat(line: bytes) -> Beat:
    """The inverse of `encode_beat`. Raises `ValueError` for anything else."""
    try:
        return msgspec.json.decode(line, type=Beat)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a beat: {line[:80]!r} ({error})") from None


class Heartbeat:
    """Calls `send(beat)` every `BEAT_EVERY_S`, from a thread of its own.

    `on_hung(reason, stack)` is called once, when the loop of a running worker has been in one call or poll for longer
    than `max_busy_s` without any sign of progress; ten times as long while it warms up.
    """

    def __init__(
        self,
        send: Callable[[Beat], None],
        *,
        max_busy_s: float | None = None,
        on_hung: Callable[[str, str], None] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._send = send
        self._max_busy_s = max_busy_s
        self._on_hung = on_hung
        self._clock = clock
        self._worker: workers.Worker | None = None
        self._number = 0
        self._has_worked = False
        self._mark: object = None
        self._since = clock.now()
        self._is_reported = False
        self._beating = threading.Lock()
        self._sign = _Sign()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ludus-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def attach(self, worker: workers.Worker) -> None:
        """From now on beats describe the loop of `worker`, and its first unit of work is reported at once."""
        self._worker = worker
        worker.on_work = self._report_work

    def close(self) -> None:
        """No beats after this. May be called twice."""
        self._stopped.set()
        self._sign.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _report_work(self) -> None:
        """A beat for the first unit of work, by the thread that has completed it."""
        worker = self._worker
        assert worker is not None

        def look() -> Beat:
            self._number += 1
            self._has_worked = True
            return Beat(number=self._number, status=worker.status, has_worked=True, report=worker.report())

        self._beat(look)

    def look(self) -> Beat:
        """Sample the loop: the next beat."""
        self._number += 1
        worker, now = self._worker, self._clock.now()
        if worker is None:
            return Beat(number=self._number, status=WorkerStatus.CREATED, doing=_STARTING, busy_s=now - self._since)
        mark = worker.progress_mark()
        frame = sys._current_frames().get(worker.loop_thread or 0)
        doing = worker.activity(_name_of(frame)) if worker.loop_thread else _STARTING
        if mark != self._mark or not doing:  # it has moved since the last sample
            self._mark, self._since, self._is_reported = mark, now, False
        self._has_worked = self._has_worked or worker.has_worked(is_busy=bool(doing))
        beat = Beat(
            number=self._number,
            status=worker.status,
            doing=doing,
            busy_s=now - self._since,
            has_worked=self._has_worked,
            report=worker.report(),
        )
        if worker.status is WorkerStatus.RUNNING and doing:
            self._check(worker, beat, frame)
        return beat

    def _check(self, worker: workers.Worker, beat: Beat, frame: FrameType | None) -> None:
        if self._max_busy_s is None or self._is_reported or self._on_hung is None:
            return
        limit_s = self._max_busy_s
        if beat.busy_s > limit_s and worker.is_warming_up(beat.doing):
            limit_s *= _WARMING_UP
        if beat.busy_s <= limit_s:
            return
        self._is_reported = True
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        self._on_hung(
            f"it was hung: its loop was in {beat.doing!r} for {beat.busy_s:.0f} s without any progress, and "
            f"max_busy_s={limit_s:g}",
            stack,
        )

    def _run(self) -> None:
        while not self._stopped.is_set():
            beat = self._beat(self.look)
            worker = self._worker
            if beat is not None and worker is not None and worker.loop_thread is not None:
                self._sign.show(worker.server, beat.doing if beat.busy_s > HELD_UP_S else "")
            self._clock.wait(self._stopped, BEAT_EVERY_S)

    def _beat(self, look: Callable[[], Beat]) -> Beat | None:
        try:
            with self._beating:
                beat = look()
                self._send(beat)
                return beat
        except Exception:  # without beats a healthy worker would look hung; the next one may work
            _LOG.exception("a heartbeat failed; the next one is tried in %g s", BEAT_EVERY_S)
            return None


class _Sign:
    """Says in the name service that a loop is held up. In a thread of its own: beats must not wait for that service."""

    def __init__(self) -> None:
        self._wanted = ""
        self._is_closed = False
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, server: WorkerServer, doing: str) -> None:
        """Never waits."""
        if bool(doing) == bool(self._wanted):
            return
        self._wanted = doing
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(server,), name="ludus-held-up", daemon=True)
            self._thread.start()

    def _run(self, server: WorkerServer) -> None:
        shown = ""
        while not self._is_closed or shown:
            self._changed.wait(None if bool(shown) == bool(self._wanted) else _SIGN_RETRY_S)
            self._changed.clear()
            wanted = self._wanted
            if bool(wanted) == bool(shown):
                continue
            try:
                server.show_held_up(wanted)
                shown = wanted
            except errors.DiscoveryError as error:
                _LOG.debug("callers cannot be notified that the loop is held up, or turns again: %s", error)
                if self._is_closed:
                    return  # its lease lapses

    def close(self) -> None:
        """Take it down. Never waits."""
        self._wanted = ""
        self._is_closed = True
        self._changed.set()


def _name_of(frame: FrameType | None) -> str:
    """The command or method that the loop is in; empty while it waits for requests."""
    inner = ""
    while frame is not None:
        if frame.f_code in _CALLERS:
            return "" if inner == "handle_requests" else inner.lstrip("_")
        inner = frame.f_code.co_name
        frame = frame.f_back
    return ""


_CALLERS = frozenset(
    method.__code__
    for method in (
        RpcServer._run_one,
        RpcServer._on_notify,
        batching.run_stacked,
        workers.Worker._turn,
        workers.Worker._answer,
        workers.Worker.run,
    )
)
"""Whatever one of these has called is what the loop is doing."""
