"""`merge`: a metric from anywhere, to be seen in TensorBoard beside those of all other processes.

    ludus.merge("loss", loss)
    ludus.merge("return", total, desc={"time_window_avg": "of an episode", "time_window_max": "the best"}, game=1)

What is merged in a process is added up there and sent to the driver every ten seconds, for the first time after one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ludus import errors
from ludus.telemetry.metrics import RESERVED, Description, Windows, check_description, check_name

if TYPE_CHECKING:
    from ludus.trial.current import Trial

__all__ = ["flush", "merge"]

_LOG = logging.getLogger(__name__)
_FIRST_S = 1.0
_PERIOD_S = 10.0
_FOLD_AT = 4096  # calls that are kept as they came before they are added up
_SEND_S = 5.0
_NOT_RUN = (errors.Unreachable, errors.Overloaded, errors.DiscoveryError)  # the driver has not got the call

_lock = threading.Lock()
_calls: list[tuple[str, Any, Description, dict[str, Any]]] = []
_windows = Windows()
_left_out: set[str] = set()  # names that were warned of
_sender: _Sender | None = None
_starting = threading.Lock()


def merge(
    name: str, value: float | Mapping[str, float], *, desc: str | Mapping[str, str] | None = None, **labels: Any
) -> None:
    """Add to a metric. The mean of all its values within ten seconds is written, under the tag `name`.

    value: a number, or several by name: `merge("loss", {"policy": 0.1, "value": 2.0})` is `loss/policy`, `loss/value`.
    desc: what it is, in words; or which aggregates are wanted instead of the mean, each with words of its own:
        `time_window_avg`, `_sum`, `_cnt`, `_min`, `_max`, `_std`, `_p50` and other percentiles, tagged `name/avg` …
    labels: the metric is also written for each of their values, tagged `name/label=value`.

    Raises `ConfigError` for the names `step`, `time`, `wall_s`, `axis` and `not_finite`: lines of metrics.jsonl have
    fields of these names.
    From any thread of any process of the trial; takes some microseconds and never waits.
    """
    if desc is not None and not isinstance(desc, str):
        check_description(desc)
    if value.__class__ is not float:
        value = _numbers(name, value)
    if name.__class__ is not str or (name in RESERVED and value.__class__ is float):  # those of a dict are longer
        check_name(name)
    if _sender is None:
        _start()
    with _lock:
        _calls.append((name, value, desc, labels))
        if len(_calls) >= _FOLD_AT:
            _fold()


def flush() -> None:
    """Send to the driver what was merged in this process so far."""
    sender = _sender
    if sender is not None:
        sender.send()


def _numbers(name: str, value: Any) -> float | dict[str, float]:
    try:
        return {key: float(one) for key, one in value.items()} if isinstance(value, Mapping) else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise errors.DataError(f"merge({name!r}, ...): a metric is a number, or several by name. {error}") from None


def _fold() -> None:
    """Add up the calls. Called with the lock held."""
    for name, value, desc, labels in _calls:
        try:
            if value.__class__ is float:
                _windows.add(name, value, desc=desc, labels=labels)
            else:
                for key, one in value.items():
                    _windows.add(f"{name}/{key}", one, desc=desc, labels=labels)
        except Exception:  # a label that cannot be spelled; the metrics of others are not to be lost by it
            if name not in _left_out:
                _left_out.add(name)
                _LOG.exception("metric %r, or some of it, is left out", name)
    _calls.clear()


def _forget_after_fork() -> None:
    """A child has what its parent has merged, and nobody who sends it; the parent sends it."""
    global _lock, _starting, _windows, _sender
    _lock, _starting = threading.Lock(), threading.Lock()
    _windows = Windows()
    _sender = None
    _calls.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def _start() -> None:
    global _sender
    from ludus.trial import current as trials  # which flushes when it is closed

    with _starting:
        if _sender is None:
            sender = _Sender(trials.current())
            sender.start()
            _sender = None if sender.has_ended else sender  # it has, if the trial is being closed


class _Sender:
    """A thread that sends, from the first metric to the end of the trial."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._ended = threading.Event()
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._live, name="ludus-merge", daemon=True)

    def start(self) -> None:
        self._trial.before_close(self.close)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def close(self) -> None:
        global _sender
        self._ended.set()
        try:
            self.send()
        finally:
            _sender = None

    def send(self) -> None:
        global _windows
        with self._sending:
            with _lock:
                _fold()
                windows, _windows = _windows, Windows()
            if not windows:
                return
            rows = windows.rows()
            try:
                self._trial.send_metrics(rows, timeout_s=_SEND_S)
            except _NOT_RUN as error:  # they go with the next
                _LOG.warning("the driver cannot be sent the metrics of this process now: %s", error)
                with _lock:
                    _windows.join(rows)
            except errors.LudusError as error:
                _LOG.warning("the driver may not have got the metrics of the last %g s: %s", _PERIOD_S, error)

    def _live(self) -> None:
        wait_s = _FIRST_S
        while not self._ended.wait(wait_s):
            wait_s = _PERIOD_S
            self.send()
