"""`run_until_asked_to_stop`: the end of a script that has started everything."""

from __future__ import annotations

import logging
import time

from ludus import errors
from ludus.trial import current as trials
from ludus.trial.driver import Driver, Stage

__all__ = ["run_until_asked_to_stop"]

_LOG = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.1


def run_until_asked_to_stop(timeout_s: float | None = None, *, stop_when_trained: bool = True) -> None:
    """Wait until the trial is to stop, and close it: trainers first, then gateways, whose sessions end, then the rest.

    It is to stop at Ctrl-C or SIGTERM (a second one kills at once), `ludus ctl TRIAL exit`, the driver's command
    `stop`, after `timeout_s`, and when all trainers are done, if there are any and `stop_when_trained`. When a worker
    keeps crashing it raises `ProgramError`, after the same end; not for a trainer whose `wait` has raised it before. In
    a process that has joined, it waits for the trial's.
    """
    trial = trials.current()
    until = None if timeout_s is None else time.monotonic() + timeout_s
    failure: errors.ProgramError | None = None
    try:
        if trial.is_driver:
            trial.driver.interrupts.drains_next = True
            failure = _watch(trial.driver, until, stop_when_trained=stop_when_trained)
        else:
            while not trial.wait_stopping(_LOOK_EVERY_S) and (until is None or time.monotonic() < until):
                pass
    except KeyboardInterrupt:
        _LOG.warning("interrupted: the workers are asked to exit; a second Ctrl-C kills them at once")
        if trial.is_driver:
            trial.driver.ask_stop("interrupted")
    except SystemExit:  # SIGTERM, as `signals.Interrupts` tells it
        if trial.is_driver:
            trial.driver.ask_stop("terminated")
    finally:
        trial.close()
    if failure is not None:
        raise failure


def _watch(driver: Driver, until: float | None, *, stop_when_trained: bool) -> errors.ProgramError | None:
    """Wait for one of the reasons; the failure, if it is one."""
    while not driver.stop_asked.wait(_LOOK_EVERY_S):
        trainers = driver.runs(Stage.TRAINERS)
        is_trained = bool(trainers) and all(run.failure is not None or run.wait(0.0) for run in trainers)
        failure = driver.failure
        if failure is not None:
            return failure
        if stop_when_trained and is_trained:
            driver.ask_stop("trained")
        elif until is not None and time.monotonic() >= until:
            driver.ask_stop("its time is over")
    return None
