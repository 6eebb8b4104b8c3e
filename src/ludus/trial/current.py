"""The trial that this process belongs to: opened once, found by all that is named in it, closed with the process.

    trial = open("./pong", "ppo-1", metrics=Figures)       # the folder ./pong/ppo-1
    current() is trial                                     # from anywhere in the process

In a worker it is there by itself.
"""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

from ludus import errors
from ludus import secret as secrets
from ludus.discovery import names as naming
from ludus.trial import entering
from ludus.trial.services import EXPERIMENT
from ludus.trial.trial import Trial
from ludus.workers import context

__all__ = ["EXPERIMENT", "Trial", "current", "open"]

_ENGINES = ("local", "ray")

_current: Trial | None = None
_parents: Trial | None = None  # that of the process which this one was forked from
_init_lock = threading.RLock()


def open(
    project: str | Path = "trials",
    trial: str | None = None,
    *,
    metrics: entering.MakeMetrics,
    engine: str = "local",
    secret: str | None = None,
    join: bool = True,
) -> Trial:
    """Begin, take up or join the trial in the folder `project/trial`; without a name, begin one named by the time.

    Nobody drives it: this process does from now on. What it left when it last ran, versions of models above all, is
    there. Somebody drives it: this process joins or, without `join`, raises `ProgramError`. Called again with the same
    arguments, it is the same trial.

    metrics: writes what the trial's processes `merge`, given the folder, if this process drives. engine: what runs its
    workers, `local` or `ray`. secret: what its traffic is encrypted with beyond this machine; it may come from the
    environment (`LUDUS_TRIAL_SECRET`, or `LUDUS_TRIAL_SECRET_FILE` with the name of a file).
    """
    global _current
    if engine not in _ENGINES:
        raise errors.ConfigError(f"engine={engine!r}: there is no such engine. {naming.nearest(engine, _ENGINES)}")
    if trial is not None and (trial in ("", "..") or trial != Path(trial).name):
        raise errors.ConfigError(f"{trial!r} cannot name a trial: it must be one folder's name, without '/'.")
    with _init_lock:
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
            secret = secrets.find("trial secret", secret)
            where = Path(project).absolute()
            _current = _remember(entering.enter(where, trial, engine=engine, secret=secret, metrics=metrics, join=join))
        return _current


def current() -> Trial:
    """The trial that this process belongs to. Raises `WorkerError` if there is none."""
    global _current
    found = _current
    if found is not None:
        return found
    with _init_lock:
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
    global _current, _parents, _init_lock
    _init_lock = threading.RLock()
    if _current is not None:
        atexit.unregister(_current.close)
        _current.leave_to_parent()
        context.use(None)
        _current, _parents = None, _current


os.register_at_fork(after_in_child=_leave_after_fork)
