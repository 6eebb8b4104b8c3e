"""Three ways into a trial: to drive it, to join it, to be one of its workers.

The folder's trial.json says where the names of a running trial are, and who drives it. It is read and written under a
lock, so of several processes that come at once one drives. Whoever drives holds another one for as long as it does, so
a second process does not drive beside it, whatever became of trial.json.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from ludus import discovery, errors, files, launch
from ludus.discovery import names as naming
from ludus.launch import lock
from ludus.launch import run as runs
from ludus.program import trial as trials
from ludus.remote.belonging import Trial, stop_key
from ludus.remote.driver import EXPERIMENT, Driver, DriverService
from ludus.workers import context

__all__ = ["adopt", "enter"]

_LOG = logging.getLogger(__name__)
_LOCK_FILE = ".init.lock"
_LOCK_S = 60.0
_START_S = 30.0
_LEASE_S = 2.0


def adopt() -> Trial | None:
    """The trial of which this process is a worker."""
    try:
        here = context.current()
    except errors.WorkerError:
        return None
    if here.experiment != EXPERIMENT or here.folder is None:
        return None
    found = _connect(here, here.folder, engine="local", resources=contextlib.ExitStack())
    context.at_leave(found.close)
    return found


def enter(project: Path, trial: str | None, *, engine: str, secret: str | None) -> Trial:
    if trial is None:
        return _drive(trials.TrialFolder.create(project, None), engine=engine, secret=secret)
    folder = trials.TrialFolder(project / trial)
    files.make_folder(folder.path)
    with _locked(folder.path):
        if (known := folder.find()) is not None and known.is_live:
            joined = _join(folder, known)
            if joined is not None:
                return joined
            folder.mark_ended("its driver is gone")
        return _drive(trials.TrialFolder.create(project, trial), engine=engine, secret=secret)


def _join(folder: trials.TrialFolder, known: trials.Trial) -> Trial | None:
    """The trial that another process drives; none if that process is gone after all."""
    who = f"process {known.driver_pid} on {known.driver_host}"
    if known.experiment != EXPERIMENT:
        raise errors.ProgramError(
            f"trial {folder.path.name!r} is running, and was not begun by ludus.init: {who} drives it. Wait for it, or "
            "choose another name."
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
        is_gone = isinstance(error.__cause__, errors.Unreachable)
        if is_gone and known.driver_host == os.uname().nodename:
            return None  # its process id is somebody else's now
        raise errors.ProgramError(
            f"trial {folder.path.name!r} cannot be joined: {who} drives it and does not answer ({error}). If that is "
            f"gone for good, remove {folder.path / 'trial.json'} and call ludus.init again."
        ) from error
    if _has_no_context():
        context.use(here)
        joined.before_close(lambda: context.use(None))
    return joined


def _connect(
    here: context.Context,
    folder: Path,
    *,
    engine: str,
    resources: contextlib.ExitStack,
    joined: trials.Trial | None = None,
    on_stopping: Callable[[], None] | None = None,
) -> Trial:
    """A process of the trial that is not its driver."""
    made = Trial(here, folder, engine=engine, resources=resources, driver=None, joined=joined)

    def told(_key: str, reason: str | None) -> None:
        if reason is not None:
            made.note_stopping()
            if on_stopping is not None:
                on_stopping()

    watch = here.names.watch_names(stop_key(here), told)
    resources.callback(watch.close)
    return made


def _drive(folder: trials.TrialFolder, *, engine: str, secret: str | None) -> Trial:
    """Become the driver: names, `driver/0`, and only then trial.json, by which others find both."""
    if not _has_no_context():
        raise errors.WorkerError(
            "this process is a worker of another program and cannot drive a trial of its own; begin it elsewhere, and "
            "join it here."
        )
    with contextlib.ExitStack() as stack:
        driving = stack.enter_context(contextlib.ExitStack())
        driving.enter_context(lock.driving(folder.path))
        host, reserves = "127.0.0.1", True
        if engine == "ray":
            host, is_own = stack.enter_context(launch.ray_connected())
            reserves, secret = not is_own, secret or secrets.token_urlsafe(32)
        url = runs.open_names(stack, None, host=host, secret=secret)
        names = stack.enter_context(contextlib.closing(discovery.connect(url)))
        here = context.Context(
            experiment=EXPERIMENT, trial=folder.path.name, names=names, secret=secret, folder=folder.path
        )
        context.use(here)
        stack.callback(context.use, None)
        place = launch.Place(folder=folder, names_url=url, host=host, secret=secret, reserves=reserves)
        driver = Driver(place, engine=engine)
        driver.host(DriverService(driver), "driver")
        names.wait(naming.worker(EXPERIMENT, folder.path.name, "driver/0"), _START_S)
        folder.save(
            trials.Trial(
                experiment=EXPERIMENT,
                trial=folder.path.name,
                names_url=url,
                engine=engine,
                driver_pid=os.getpid(),
                driver_start=trials.process_start(os.getpid()),
                driver_host=os.uname().nodename,
                secret=secret,
            )
        )
        stack.callback(_mark_ended, folder, url, driver, driving)
        resources = stack.pop_all()
    made = Trial(here, folder.path, engine=engine, resources=resources, driver=driver)
    made.interrupts.install()
    resources.callback(made.interrupts.restore)
    return made


def _mark_ended(folder: trials.TrialFolder, url: str, driver: Driver, driving: contextlib.ExitStack) -> None:
    """Say so in trial.json, unless somebody has taken the trial up since, and let others drive."""
    failed = driver.failure
    if not folder.path.is_dir():
        _LOG.warning("%s was deleted while the trial ran: what it had written is gone.", folder.path)
        return
    with _locked(folder.path):
        if (known := folder.find()) is not None and known.names_url == url:
            folder.mark_ended(str(failed).splitlines()[0] if failed else driver.stop_reason or "stopped")
        driving.close()  # within the lock: who reads that it has ended may drive


def _has_no_context() -> bool:
    try:
        context.current()
    except errors.WorkerError:
        return True
    return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time begins, joins or ends the trial of a folder."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.lock(folder / _LOCK_FILE, timeout_s=_LOCK_S))
        except errors.DeadlineExceeded as error:
            raise errors.ProgramError(
                f"another process has held {folder / _LOCK_FILE} for {_LOCK_S:.0f} s, as if it were just beginning "
                "this trial. End that process."
            ) from error
        yield
