"""Which trial this process belongs to, so that `Solver()` needs no arguments inside a worker."""

from __future__ import annotations

import dataclasses
import os

from ludus import discovery, errors
from ludus.core import Names

__all__ = ["Context", "complete", "current", "use"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    experiment: str
    trial: str
    names: Names
    secret: str | None = None


_current: Context | None = None


def use(context: Context | None) -> None:
    """Make `context` the one of this process; an engine does so before it builds a worker."""
    global _current
    _current = context


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
    )


def current() -> Context:
    """The process's context: what `use` was given, or what the environment says.

    LUDUS_EXPERIMENT, LUDUS_TRIAL, LUDUS_NAMES (a URL) and LUDUS_SECRET. Raises `WorkerError` when there is neither.
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
        )
    )
    return current()
