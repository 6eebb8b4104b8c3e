"""A training run over many processes: its program on an engine, watched until it is over."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus import errors, launch
from ludus.command_line import trial_command
from ludus.experiment import wiring
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.config import Config
from ludus.experiment.results import RESULT_FILE, read_result
from ludus.experiment.status import BUSY_AFTER_S
from ludus.trial import services
from ludus.trial.current import Trial
from ludus.trial.driver import Stage
from ludus.workers.solver import Solver

if TYPE_CHECKING:
    from ludus.trial.held_port import HeldPort

__all__ = ["run"]

_LOG = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.5
_STOP_GRACE_S = 30.0


def run(
    config: Config,
    trial: Trial,
    *,
    began: float,
    on_progress: Callable[[int, dict[str, float]], None] | None = None,
    on_status: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Come back with the result, the trial closed. Interrupted, the trainer writes a checkpoint first."""
    folder = trial.folder
    _check_checkpoints(config, folder)
    program, counted = services.training_program(config, folder, began=began)
    idle: dict[str, float] = {}
    last: Mapping[str, float] = {}
    news_at = time.monotonic()
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(_hold_port(config, folder)) if config.is_game else None
        driver = stack.enter_context(trial).driver
        driver.interrupts.install()
        running = trial.run(program, stage=Stage.TRAINERS, counted=counted)
        if held is not None:
            held.watch(running)
        try:
            while not running.wait(_LOOK_EVERY_S):
                # By heartbeats: a trainer in a long update answers no calls.
                records = {record.name: record for record in running.workers()}
                idle |= {name: record.report["idle"] for name, record in records.items() if "idle" in record.report}
                trainer = records["trainer/0"]
                if trainer.report and trainer.report != last:
                    last, news_at = trainer.report, time.monotonic()
                    if on_progress is not None:
                        values = dict(last)
                        on_progress(int(values.pop("step")), values)
                elif trainer.busy_s >= BUSY_AFTER_S and on_status is not None:
                    on_status(f"trainer/0 {trainer.activity}")
                elif config.is_game and on_status is not None and time.monotonic() - news_at >= BUSY_AFTER_S:
                    on_status(_what_it_does(trainer.activity))
                if trainer.status is launch.Phase.DONE or (folder / RESULT_FILE).exists():
                    break  # simulators do not end by themselves
                if driver.stop_asked.is_set():
                    left = [record.name for record in running.workers() if record.status is launch.Phase.EXITED]
                    if not left:  # else all were asked to exit
                        _keep(running, trial.remote("trainer").solver, driver.stop_reason)
                    break
        except KeyboardInterrupt:
            _keep(running, trial.remote("trainer").solver, "interrupted")
            raise
        except errors.ProgramError as error:
            if read_result(folder) is not None:  # it died on its way out
                return _result(folder, None, idle)
            if not (folder / "config.json").exists():
                raise errors.TrainingError(_deleted(folder, last)) from error
            # Not `from error`: its text, with the worker's traceback, would be printed twice.
            raise errors.TrainingError(f"{error}\nThe run has ended. {_how_to_go_on(folder)}") from None
        for other in driver.runs():  # of processes that joined: how they end is not how this run does
            driver.note_failure_reported(other)
    ended = {record.name: record.last_end for record in running.workers()}["trainer/0"]
    return _result(folder, ended, idle, why=driver.stop_reason)


def _hold_port(config: Config, folder: Path) -> HeldPort:
    """Raises `ConfigError` if it is taken: before any process is started."""
    from ludus.trial.held_port import HeldPort  # brings what only gateways need

    options = wiring.gateway_options(config, folder)
    return HeldPort(options, wiring.GATEWAY, num_workers=config.num_simulators)


def _what_it_does(activity: str) -> str:
    """`wait for games on :8000` of `busy: wait for games on :8000, 0.0 s`: it waits in short turns."""
    return activity.removeprefix("busy: ").rpartition(", ")[0] or activity


def _check_checkpoints(config: Config, folder: Path) -> None:
    """Raise `CheckpointError`, before any process is started, if there are checkpoints and none can be used.

    Several ranks find out together what they have in common.
    """
    store = CheckpointStore(folder / "checkpoints")
    if config.train.trainers == 1 and not store.is_empty:
        store.load(warns=False)  # the trainer will warn


def _keep(running: launch.Run, solver: Solver, why: str) -> None:
    """Let the trainers write a checkpoint, while simulators can still tell where their envs are, and leave."""
    _LOG.warning("%s: the trainer writes a checkpoint; a second Ctrl-C ends the run without it", why)
    until = time.monotonic() + _STOP_GRACE_S
    try:
        solver.submit("trainer/0", "stop", timeout_s=_STOP_GRACE_S).result()
    except errors.LudusError as error:
        _LOG.warning("the trainer could not be asked for a checkpoint: %s", error)
        return
    while time.monotonic() < until:
        trainers = [record for record in running.workers() if record.name.startswith("trainer/")]
        if all(record.status.is_final for record in trainers):
            return
        time.sleep(0.05)
    _LOG.warning("the trainer has not ended its update in %.0f s; its last checkpoint counts", _STOP_GRACE_S)


def _how_to_go_on(folder: Path) -> str:
    resume = trial_command("resume", folder)
    saved = CheckpointStore(folder / "checkpoints").steps()
    if not saved:
        return f"It had written no checkpoint; this starts it from the beginning: {resume}"
    return f"It goes on from its checkpoint of step {saved[0]:,} with: {resume}"


def _deleted(folder: Path, last: Mapping[str, float]) -> str:
    reached = last.get("episode/return")
    what = "" if reached is None else f", with a mean return of {reached:.1f}"
    return (
        f"{folder} was deleted while it trained, and its processes could not go on without it. It had come to "
        f"step {int(last.get('step', 0)):,}{what}. Its checkpoints are lost; start it again."
    )


def _result(folder: Path, ended: launch.End | None, idle: dict[str, float], *, why: str = "") -> dict[str, Any]:
    """As the trainer left it to its driver: it may have been unable to write it down."""
    result = ended.result if ended is not None and ended.result else read_result(folder)
    if result is None:
        reason = f" ({why})" if why else ""
        raise errors.TrainingError(
            f"the run ended without a result{reason}; its logs are in {folder / 'logs'}. {_how_to_go_on(folder)}"
        )
    result["idle"] = {"trainer": result["time"].get("idle", result["time"].get("wait", 0.0)), **idle}
    return result
