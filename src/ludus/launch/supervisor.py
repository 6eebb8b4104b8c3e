"""Supervision: who is up, who is started again and when, and how a run ends. Knows nothing of processes or Ray.

    supervisor = Supervisor(program.nodes, start)     # start(worker, ended) → Incarnation: the engine's part
    supervisor.start()                                # a thread of its own, or in tests: supervisor.step()
    ...
    supervisor.request_stop(grace_s=5.0, why="asked")
    supervisor.ended.wait()

    running ──stop, or one worker past its limit──▶ draining ──all ended, or killed after the grace──▶ ended
       └──────────────────── every worker has ended by itself ───────────────────────────────────────▲

A worker that is hung (`vitals.py`) is killed and started again. One that never gets to work is given up on after three
deaths, one that has worked when it is past its `RestartPolicy`; that ends the run, unless the worker is expendable and
another replica of its node is up. Kills from outside and outages use up no restarts.

Draining asks the workers that have work of their own first and those that only answer calls when these are gone, so
that a call on its way is still answered.
"""

from __future__ import annotations

import collections
import enum
import errno
import logging
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from ludus import clock as clocks
from ludus import core, errors, spelling
from ludus.launch import vitals as vital_signs
from ludus.program import program as programs

__all__ = ["End", "Event", "EventKind", "Incarnation", "Phase", "Start", "Supervisor", "WorkerRecord", "may_pass"]

_LOG = logging.getLogger(__name__)
_DEFAULT_GRACE_S = 5.0
_MAX_BARREN_LIVES = 3  # of a worker that has never got to work
_UNREPLACED_S = 5.0  # how much longer a worker may hang whose death would end the run
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EAGAIN, errno.ENOMEM})
_RESTART_GRACE_S = 5.0  # that a worker has to leave by itself when it is to be started again
_MAX_KILL_S = 5.0  # what a killed worker may take to be gone before the run ends without it


@dataclass(frozen=True, kw_only=True)
class End:
    """How one incarnation of a worker ended: `DONE`, `EXITED` because it was asked, or `FAILED`.

    `is_external`: it failed by something outside of it that may pass: a kill, a full disk, an absent name service.
    `result`: what a worker that is done leaves to its driver.
    """

    status: core.WorkerStatus
    reason: str
    traceback: str = ""
    last_lines: tuple[str, ...] = ()
    is_external: bool = False
    result: Any = None

    def describe(self) -> str:
        parts = [self.reason]
        if self.traceback:
            parts.append(self.traceback.rstrip())
        if self.last_lines:
            parts.append("Its last log lines:\n" + "\n".join(f"    {line}" for line in self.last_lines))
        return "\n".join(parts)


def may_pass(error: BaseException) -> bool:
    """Whether it comes from outside of the worker: no name service, no space, no more processes or descriptors."""
    return isinstance(error, errors.DiscoveryError) or (isinstance(error, OSError) and error.errno in _PASSING)


class Incarnation(Protocol):
    """One life of a worker, as the engine holds it. None of these block."""

    @property
    def pid(self) -> int | None: ...

    @property
    def host(self) -> str | None: ...

    def ask_exit(self) -> None:
        """Ask it to finish what it is doing and go."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def vitals(self) -> vital_signs.Vitals | None:
        """What can be seen of it now; None if nothing can."""
        ...


Start = Callable[[str, Callable[[End], None]], Incarnation]
"""`start(worker, ended)` starts a worker and returns; `ended` is called once, from any thread, when it has ended."""


class Phase(enum.StrEnum):
    """Where a worker is, as its driver sees it."""

    WAITING = "waiting"  # for its start, or its next one
    RUNNING = "running"
    DONE = "done"
    EXITED = "exited"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self not in (Phase.WAITING, Phase.RUNNING)


class EventKind(enum.StrEnum):
    STARTED = "started"
    CRASHED = "crashed"
    ENDED = "ended"
    HUNG = "hung"
    GAVE_UP = "gave-up"


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something a driver should know at once. `text` is for people; `brief`, if any, is what is logged instead."""

    kind: EventKind
    worker: str
    text: str
    end: End | None = None
    brief: str = ""
    is_logged: bool = True


@dataclass(frozen=True, kw_only=True)
class WorkerRecord:
    """One worker as its driver sees it. `restarts` counts all; `last_end` is how its last incarnation ended.

    Of its last heartbeat: `activity` is what it does (`busy: update, 4.1 s`; empty before the first), `busy_s` for how
    long it has been in that, `report` the numbers that came with it. `silent_s`: how long ago it came.
    """

    name: str
    status: Phase
    pid: int | None
    host: str | None
    restarts: int
    last_end: End | None
    activity: str = ""
    busy_s: float = 0.0
    report: Mapping[str, float] = field(default_factory=dict)
    silent_s: float = 0.0


