"""Three ways into a trial: to drive it, to join it, to be one of its workers.

The driver holds the lock of the trial's folder for as long as it drives, so no second process drives beside it,
whatever became of trial.json, which says where the names of a running trial are.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from ludus import discovery, errors, files, launch
from ludus.discovery import names as naming
from ludus.launch import run as runs
from ludus.launch.status import StatusServer
from ludus.program import folder as folders
from ludus.program import lock
from ludus.trial import trained
from ludus.trial.driver import Driver, DriverService
from ludus.trial.metrics import TrialMetrics
from ludus.trial.trial import EXPERIMENT, Trial, stop_key
from ludus.workers import context

__all__ = ["adopt", "begin", "enter"]

_LOG = logging.getLogger(__name__)
_WAIT_S = 60.0  # for a process that begins or ends the trial
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.1
_START_S = 30.0
_LEASE_S = 2.0


def adopt() -> Trial | None:
    """The trial of which this process, which has a context, is a worker; `None` if that is of another program."""
    here = context.current()
    if here.experiment != EXPERIMENT or here.folder is None:
        return None
    found = _connect(here, here.folder, engine="local", resources=contextlib.ExitStack())
    context.at_leave(found.close)
    return found


def enter(project: Path, trial: str | None, *, engine: str, secret: str | None, join: bool) -> Trial:
    """Drive the trial if its lock is free, else join its driver; without `join`, refuse.

    Of several processes that come at once one drives, and the others join it when it can be joined. One that comes
    while the driver ends waits, and drives.
    """
    if trial is None:
        folder = folders.TrialFolder.create(project, None)
        with contextlib.ExitStack() as stack:
            drive = stack.enter_context(lock.driving(folder.path, phase=lock.Phase.STARTING))
            return _drive(folder, drive, stack.pop_all(), engine=engine, secret=secret)
    folder = folders.TrialFolder(project / trial)
    files.make_folder(folder.path)
    until, wait_s = time.monotonic() + _WAIT_S, _FIRST_WAIT_S
    while True:
        gone: folders.TrialRecord | None = None
        if (known := folder.find()) is not None and known.is_live and not _is_ending(folder):
            if not join:
                raise errors.ProgramError(lock.refusal(folder.path))
            joined = _join(folder, known)
            if joined is not None:
                return joined
            gone = known
        with contextlib.ExitStack() as stack:
            try:
                drive = stack.enter_context(lock.driving(folder.path, phase=lock.Phase.STARTING))
            except errors.ProgramError:
                if not join or _is_driven_unseen(folder):
                    raise
            else:
                now = folder.find()
                if now is None or not now.is_live or now == gone:
                    return _drive(folder, drive, stack.pop_all(), engine=engine, secret=secret)
                # another host's, or that of a process that could not lock: it is asked first
        if time.monotonic() >= until:
            raise errors.ProgramError(
                f"another process has held {folder.path / lock.LOCK_FILE} for {_WAIT_S:.0f} s, as if it were just "
                "beginning or ending this trial. End that process."
            )
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _is_ending(folder: folders.TrialFolder) -> bool:
    holder = lock.find_holder(folder.path)
    return holder is not None and holder.phase is lock.Phase.ENDING


def _is_driven_by(folder: folders.TrialFolder, known: folders.TrialRecord) -> bool:
    holder = lock.find_holder(folder.path)
    return holder is not None and (holder.pid, holder.phase) == (known.driver_pid, lock.Phase.DRIVING)


def _is_driven_unseen(folder: folders.TrialFolder) -> bool:
    """Whether somebody drives it and trial.json does not say so: it was damaged, or nobody can join.

    A driver writes trial.json before it says that it drives, and says that it ends before it writes that.
    """
    before = lock.find_holder(folder.path)
    if before is None or before.phase is not lock.Phase.DRIVING:
        return False
    known = folder.find()
    return (known is None or not known.is_live) and lock.find_holder(folder.path) == before


def _join(folder: folders.TrialFolder, known: folders.TrialRecord) -> Trial | None:
    """The trial that another process drives; none if that process is gone after all."""
    who = f"process {known.driver_pid} on {known.driver_host}"
    if known.experiment != EXPERIMENT:
        raise errors.ProgramError(
            f"trial {folder.path.name!r} is running and cannot be joined: {who} drives it, as a program of an engine. "
            "Wait, or choose another name."
        )
    resources = contextlib.ExitStack()
    names = resources.enter_context(contextlib.closing(discovery.connect(known.names_url)))
    here = context.Context(
        experiment=EXPERIMENT, trial=known.trial, names=names, secret=known.secret, folder=folder.path
    )
    own = naming.key(EXPERIMENT, known.trial, "joined", uuid.uuid4().hex)  # until it has heard that the trial stops
    try:
        names.get(naming.worker(EXPERIMENT, known.trial, "driver/0"))
        names.add(own, str(os.getpid()), ttl=_LEASE_S)
        joined = _connect(
            here,
            folder.path,
            engine=known.engine,
            resources=resources,
            joined=known,
            on_stopping=lambda: names.delete(own),
        )
    except errors.DiscoveryError as error:
        resources.close()
        is_gone = isinstance(error.__cause__, errors.Unreachable) or not _is_driven_by(folder, known)
        if is_gone and known.driver_host == os.uname().nodename:
            return None  # or it ends just now, or its process id is somebody else's
        raise errors.ProgramError(
            f"trial {folder.path.name!r} cannot be joined: {who} drives it and does not answer ({error}). If that is "
            f"gone for good, remove {folder.path / 'trial.json'} and call ludus.init again."
        ) from error
    if not context.is_given():
        context.use(here)
        joined.before_close(lambda: context.use(None))
    return joined


def _connect(
    here: context.Context,
    folder: Path,
    *,
    engine: str,
    resources: contextlib.ExitStack,
    joined: folders.TrialRecord | None = None,
    on_stopping: Callable[[], None] | None = None,
) -> Trial:
    """A process of the trial that is not its driver."""
    made = Trial(folder, engine=engine, resources=resources, here=here, joined=joined)

    def on_stop(_key: str, reason: str | None) -> None:
        if reason is not None:
            made.note_stopping()
            if on_stopping is not None:
                on_stopping()

    watch = here.names.watch_names(stop_key(here), on_stop)
    resources.callback(watch.close)
    return made


def _drive(
    folder: folders.TrialFolder,
    drive: lock.Drive,
    resources: contextlib.ExitStack,
    *,
    engine: str,
    secret: str | None,
) -> Trial:
    """Become the driver, whom others can join. `resources` holds the lock; it is closed with the trial."""
    with contextlib.ExitStack() as failing:
        failing.push(resources)
        folder.make()
        trained.publish_if_trained(folder.path)
        start = functools.partial(begin, folder, resources, engine=engine, secret=secret)
        made = Trial(folder.path, engine=engine, resources=resources, drive=drive, start=start)
        made.driver.interrupts.install()
        failing.pop_all()
    return made


def begin(
    folder: folders.TrialFolder,
    resources: contextlib.ExitStack,
    *,
    engine: str,
    secret: str | None,
    metrics: TrialMetrics | None = None,
    is_current: bool = True,
) -> tuple[context.Context, Driver]:
    """Names, `driver/0`, and only then trial.json, by which others find both; `resources` closes them.

    For the process that holds the lock. `is_current`: it belongs to this trial, and to no other.
    """
    if is_current and context.is_given():
        raise errors.WorkerError(
            "this process is a worker of another program and cannot drive a trial of its own; begin it elsewhere, and "
            "join it here."
        )
    with contextlib.ExitStack() as stack:
        host, reserves = "127.0.0.1", True
        if engine == "ray":
            host, is_own = stack.enter_context(launch.ray_connected())
            reserves, secret = not is_own, secret or secrets.token_urlsafe(32)
        url = runs.open_names(stack, None, host=host, secret=secret)
        names = stack.enter_context(contextlib.closing(discovery.connect(url)))
        here = context.Context(
            experiment=EXPERIMENT, trial=folder.path.name, names=names, secret=secret, folder=folder.path
        )
        if is_current:
            context.use(here)
            stack.callback(context.use, None)
        place = launch.Place(folder=folder, names_url=url, host=host, secret=secret, reserves=reserves)
        driver = Driver(place, here, engine=engine, metrics=metrics or TrialMetrics(folder.path))
        failing = stack.enter_context(contextlib.ExitStack())
        failing.callback(driver.close, 0.0)
        driver.host(DriverService(driver), "driver")
        names.wait(naming.worker(EXPERIMENT, folder.path.name, "driver/0"), _START_S)
        folder.save(
            folders.TrialRecord.own(folder.path, experiment=EXPERIMENT, names_url=url, engine=engine, secret=secret)
        )
        stack.callback(_mark_ended, folder, driver)
        status = StatusServer(
            driver.records, driver.restart, experiment=EXPERIMENT, trial=folder.path.name, secret=secret
        )
        stack.callback(status.close)
        status.start(names)
        stack.callback(driver.interrupts.restore)
        failing.pop_all()
        resources.push(stack.pop_all())
    return here, driver


def _mark_ended(folder: folders.TrialFolder, driver: Driver) -> None:
    """Say so in trial.json, if that is there and still ours, and nobody has said it yet."""
    failed = driver.failure
    if not folder.path.is_dir():
        _LOG.warning("%s was deleted while the trial ran: what it had written is gone.", folder.path)
        return
    if (known := folder.find()) is not None and (known.names_url, known.ended) == (driver.names_url, None):
        folder.mark_ended(str(failed).splitlines()[0] if failed else driver.stop_reason or "stopped")
