"""Commands to the workers of a running trial, from any process that can read its folder: `ludus ctl` and the page.

with control(folder) as workers:
    workers.known()                                     # what their driver knows of them
    workers.ask("pause", ["policy/0"])                  # one outcome for each
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ludus import core, discovery, errors
from ludus.launch import status as launch_status
from ludus.program.folder import TrialFolder, TrialRecord
from ludus.workers.panel import Outcome, WorkerControlPanel

__all__ = ["Control", "control"]

_LOOK_EVERY_S = 0.05
_BUSY_S = 0.5  # a worker that has been in one thing for so long is not asked how it is


@contextlib.contextmanager
def control(folder: TrialFolder) -> Iterator[Control]:
    """Raises `ProgramError` for a trial that does not run."""
    trial = folder.load()
    if not trial.is_live:
        raise errors.ProgramError(f"trial {trial.trial!r} is not running: {trial.ended or 'its driver is gone'}.")
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(contextlib.closing(discovery.connect(trial.names_url)))
        panel = WorkerControlPanel(trial.experiment, trial.trial, names=names, secret=trial.secret)
        stack.callback(panel.close)
        yield Control(trial, names, panel)


class Control:
    """The workers of one trial, within `control`."""

    def __init__(self, trial: TrialRecord, names: core.Names, panel: WorkerControlPanel) -> None:
        self._trial = trial
        self._names = names
        self._panel = panel

    def there(self) -> list[str]:
        """The workers that have said where they are."""
        return self._panel.auto_connect()

    def known(self) -> dict[str, dict[str, Any]]:
        """What their driver knows of its workers, by name; nothing if it cannot be asked."""
        trial = self._trial
        return launch_status.ask_driver(trial.experiment, trial.trial, names=self._names, secret=trial.secret)

    def ask(
        self,
        command: str,
        workers: Sequence[str],
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = 5.0,
        known: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Outcome]:
        """One outcome for each worker. `known`: what their driver knows of them, whose word counts for the busy.

        A busy worker answers when it has finished what it does; its heartbeat does not wait for that.
        """
        known = known or {}
        busy = {worker for worker in workers if known.get(worker, {}).get("busy_s", 0.0) >= _BUSY_S}
        asked = [worker for worker in workers if command != "ping" or worker not in busy]
        outcomes = self._panel.group_request(
            command, worker_names=asked, worker_kwargs=[kwargs or {}] * len(asked), timeout=timeout_s
        )
        by_name = {outcome.worker: outcome for outcome in outcomes}
        judged = [_judge(worker, by_name.get(worker), known.get(worker), command) for worker in workers]
        if command == "exit":
            until = time.monotonic() + timeout_s
            judged = [self._left(outcome, until) for outcome in judged]
        return judged

    def restart(self, workers: Sequence[str], *, timeout_s: float = 5.0) -> list[Outcome]:
        """Have each exit and be started again by its driver; an outcome says whether it was asked."""
        return [self._restart(worker, timeout_s) for worker in workers]

    def _restart(self, worker: str, timeout_s: float) -> Outcome:
        trial = self._trial
        try:
            launch_status.ask_restart(
                trial.experiment, trial.trial, worker, names=self._names, secret=trial.secret, timeout_s=timeout_s
            )
        except errors.LudusError as error:
            return Outcome(worker, error=error)
        return Outcome(worker)

    def _left(self, outcome: Outcome, until: float) -> Outcome:
        """A worker that exited before its answer was sent has obeyed, too."""
        while isinstance(outcome.error, (errors.Unreachable, errors.OutcomeUnknown)):
            try:
                is_there = outcome.worker in self._panel.auto_connect()
            except errors.DiscoveryError:  # the name service left with the last of them
                is_there = False
            if not is_there:
                return Outcome(outcome.worker)
            if time.monotonic() >= until:
                break
            time.sleep(_LOOK_EVERY_S)
        return outcome


def _judge(worker: str, outcome: Outcome | None, known: Mapping[str, Any] | None, command: str) -> Outcome:
    """An answer as it is; of a worker that gave none, what its driver knows: one that is busy has not failed."""
    if outcome is not None and (known is None or not isinstance(outcome.error, errors.DeadlineExceeded)):
        return outcome
    assert known is not None
    if command in ("ping", "stats"):
        return Outcome(worker, {"status": known["status"], "pid": known["pid"]})
    return Outcome(
        worker,
        error=errors.DeadlineExceeded(
            f"no answer in time: it is {known['status']}, and takes commands when it has finished that. The command "
            "may still be carried out"
        ),
    )
