"""Which trial this process belongs to, so that `Solver()` needs no arguments inside a worker."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from ludus import discovery, errors
from ludus.core import Names

__all__ = ["Context", "at_leave", "complete", "current", "is_given", "leave", "use"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """`folder` is the trial's, where the process can see it."""

    experiment: str
    trial: str
    names: Names
    secret: str | None = None
    folder: Path | None = None


_current: Context | None = None
_at_leave = contextlib.ExitStack()


def use(context: Context | None) -> None:
    """Make `context` the one of this process; an engine does so before it builds a worker."""
    global _current
    _current = context


def at_leave(callback: Callable[[], None]) -> None:
    """Have `callback` called by `leave`: while the names are still there, unlike at the exit of the process."""
    _at_leave.callback(callback)


def leave() -> None:
    """The process's worker has ended: what was left for then is done, the last first, and there is no context."""
    _at_leave.pop_all().close()
    use(None)


def complete(experiment: str | None, trial: str | None, names: Names | None, secret: str | None) -> Context:
    """What was given, and the rest from the process's own context. Raises `WorkerError` if there is none."""
    if experiment is not None and trial is not None and names is not None:
        return Context(experiment=experiment, trial=trial, names=names, secret=secret)
    here = current()
    return Context(
        experiment=experiment or here.experiment,
        trial=trial or here.trial,
        names=names or here.names,
        secret=secret or here.secret,
        folder=here.folder,
    )


def is_given() -> bool:
    """Whether this process has a context, or its environment says one."""
    return _current is not None or all(f"LUDUS_{key}" in os.environ for key in ("EXPERIMENT", "TRIAL", "NAMES"))


def current() -> Context:
    """The process's context: what `use` was given, or what the environment says.

    LUDUS_EXPERIMENT, LUDUS_TRIAL, LUDUS_NAMES (a URL), LUDUS_SECRET and LUDUS_FOLDER. Raises `WorkerError` when there
    is neither.
    """
    if _current is not None:
        return _current
    try:
        experiment, trial, url = (os.environ[f"LUDUS_{key}"] for key in ("EXPERIMENT", "TRIAL", "NAMES"))
    except KeyError as missing:
        raise errors.WorkerError(
            f"this process belongs to no trial: {missing} is not set. Give experiment=, trial= and names=, "
            f"or run inside a program."
        ) from None
    use(
        Context(
            experiment=experiment,
            trial=trial,
            names=discovery.connect(url),
            secret=os.environ.get("LUDUS_SECRET") or None,
            folder=Path(os.environ["LUDUS_FOLDER"]) if os.environ.get("LUDUS_FOLDER") else None,
        )
    )
    return current()
