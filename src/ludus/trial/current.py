"""The trial that this process belongs to: opened once, found by all that is named in it, closed with the process.

    trial = open("./pong", "ppo-1")                        # the folder ./pong/ppo-1
    current() is trial                                     # from anywhere in the process

In a worker it is there by itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ludus import errors
from ludus import secret as secrets
from ludus.discovery import names as naming
from ludus.program import lock
from ludus.program.folder import TrialFolder
from ludus.trial.trial import EXPERIMENT, Trial
from ludus.workers import context

if TYPE_CHECKING:
    from ludus.trial.driver import Driver
    from ludus.trial.metrics import TrialMetrics

__all__ = ["EXPERIMENT", "Trial", "current", "open", "take"]

_ENGINES = ("local", "ray")

_current: Trial | None = None
_taken: Trial | None = None  # of a run in this process, for as long as nothing else was opened
_parents: Trial | None = None  # that of the process which this one was forked from
_init_lock = threading.RLock()


def open(
    project: str | Path = "trials",
    trial: str | None = None,
    *,
    engine: str = "local",
    secret: str | None = None,
    join: bool = True,
) -> Trial:
    """Begin, take up or join the trial in the folder `project/trial`; without a name, begin one named by the time.

    Nobody drives it: this process does from now on. What it left when it last ran, versions of models above all, is
    there. Somebody drives it: this process joins or, without `join`, raises `ProgramError`. Called again with the same
    arguments, it is the same trial.

    engine: what runs its workers, `local` or `ray`. secret: what its traffic is encrypted with beyond this machine;
    it may come from the environment (`LUDUS_TRIAL_SECRET`, or `LUDUS_TRIAL_SECRET_FILE` with the name of a file).
    """
    global _current
    if engine not in _ENGINES:
        raise errors.ConfigError(f"engine={engine!r}: there is no such engine. {naming.nearest(engine, _ENGINES)}")
    if trial is not None and (trial in ("", "..") or trial != Path(trial).name):
        raise errors.ConfigError(f"{trial!r} cannot name a trial: it must be one folder's name, without '/'.")
    with _init_lock:
        if _current is None and _taken is not None:
            is_same = trial is not None and Path(project).absolute() / trial == _taken.folder
            if is_same or _taken.has_started:
                raise errors.WorkerError(
                    f"this process trains in the trial {_taken.folder}, and belongs to one trial at a time. What is "
                    "named in it can be used without ludus.init."
                )
        if _current is None:
            _current = _adopt()
            if _current is not None and trial not in (None, _current.folder.name):
                raise errors.WorkerError(
                    f"this process is a worker of trial {_current.folder.name!r} and cannot be of {trial!r} as well"
                )
        elif not _is_same(_current, Path(project), trial, engine):
            raise errors.WorkerError(
                f"this process belongs to the trial {_current.folder} already, and to one at a time. Close that first: "
                "ludus.init(...) returned it, and it has close()."
            )
        if _current is None:
            from ludus.trial import entering  # brings the name service and the engines

            secret = secrets.find("trial secret", secret)
            where = Path(project).absolute()
            _current = _remember(entering.enter(where, trial, engine=engine, secret=secret, join=join))
        return _current


def take(folder: TrialFolder, *, engine: str, metrics: TrialMetrics, has_workers: bool) -> Trial:
    """Drive a trial for a training run: only its lock is taken; names, and all by which others join, begin when used.

    The caller closes it. `current` gives it, unless this process belongs to a trial already. has_workers: the run will
    start some, so those who join wait until then; otherwise they are refused, and trial.json is left to the caller.
    Raises `ProgramError` at once if anybody drives it.
    """
    global _taken
    resources = contextlib.ExitStack()
    phase = lock.Phase.STARTING if has_workers else lock.Phase.DRIVING
    drive = resources.enter_context(lock.driving(folder.path, phase=phase))

    def start() -> tuple[context.Context, Driver]:
        from ludus.trial import entering  # brings the name service and the engines

        is_current = _taken is made and not context.is_given()
        return entering.begin(folder, resources, engine=engine, secret=None, metrics=metrics, is_current=is_current)

    made = Trial(folder.path, engine=engine, resources=resources, drive=drive, start=start)

    def forget() -> None:
        global _taken
        with _init_lock:
            if _taken is made:
                _taken = None

    made.on_closed = forget
    with _init_lock:
        if _taken is None and _current is None and not context.is_given():
            _taken = made
    return made


def current() -> Trial:
    """The trial that this process belongs to. Raises `WorkerError` if there is none."""
    global _current
    found = _current
    if found is not None:
        return found
    with _init_lock:
        if _current is None and _taken is not None:
            return _taken
        if _current is None:
            _current = _adopt()
        if _current is None and _parents is not None:
            _parents.expect_own()
        if _current is None:
            raise errors.WorkerError(
                "this process belongs to no trial: call ludus.init(project, trial) first. Models, buffers, actors and "
                "trainers have their names in a trial."
            )
        return _current


def _adopt() -> Trial | None:
    """The trial of which this process is a worker, if it is one."""
    if not context.is_given():
        return None
    from ludus.trial import entering  # brings the name service and the engines

    found = entering.adopt()
    return None if found is None else _remember(found)


def _remember(trial: Trial) -> Trial:
    """Until it is closed, which is done at the end of the process at the latest."""

    def forget() -> None:
        global _current
        atexit.unregister(trial.close)
        with _init_lock:
            if _current is trial:
                _current = None

    trial.on_closed = forget
    atexit.register(trial.close)
    return trial


def _is_same(trial: Trial, project: Path, name: str | None, engine: str) -> bool:
    if name is None or not trial.is_driver:  # a worker may see the project by another path
        return name in (None, trial.folder.name)
    return (project.absolute() / name, engine) == (trial.folder, trial.engine)


def _leave_after_fork() -> None:
    """A forked child belongs to no trial: the threads and connections of its parent's are the parent's."""
    global _current, _parents, _taken, _init_lock
    _init_lock = threading.RLock()
    if _taken is not None:
        _taken.leave_to_parent()
        if _taken.has_started:
            context.use(None)
        if _current is None:
            _parents = _taken
        _taken = None
    if _current is not None:
        atexit.unregister(_current.close)
        _current.leave_to_parent()
        context.use(None)
        _current, _parents = None, _current


os.register_at_fork(after_in_child=_leave_after_fork)
