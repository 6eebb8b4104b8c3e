"""A backend is held to eager torch: the same inputs, the same outputs, or it is not used."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.models.backends import Backend, BackendUnavailable, Source, prepare

__all__ = [
    "BackendReport",
    "Call",
    "OutputError",
    "Verification",
    "check_example",
    "choose",
    "compare",
    "example_calls",
    "why_not",
]

_log = logging.getLogger(__name__)
_NUM_ROWS = (1, 3, 16)
_NOISE = 0.1
_TIMED_S = 0.3
_CANDIDATES = ("eager", "onnx", "int8")  # of "auto"; compiling takes longer than most runs of it are worth
_TINY = 1e-12

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""`args` and `kwargs` with a row axis."""


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """How far one output was from eager's at worst."""

    path: str  # empty if there is but one
    max_abs: float
    max_rel: float
    is_within: bool  # each value within tolerance + tolerance * |eager's value|

    def __str__(self) -> str:
        return f"{self.path or 'the output'} is off by {self.max_abs:.2g} (relative {self.max_rel:.2g})"


@dataclass(frozen=True, kw_only=True)
class BackendReport:
    """What came of trying one backend. `rows_per_s` is measured only where several are compared."""

    backend: str
    is_verified: bool
    reason: str = ""  # why not
    num_rows: int = 0  # that were compared
    outputs: tuple[OutputError, ...] = ()
    rows_per_s: float = 0.0

    def __str__(self) -> str:
        rate = f", {self.rows_per_s:,.0f} rows/s" if self.rows_per_s else ""
        return f"{self.backend}: {'verified' if self.is_verified else f'refused: {self.reason}'}{rate}"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Which backend runs, which was asked for, and why."""

    asked: str
    chosen: str
    reports: tuple[BackendReport, ...] = ()

    def to_nest(self) -> dict[str, Nest]:
        return asdict(self)

    @classmethod
    def from_nest(cls, nest: Nest) -> Verification:
        reports = [
            BackendReport(**{**report, "outputs": tuple([OutputError(**error) for error in report["outputs"]])})
            for report in nest["reports"]
        ]
        return cls(asked=nest["asked"], chosen=nest["chosen"], reports=tuple(reports))

    def __str__(self) -> str:
        reports = "; ".join(str(report) for report in self.reports)
        return f"{self.chosen} runs ({self.asked} was asked for){': ' if reports else ''}{reports}"


def example_calls(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Call]:
    """One row (with a row axis) repeated to a few batch sizes, with noise where it is of floats."""
    rng = np.random.default_rng(0)

    def repeat(leaf: NDArray[Any] | None, num_rows: int) -> NDArray[Any] | None:
        if leaf is None:
            return None
        rows = np.repeat(leaf, num_rows, axis=0)
        if rows.dtype.kind != "f":
            return rows
        noise = rng.standard_normal(rows.shape) * _NOISE
        noise[0] = 0.0
        return (rows + noise).astype(rows.dtype)

    given = (tuple(args), dict(kwargs))
    return [nests.map(lambda leaf, n=num_rows: repeat(leaf, n), given) for num_rows in _NUM_ROWS]


def check_example(source: Source) -> None:
    """Raise `DataError` unless the module runs on its example and keeps the row axis."""
    if source.args is None:
        return
    eager = prepare("eager", source)
    for args, kwargs in example_calls(source.args, source.kwargs or {})[:2]:
        num_rows = _num_rows((args, kwargs))
        try:
            outputs = eager.run(source.module, args, kwargs)
        except Exception as error:
            raise errors.DataError(
                f"the module cannot run on forward_args and forward_kwargs as {num_rows} rows, with a batch axis "
                f"before each: {type(error).__name__}: {error}"
            ) from error
        for path, leaf in zip(nests.paths(outputs), nests.leaves(outputs), strict=True):
            if leaf is not None and leaf.shape[:1] != (num_rows,):
                raise errors.DataError(
                    f"forward was given {num_rows} rows and {path or 'its output'} has the shape {list(leaf.shape)}: "
                    "the first axis of all outputs must be the batch's"
                )


def compare(
    reference: tuple[Backend, Any], other: tuple[Backend, Any], calls: Sequence[Call], *, tolerance: float
) -> BackendReport:
    """Run both, each a backend and a version it has loaded, on the same calls."""
    name = other[0].name
    worst: dict[str, OutputError] = {}
    num_rows = 0
    for args, kwargs in calls:
        wanted = reference[0].run(reference[1], args, kwargs)
        try:
            given = other[0].run(other[1], args, kwargs)
            found = nests.map_with_path(functools.partial(_error, tolerance), wanted, given)
        except Exception as error:
            reason = f"it failed where eager does not: {type(error).__name__}: {error}"
            return BackendReport(backend=name, is_verified=False, reason=reason, num_rows=num_rows)
        num_rows += _num_rows((args, kwargs))
        for each in nests.leaves(found):
            if each is not None:
                worst[each.path] = _worse(worst.get(each.path, each), each)
    outputs = tuple(worst.values())
    bad = [str(each) for each in outputs if not each.is_within]
    reason = f"{'; '.join(bad)}, more than the tolerance {tolerance:g}" if bad else ""
    return BackendReport(backend=name, is_verified=not bad, reason=reason, num_rows=num_rows, outputs=outputs)


def choose(
    asked: str,
    source: Source,
    weights: Mapping[str, NDArray[Any]],
    recorded: Sequence[Call] = (),
    *,
    tolerance: float,
    num_threads: int,
) -> tuple[Backend, Verification]:
    """The backend that is asked for, if it can be had and gives what eager does; of "auto", the fastest that does.

    What is refused is in the log and in the report, and eager runs instead.
    """
    eager = prepare("eager", source)
    if asked == "eager":
        return eager, Verification(asked=asked, chosen="eager")
    reference = eager, eager.load(weights)
    calls = [*(example_calls(source.args, source.kwargs or {}) if source.args is not None else ()), *recorded]
    backends: dict[str, Backend] = {}
    reports: list[BackendReport] = []
    for name in _CANDIDATES if asked == "auto" else (asked,):
        backend, report = eager, BackendReport(backend="eager", is_verified=True)
        handle = reference[1]
        if name != "eager":
            try:
                backend = prepare(name, source, num_threads=num_threads)
                handle = backend.load(weights)
            except Exception as error:  # a runtime's own, too: whatever it is, eager can do without
                reports.append(BackendReport(backend=name, is_verified=False, reason=why_not(error)))
                continue
            report = compare(reference, (backend, handle), calls, tolerance=tolerance)
        if asked == "auto" and report.is_verified and calls:
            report = replace(report, rows_per_s=_rate(backend, handle, calls))
        reports.append(report)
        if report.is_verified:
            backends[name] = backend
    fastest = max((r for r in reports if r.is_verified), key=lambda report: report.rows_per_s, default=None)
    chosen = "eager" if fastest is None else fastest.backend
    verification = Verification(asked=asked, chosen=chosen, reports=tuple(reports))
    if asked not in ("auto", chosen):
        _log.warning("the backend %s is not used, eager is: %s", asked, reports[-1].reason)
    else:
        _log.info("%s", verification)
    return backends.get(chosen, eager), verification


def why_not(error: Exception) -> str:
    """Why a backend could not be prepared, or could not load a version."""
    if isinstance(error, BackendUnavailable):
        return str(error)
    return f"it cannot run this module: {type(error).__name__}: {error}"


def _rate(backend: Backend, handle: Any, calls: Sequence[Call]) -> float:
    """Rows in a second, at the largest batch there is."""
    args, kwargs = max(calls, key=_num_rows)
    num_rows = _num_rows((args, kwargs))
    backend.run(handle, args, kwargs)
    began = time.perf_counter()
    until, num_runs = began + _TIMED_S, 0
    while (now := time.perf_counter()) < until or not num_runs:
        backend.run(handle, args, kwargs)
        num_runs += 1
    return num_rows * num_runs / (now - began) if num_runs else 0.0


def _num_rows(call: Call) -> int:
    return next(len(leaf) for leaf in nests.leaves(call) if leaf is not None)


def _error(tolerance: float, path: str, wanted: Any, given: Any) -> OutputError | None:
    if wanted is None and given is None:
        return None
    if wanted is None or given is None or wanted.shape != given.shape or wanted.dtype != given.dtype:
        shown = [None if each is None else f"{each.dtype}{list(each.shape)}" for each in (given, wanted)]
        raise ValueError(f"{path or 'the output'} is {shown[0]} where eager's is {shown[1]}")
    if not wanted.size:
        return OutputError(path=path, max_abs=0.0, max_rel=0.0, is_within=True)
    a, b = wanted.astype(np.float64), given.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    off = np.where(same, 0.0, np.abs(a - b))
    off = np.where(np.isnan(off), np.inf, off)
    relative = off / np.maximum(np.abs(np.where(np.isfinite(a), a, 1.0)), _TINY)
    within = bool((off <= tolerance + tolerance * np.abs(np.where(np.isfinite(a), a, 0.0))).all())
    return OutputError(path=path, max_abs=float(off.max()), max_rel=float(relative.max()), is_within=within)


def _worse(one: OutputError, other: OutputError) -> OutputError:
    return OutputError(
        path=one.path,
        max_abs=max(one.max_abs, other.max_abs),
        max_rel=max(one.max_rel, other.max_rel),
        is_within=one.is_within and other.is_within,
    )