class _Crash(NamedTuple):
    at: float
    is_external: bool


@dataclass(kw_only=True)
class _Life:
    """A worker through all its incarnations."""

    name: str
    node: str
    policy: programs.RestartPolicy
    has_end: bool
    is_expendable: bool
    phase: Phase = Phase.WAITING
    due: float = 0.0  # when to start, while it waits
    starts: int = 0
    incarnation: Incarnation | None = None
    asked: bool = False
    leave_by: float | None = None  # it is to be started again: until then it may leave by itself
    crashes: collections.deque[_Crash] = field(default_factory=collections.deque)
    last_end: End | None = None
    vitals: vital_signs.Vitals | None = None  # of the present incarnation
    beat_at: float = 0.0  # when the last heartbeat was seen
    detector: vital_signs.HangDetector = field(default_factory=vital_signs.HangDetector)
    hung: str = ""  # why the present incarnation was killed
    hung_since: float | None = None
    has_ever_worked: bool = False
    num_barren: int = 0  # lives in a row that ended before a first unit of work

    @property
    def has_worked(self) -> bool | None:
        """Whether the present incarnation has; not before its first beat. None if its engine sees nothing of it."""
        if self.vitals is None:
            return None
        return self.vitals.beat is not None and self.vitals.beat.has_worked

    @property
    def is_hopeful(self) -> bool:
        """Whether it is up or will be, and there is no sign that it never gets to work, either."""
        return not self.phase.is_final and (self.has_ever_worked or bool(self.has_worked) or not self.num_barren)

    @property
    def max_restarts(self) -> float:
        return math.inf if self.policy.max_restarts is None else self.policy.max_restarts

    def num_crashes(self, now: float) -> int:
        """How often it crashed within the window of its policy."""
        while self.crashes and self.crashes[0].at < now - self.policy.window_s:
            self.crashes.popleft()
        return len(self.crashes)

    def is_past_limit(self, now: float) -> bool:
        """Whether its crashes use up its restarts. Those from outside do only if it has none."""
        num = self.num_crashes(now)
        if self.max_restarts:
            num -= sum(crash.is_external for crash in self.crashes)
        return num > self.max_restarts

    def record(self, at: float) -> WorkerRecord:
        now = self.incarnation
        beat = self.vitals.beat if now is not None and self.vitals is not None else None
        return WorkerRecord(
            name=self.name,
            status=self.phase,
            pid=now.pid if now else None,
            host=now.host if now else None,
            restarts=max(0, self.starts - 1),
            last_end=self.last_end,
            activity=beat.describe() if beat else "",
            busy_s=beat.busy_s if beat else 0.0,
            report=beat.report if beat else {},
            silent_s=max(0.0, at - self.beat_at) if beat else 0.0,
        )


class _Stage(enum.Enum):
    RUNNING = enum.auto()
    DRAINING = enum.auto()
    KILLING = enum.auto()
    ENDED = enum.auto()


