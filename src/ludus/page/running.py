"""What a running trial says of itself: its workers, as their driver knows them, and its gateways' sessions.

running = site.part(RunningTrials)
running.workers(folder)                            # by name; raises ProgramError if nobody drives it
running.command(folder, "pause", ["policy/0"])     # noted, for everybody who looks at the trial
running.sessions(folder)

Answers are kept for a moment, so that several browsers cost as much as one.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ludus.clock import SYSTEM, Clock
from ludus.errors import LudusError
from ludus.program.folder import TrialFolder
from ludus.trial.control import Control, control

__all__ = ["COMMANDS", "Note", "RunningTrials", "Sessions"]

COMMANDS = ("pause", "resume", "restart")
_KEPT_S = 0.5
_ANSWER_S = 2.0
_COMMAND_S = 5.0
_MOST_NOTES = 8
_MOST_TRIALS = 64
_MOST_SESSIONS = 50
_GATEWAY = re.compile(r"actor-\d+/\d+")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Note:
    """A command that was given by the page, and what came of it."""

    at: float  # of the clock
    command: str
    worker: str
    outcome: str
    is_failed: bool


@dataclass(frozen=True, kw_only=True)
class Sessions:
    """Of all gateways. `shares` of new sessions by tag, and how many each was `given`, by gateway."""

    num: int
    sessions: list[dict[str, Any]]  # each with its `worker`
    shares: dict[str, dict[str, float]]
    given: dict[str, dict[str, int]]
    problems: list[str]  # of gateways that did not answer


class RunningTrials:
    """A part of the site. Safe from any thread."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: dict[tuple[Path, str], threading.Lock] = {}
        self._answers: dict[tuple[Path, str], tuple[float, Any]] = {}
        self._notes: dict[Path, deque[Note]] = {}

    def workers(self, folder: Path) -> dict[str, dict[str, Any]]:
        """What its driver knows, by worker; of one that it does not know, nothing but that it is there or not."""
        return self._ask(folder, "workers", lambda: _workers(folder))

    def sessions(self, folder: Path) -> Sessions:
        """The newest sessions of its gateways."""
        return self._ask(folder, "sessions", lambda: _sessions(folder))

    def steps(self, folder: Path, worker: str, session: str) -> dict[str, Any] | None:
        """One session of a gateway and its last steps; `None` if it is not live there."""
        if not _GATEWAY.fullmatch(worker):
            return None
        return self._ask(folder, f"steps {worker} {session}", lambda: _steps(folder, worker, session))

    def command(self, folder: Path, command: str, workers: Sequence[str]) -> None:
        """Give one of the `COMMANDS`; what came of it is in `notes`. Raises `ProgramError` if nobody drives it."""
        with control(TrialFolder(folder)) as there:
            if command == "restart":
                outcomes = there.restart(workers, timeout_s=_COMMAND_S)
            else:
                outcomes = there.ask(command, workers, timeout_s=_COMMAND_S, known=there.known())
        now = self._clock.now()
        with self._lock:
            notes = self._notes.setdefault(folder, deque(maxlen=_MOST_NOTES))
            for outcome in outcomes:
                problem = "" if outcome.error is None else (str(outcome.error).splitlines() or ["failed"])[0]
                done = "asked to; its driver starts it again" if command == "restart" else "done"
                notes.appendleft(
                    Note(
                        at=now,
                        command=command,
                        worker=outcome.worker,
                        outcome=problem or done,
                        is_failed=outcome.error is not None,
                    )
                )
            while len(self._notes) > _MOST_TRIALS:
                del self._notes[next(iter(self._notes))]
            self._answers.pop((folder, "workers"), None)

    def notes(self, folder: Path) -> list[tuple[float, Note]]:
        """The last commands, the newest first, each with how long ago it was."""
        now = self._clock.now()
        with self._lock:
            return [(now - note.at, note) for note in self._notes.get(folder, ())]

    def _ask(self, folder: Path, what: str, ask: Callable[[], T]) -> T:
        """`ask()`, or its last answer if that is fresh. One asks at a time."""
        key = folder, what
        with self._lock:
            self._sweep()
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                known = self._answers.get(key)
            if known is None or self._clock.now() - known[0] >= _KEPT_S:
                answer: T | LudusError | OSError
                try:
                    answer = ask()
                except (LudusError, OSError) as error:  # kept, too: who asks next need not wait as long
                    answer = error
                known = self._clock.now(), answer
                with self._lock:
                    self._answers[key] = known
        if isinstance(known[1], Exception):
            raise known[1].with_traceback(None)
        found: T = known[1]
        return found

    def _sweep(self) -> None:
        """Forget what nobody has asked for lately."""
        if len(self._locks) <= _MOST_TRIALS:
            return
        now = self._clock.now()
        self._answers = {key: known for key, known in self._answers.items() if now - known[0] < _KEPT_S}
        self._locks = {key: lock for key, lock in self._locks.items() if lock.locked() or key in self._answers}


def _workers(folder: Path) -> dict[str, dict[str, Any]]:
    with control(TrialFolder(folder)) as there:
        found = there.known()
        for worker in there.there():
            found.setdefault(worker, {"status": "there", "phase": "running"})
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # a program.json that is being written
        for worker in TrialFolder(folder).load_worker_names():
            found.setdefault(worker, {"status": "not there", "phase": "ended"})
    return dict(sorted(found.items()))


def _sessions(folder: Path) -> Sessions:
    found: list[dict[str, Any]] = []
    shares, given, problems, num = {}, {}, [], 0
    with control(TrialFolder(folder)) as there:
        for worker, answer in _ask_gateways(there, "sessions", {"most": _MOST_SESSIONS}):
            if isinstance(answer, str):
                problems.append(f"{worker}: {answer}")
                continue
            num += answer["num"]
            found += [{**each, "worker": worker} for each in answer["sessions"]]
            port = worker.partition("/")[0].removeprefix("actor-")
            shares[port], given[port] = answer["shares"], answer["given"]
    found.sort(key=lambda each: each["age_s"])
    return Sessions(num=num, sessions=found[:_MOST_SESSIONS], shares=shares, given=given, problems=problems)


def _ask_gateways(there: Control, command: str, kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """What each gateway answers, or why it does not, as text."""
    gateways = [worker for worker in there.there() if _GATEWAY.fullmatch(worker)]
    outcomes = there.ask(command, gateways, kwargs, timeout_s=_ANSWER_S)
    return [
        (each.worker, each.value if each.error is None else (str(each.error).splitlines() or ["no answer"])[0])
        for each in outcomes
    ]


def _steps(folder: Path, worker: str, session: str) -> dict[str, Any] | None:
    with control(TrialFolder(folder)) as there:
        there.there()
        [outcome] = there.ask("steps", [worker], {"session": session}, timeout_s=_ANSWER_S)
    found: dict[str, Any] | None = outcome.unwrap()
    return found