class Supervisor:
    """Starts workers, starts them again, and ends the run. Thread-safe; all decisions are taken in `step`."""

    def __init__(
        self,
        nodes: Sequence[programs.Node],
        start: Start,
        *,
        on_event: Callable[[Event], None] | None = None,
        clock: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self.settled = threading.Event()  # all workers with work of their own have ended it, or the run has ended
        self.ended = threading.Event()  # nothing runs any more
        self.failure: errors.ProgramError | None = None  # why it ended, if it ended badly
        self._start_worker = start
        self._on_event = on_event
        self._clock = clock
        self._lives = {
            worker: _Life(
                name=worker,
                node=node.name,
                policy=node.restarts,
                has_end=node.has_end,
                is_expendable=node.is_expendable,
                due=clock.now(),
            )
            for node in nodes
            for worker in node.worker_names
        }
        self._stage = _Stage.RUNNING
        self._deadline = 0.0
        self._half_time = 0.0
        self._wake = threading.Event()
        self._ends: collections.deque[tuple[str, int, End]] = collections.deque()
        self._events: list[Event] = []
        self._num_alike: collections.Counter[tuple[str, str]] = collections.Counter()  # crashes by node and reason
        self._is_watching = False  # some worker has vitals to look at
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="ludus-supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is an `on_event` callback, which must not wait for the supervisor."""
        return threading.current_thread() is self._thread

    def records(self) -> list[WorkerRecord]:
        with self._lock:
            now = self._clock.now()
            return [life.record(now) for life in self._lives.values()]

    def request_stop(self, *, grace_s: float, why: str) -> None:
        """Start no more workers, ask all to exit, kill those left after `grace_s`. A shorter grace overrules."""
        with self._lock:
            self._begin_draining(grace_s, why)
        self._wake.set()

    def request_restart(self, worker: str) -> None:
        """Ask a worker to exit, kill it if it is still there after a grace, and start it again. Uses up no restarts.

        Raises `ProgramError` for one that is not up, or that may not be started again.
        """
        with self._lock:
            life = self._lives.get(worker)
            if life is None:
                raise errors.ProgramError(f"there is no worker {worker!r}. {spelling.nearest(worker, self._lives)}")
            if self._stage is not _Stage.RUNNING or life.phase is not Phase.RUNNING or life.incarnation is None:
                what = life.phase.value if self._stage is _Stage.RUNNING else "in a run that is ending"
                raise errors.ProgramError(f"{worker} cannot be restarted: it is {what}.")
            if life.max_restarts == 0:
                raise errors.ProgramError(
                    f"{worker} cannot be restarted: its RestartPolicy has max_restarts=0, so the run ends with it."
                )
            if life.leave_by is None:
                life.leave_by = self._clock.now() + _RESTART_GRACE_S
                life.incarnation.ask_exit()
        self._wake.set()

    def step(self) -> float | None:
        """Do what has come up. Returns the seconds until something else will, or None if only an event can bring it."""
        with self._lock:
            self._take_ends()
            if self._stage is _Stage.RUNNING:
                self._start_due()
                self._look_at_all()
                self._hurry_restarts()
            if self._stage is _Stage.DRAINING:
                self._drain()
            if self._stage is _Stage.KILLING and self._clock.now() >= self._deadline:
                self._leave_behind()
            self._note_progress()
            seconds = self._seconds_to_next()
            events, self._events = self._events, []
        for event in events:
            self._tell(event)
        if self._stage is _Stage.ENDED:
            self.ended.set()
            self.settled.set()
        return seconds

    def _run(self) -> None:
        while not self.ended.is_set():
            self._wake.clear()
            seconds = self.step()
            if not self.ended.is_set():
                self._clock.wait(self._wake, 3600.0 if seconds is None else seconds)

    # ---- starts and ends

    def _start_due(self) -> None:
        now = self._clock.now()
        for life in self._lives.values():
            if life.phase is Phase.WAITING and life.due <= now:
                self._begin(life)

    def _begin(self, life: _Life) -> None:
        life.starts += 1
        number = life.starts
        life.phase = Phase.RUNNING
        life.vitals, life.detector, life.hung, life.hung_since = None, vital_signs.HangDetector(), "", None

        def ended(end: End) -> None:
            self._ends.append((life.name, number, end))
            self._wake.set()

        try:
            life.incarnation = self._start_worker(life.name, ended)
        except Exception as error:
            life.vitals = vital_signs.Vitals(beat=None)
            reason = f"it could not be started: {error}"
            ended(End(status=core.WorkerStatus.FAILED, reason=reason, is_external=may_pass(error)))
        else:
            again = f" again (start {number})" if number > 1 else ""
            where = f", process {life.incarnation.pid}" if life.incarnation.pid is not None else ""
            self._note(EventKind.STARTED, life.name, f"started{again}{where}")

    def _take_ends(self) -> None:
        while self._ends:
            worker, number, end = self._ends.popleft()
            life = self._lives[worker]
            if number == life.starts and life.phase is Phase.RUNNING:
                self._take_end(life, end)

    def _hurry_restarts(self) -> None:
        """Kill those that should have left by now; a second time is harmless."""
        now = self._clock.now()
        for life in self._lives.values():
            if life.leave_by is not None and life.leave_by <= now and life.incarnation is not None:
                life.leave_by = now + _RESTART_GRACE_S
                life.incarnation.kill()

    # ---- who is hung

    def _look_at_all(self) -> None:
        now = self._clock.now()
        self._is_watching = False
        for life in self._lives.values():
            if life.phase is not Phase.RUNNING or life.incarnation is None:
                continue
            before = life.vitals
            life.vitals = self._look(life.incarnation) or life.vitals
            if life.vitals is not None:
                if before is None or before.beat != life.vitals.beat:
                    life.beat_at = now
                self._is_watching = True
                self._judge(life, life.detector.look(life.vitals, now), now)

    def _look(self, incarnation: Incarnation) -> vital_signs.Vitals | None:
        try:
            return incarnation.vitals()
        except Exception:  # supervision must not end with one look
            _LOG.exception("a worker could not be looked at")
            return None

    def _judge(self, life: _Life, why: str, now: float) -> None:
        if not why:
            life.hung_since = None
            return
        if life.hung:
            return  # killed already
        if life.hung_since is None:
            life.hung_since = now
            if life.policy.max_restarts == 0:
                self._note(
                    EventKind.HUNG,
                    life.name,
                    f"is hung: {why}. The run cannot go on without it and waits; it is ended in {_UNREPLACED_S:g} s. "
                    f"To let it go on: kill -CONT {life.incarnation.pid if life.incarnation else ''}",
                )
        if life.policy.max_restarts == 0 and now - life.hung_since < _UNREPLACED_S:
            return
        life.hung = f"it was hung: {why}; it was killed"
        assert life.incarnation is not None
        life.incarnation.kill()

    # ---- ends and crashes

    def _take_end(self, life: _Life, end: End) -> None:
        if life.incarnation is not None:
            life.vitals = self._look(life.incarnation) or life.vitals  # its last words
        if life.hung and end.status is core.WorkerStatus.FAILED:
            end = replace(end, reason=life.hung, is_external=True)
        life.incarnation = None
        life.last_end = end
        is_restart, life.leave_by = life.leave_by is not None, None
        if is_restart and self._stage is _Stage.RUNNING and end.status is not core.WorkerStatus.DONE:
            life.has_ever_worked |= bool(life.has_worked)
            life.phase, life.due = Phase.WAITING, self._clock.now()
            self._note(EventKind.ENDED, life.name, "was asked to exit and is started again", end)
        elif end.status is not core.WorkerStatus.FAILED:
            life.phase = Phase(end.status.value)
            self._note(EventKind.ENDED, life.name, f"{end.status}: {end.reason}", end)
        elif self._stage is _Stage.KILLING:
            life.phase = Phase.EXITED
            self._note(EventKind.ENDED, life.name, "was killed", end)
        elif self._stage is not _Stage.RUNNING:
            life.phase = Phase.FAILED
            self._note_crash(life, end, "The run was stopping.")
        else:
            self._take_crash(life, end)

    def _take_crash(self, life: _Life, end: End) -> None:
        now, policy = self._clock.now(), life.policy
        life.crashes.append(_Crash(now, end.is_external))
        if life.has_worked:
            life.has_ever_worked, life.num_barren = True, 0
        elif life.has_worked is False and not end.is_external:
            life.num_barren += 1
        num, limit = life.num_crashes(now), life.max_restarts
        if life.num_barren > (limit if life.has_ever_worked else min(_MAX_BARREN_LIVES - 1, limit)):
            self._give_up(life, end, f"crashed {_times(life.num_barren)} before it did any work")
            return
        if life.is_past_limit(now) and not (limit and (end.is_external or self._has_peer_at_work(life, now))):
            what = f"crashed {_times(num, policy.window_s)}"
            self._give_up(life, end, f"{what} and its RestartPolicy allows max_restarts={policy.max_restarts}")
            return
        # What is wrong outside of it may last.
        delay = policy.max_backoff_s if end.is_external and num > 2 else policy.delay_s(num)
        life.phase, life.due = Phase.WAITING, now + delay
        self._note_crash(life, end, f"It is started again in {delay:.2g} s ({_restarts(num, policy, end)}).")

    def _note_crash(self, life: _Life, end: End, sequel: str) -> None:
        """Crashes that are alike are logged in full once, then in one line, and less and less often."""
        key = (life.node, re.sub(r"\d+", "#", end.reason))
        self._num_alike[key] += 1
        num = self._num_alike[key]
        first_line = end.reason.splitlines()[0] if end.reason else "without a reason"
        brief = f"crashed as before ({num} times so far in {life.node!r}). {sequel}" if num > 1 else ""
        is_barren = life.has_worked is False and not life.has_ever_worked and not end.is_external
        if num == 1 and is_barren and self._stage is _Stage.RUNNING:  # reported in full if given up on
            brief = f"crashed: {first_line} (before it did any work). {sequel}"
        self._events.append(
            Event(
                kind=EventKind.CRASHED,
                worker=life.name,
                text=f"crashed: {end.describe()}\n{sequel}",
                end=end,
                brief=brief,
                is_logged=num & (num - 1) == 0,
            )
        )

    def _has_peer_at_work(self, life: _Life, now: float) -> bool:
        """Whether another replica of its node does its work until then, and is not itself in a crash loop."""
        return life.is_expendable and any(
            peer.phase is Phase.RUNNING and peer.is_hopeful and not peer.is_past_limit(now)
            for peer in self._lives.values()
            if peer.node == life.node and peer is not life
        )

    def _give_up(self, life: _Life, end: End, what: str) -> None:
        life.phase = Phase.FAILED
        peers = [peer for peer in self._lives.values() if peer.node == life.node and peer.is_hopeful]
        if life.is_expendable and peers:
            left = ", ".join(peer.name for peer in peers)
            text = f"{what} and is given up on; the run goes on with {left}. The last time: {end.describe()}"
            self._note(EventKind.GAVE_UP, life.name, text, end)
            return
        self.failure = errors.ProgramError(
            f"the run was ended because worker {life.name!r} {what}. The last time: {end.describe()}"
        )
        # What it died of is in the error, which somebody will show: once is enough.
        brief = f"{what}: the run ends"
        self._events.append(
            Event(kind=EventKind.GAVE_UP, worker=life.name, text=str(self.failure), end=end, brief=brief)
        )
        self._begin_draining(_DEFAULT_GRACE_S, f"{life.name} kept crashing")

    # ---- the end of the run

    def _begin_draining(self, grace_s: float, why: str) -> None:
        now = self._clock.now()
        if self._stage is _Stage.RUNNING:
            _LOG.info("draining: %s", why)
            self._stage, self._deadline = _Stage.DRAINING, now + grace_s
            for life in self._lives.values():
                if life.phase is Phase.WAITING:
                    life.phase = Phase.EXITED
        elif self._stage is _Stage.DRAINING:
            self._deadline = min(self._deadline, now + grace_s)
        self._half_time = now + (self._deadline - now) / 2

    def _drain(self) -> None:
        up = [life for life in self._lives.values() if life.phase is Phase.RUNNING]
        busy = [life for life in up if life.has_end]
        now = self._clock.now()
        for life in up if not busy or now >= self._half_time else busy:
            if not life.asked and life.incarnation is not None:
                life.asked = True
                life.incarnation.ask_exit()
        if up and now >= self._deadline:
            _LOG.warning("killing %s: still there at the end of the grace", ", ".join(life.name for life in up))
            self._stage, self._deadline = _Stage.KILLING, now + _MAX_KILL_S
            for life in up:
                if life.incarnation is not None:
                    life.incarnation.kill()

    def _leave_behind(self) -> None:
        for life in self._lives.values():
            if life.phase is Phase.RUNNING:
                where = life.incarnation and f"process {life.incarnation.pid} on {life.incarnation.host}"
                _LOG.error("%s is still there %g s after it was killed; leaving %s", life.name, _MAX_KILL_S, where)
                life.phase = Phase.FAILED

    def _note_progress(self) -> None:
        lives = self._lives.values()
        with_end = [life for life in lives if life.has_end]
        if self._stage is _Stage.RUNNING and with_end and all(life.phase.is_final for life in with_end):
            self.settled.set()
        if all(life.phase.is_final for life in lives):
            self._stage = _Stage.ENDED

    def _seconds_to_next(self) -> float | None:
        match self._stage:
            case _Stage.RUNNING:
                due = [life.due for life in self._lives.values() if life.phase is Phase.WAITING]
                due += [life.leave_by for life in self._lives.values() if life.leave_by is not None]
                if self._is_watching:
                    due.append(self._clock.now() + vital_signs.LOOK_EVERY_S)
            case _Stage.DRAINING:
                due = [self._deadline, *([self._half_time] if self._half_time > self._clock.now() else [])]
            case _Stage.KILLING:
                due = [self._deadline]
            case _Stage.ENDED:
                due = []
        return max(0.0, min(due) - self._clock.now()) if due else None

    # ---- telling

    def _note(self, kind: EventKind, worker: str, text: str, end: End | None = None) -> None:
        self._events.append(Event(kind=kind, worker=worker, text=text, end=end))

    def _tell(self, event: Event) -> None:
        quiet = (EventKind.STARTED, EventKind.ENDED)
        if event.is_logged:
            level = logging.INFO if event.kind in quiet else logging.ERROR
            _LOG.log(level, "%s %s", event.worker, event.brief or event.text)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                _LOG.exception("on_event raised at %s of %s", event.kind, event.worker)


def _times(num: int, window_s: float | None = None) -> str:
    if num == 1:
        return "once"
    return f"{num} times" if window_s is None else f"{num} times within {window_s:g} s"


def _restarts(num: int, policy: programs.RestartPolicy, end: End) -> str:
    if policy.max_restarts is None or end.is_external:
        return f"restart {num} within {policy.window_s:g} s"
    return f"restart {num} of {policy.max_restarts} allowed within {policy.window_s:g} s"
