"""The Ray engine: every worker lives in a Ray actor, somewhere on a cluster. The one file that imports `ray`.

Ray finds a machine with the CPUs and GPUs of a node (for each replica another one, while it can), starts a process
there, and tells when it died; the driver's own supervisor decides about restarts. No call between workers goes through
Ray: they speak to each other as everywhere, by unix socket on one host and by encrypted TCP between hosts.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import math
import os
import random
import secrets
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from ludus import core, errors
from ludus.launch import child, lifeline, supervisor
from ludus.launch import run as runs
from ludus.launch import spec as specs
from ludus.launch import vitals as vital_signs
from ludus.program import folder as folders
from ludus.program import program as programs
from ludus.telemetry import logs, relay
from ludus.workers import heartbeat

__all__ = ["connected", "launch"]

_LOG = logging.getLogger(__name__)
_MAX_WARNINGS = 100  # that wait for the driver to ask
_LAST_NEWS_S = 2.0


@contextlib.contextmanager
def connected(address: str | None = None, runtime_env: Mapping[str, Any] | None = None) -> Iterator[tuple[str, bool]]:
    """Within the block, connected to a cluster: this machine's address there, and whether the cluster is our own.

    One is started, and ended, if there is none at `address` or RAY_ADDRESS. A connection that exists is used, and kept.
    """
    ray = _import_ray()
    address = address or os.environ.get("RAY_ADDRESS")
    with contextlib.ExitStack() as stack:
        is_own = not ray.is_initialized() and address is None
        if not ray.is_initialized():
            _connect(ray, address, runtime_env)
            stack.callback(ray.shutdown)
        yield ray.util.get_node_ip_address(), is_own


def launch(
    program: programs.Program,
    *,
    address: str | None = None,
    trial: str | None = None,
    project: str | Path = "trials",
    names_url: str | None = None,
    secret: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    max_placement_s: float = 60.0,
    on_event: Callable[[supervisor.Event], None] | None = None,
    within: runs.Place | None = None,
) -> runs.Run:
    """Run `program` on a Ray cluster; returns at once, with its workers on their way.

    address: of a cluster that exists; without it, that of RAY_ADDRESS, or else a cluster is started on this machine.
        A connection that `ray.init` has already made is used, and kept.
    trial, project: as for `launch.local`. Each worker writes its log under that path on the machine it runs on.
    secret: what the workers' traffic is encrypted with; without it, one is made up for this run.
    runtime_env: Ray's, for code and packages that the cluster's machines do not have.
    max_placement_s: a worker for which no machine is found in this time has failed.
    within: as for `launch.local`; the maker of that trial has called `connected`.
    """
    program.validate()
    ray = _import_ray()
    secret = secret or secrets.token_urlsafe(32)
    with contextlib.ExitStack() as stack:
        if within is not None:
            folder, url, host, secret = within.folder, within.names_url, within.host, within.secret
            is_own = not within.reserves
        else:
            folder = runs.take_up(stack, project, trial)
            address = address or os.environ.get("RAY_ADDRESS")
            is_own = not ray.is_initialized() and address is None
            if not ray.is_initialized():
                _connect(ray, address, runtime_env, program)
                stack.callback(ray.shutdown)
            host = ray.util.get_node_ip_address()
            url = runs.open_names(stack, names_url, host=host, secret=secret)
        line = lifeline.LifelineServer("127.0.0.1" if is_own else host, secret=secret)  # its own: on this machine
        line.start()
        stack.callback(line.close)
        worker_specs = specs.make_specs(program, folder, names_url=url, host=host, secret=secret)
        reserves = within is None or within.reserves
        warnings = relay.WarningRelay(folder.path / "logs")
        cluster = _Cluster(ray, program, worker_specs, line.address, max_placement_s, warnings, reserves=reserves)
        return runs.begin(
            program,
            folder,
            stack,
            cluster.start,
            engine="ray",
            names_url=url,
            secret=secret,
            on_event=on_event,
            is_within=within is not None,
        )


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise errors.MissingExtra("ray", extra="ray") from error
    return ray


def _connect(
    ray: Any, address: str | None, runtime_env: Mapping[str, Any] | None, program: programs.Program | None = None
) -> None:
    if address is not None and address.startswith("ray://"):
        raise errors.ProgramError(
            f"{address}: workers cannot reach a driver that is connected by a Ray client. Run it on a machine of the "
            "cluster, with address='auto'."
        )
    options: dict[str, Any] = {"address": address}
    if address is None:
        # Of its own cluster a program gets the CPUs it asks for, as it would from `launch.local`. Ray left to itself
        # would look for a cluster that somebody else started here, and refuse a number of CPUs.
        wanted = sum(node.replicas * node.resources.cpus for node in program.nodes) if program is not None else 0.0
        num_cpus = max(os.cpu_count() or 1, math.ceil(wanted))
        options = {"address": "local", "num_cpus": num_cpus, "include_dashboard": False}
    if runtime_env:
        options["runtime_env"] = dict(runtime_env)
    ray.init(log_to_driver=False, logging_level=logging.WARNING, **options)


class _Place(NamedTuple):
    """Where an actor is."""

    pid: int
    host: str  # address
    node: str  # Ray's id of the machine


class _Host:
    """The actor: a process in which one worker lives."""

    def __init__(self) -> None:
        self._ask_exit = child.ExitRequest()
        self._beat: heartbeat.Beat | None = None
        self._warnings: collections.deque[bytes] = collections.deque(maxlen=_MAX_WARNINGS)

    def where(self) -> _Place:
        ray = _import_ray()
        return _Place(os.getpid(), ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id())

    def live(self, spec: specs.WorkerSpec, driver: tuple[str, int]) -> supervisor.End:
        """The whole life of the worker; see `ludus.launch.child`."""
        logs.log_process(spec.worker, folders.TrialFolder(Path(spec.folder)).log_file(spec.worker))
        logging.getLogger().addHandler(relay.RelayHandler(self._warnings.append))
        with lifeline.connect_lifeline(driver, secret=spec.secret) as line:
            watch = lifeline.Lifeline(line.fileno(), ask_exit=self._ask_exit)
            watch.start()
            pulse = heartbeat.Heartbeat(self._note, max_busy_s=spec.max_busy_s, on_hung=_end_hung)
            pulse.start()
            end = child.live(dataclasses.replace(spec, host=self.where().host), self._ask_exit, pulse=pulse)
            pulse.close()
            watch.release()
        return end

    def news(self) -> tuple[heartbeat.Beat | None, list[bytes]]:
        """The last beat, and warnings since the last call. It is answered by a thread of Ray's, while the worker's own
        thread is at work."""
        return self._beat, [self._warnings.popleft() for _ in range(len(self._warnings))]

    def _note(self, beat: heartbeat.Beat) -> None:
        self._beat = beat

    def ask_exit(self, reason: str) -> None:
        self._ask_exit(reason)


def _end_hung(reason: str, stack: str) -> None:
    _LOG.error("%s; this process ends. The loop's stack:\n%s", reason, stack)
    lifeline.end_process_group()


class _Cluster:
    """Starts actors, one for each incarnation of a worker."""

    def __init__(
        self,
        ray: Any,
        program: programs.Program,
        worker_specs: Mapping[str, specs.WorkerSpec],
        driver: tuple[str, int],
        max_placement_s: float,
        warnings: relay.WarningRelay,
        *,
        reserves: bool = True,
    ) -> None:
        """`reserves`: whether workers are placed by the CPUs they ask for, or get them without."""
        self._ray = ray
        self._reserves = reserves
        self._warnings = warnings
        self._worker_specs = worker_specs
        self._driver = driver
        self._max_placement_s = max_placement_s
        self._resources = {worker: node.resources for node in program.nodes for worker in node.worker_names}
        self._died_on: dict[str, str] = {}  # worker → Ray's id of the machine

    def start(self, worker: str, ended: Callable[[supervisor.End], None]) -> _Actor:
        wanted = self._resources[worker]
        # Threads beside the one in which the worker lives: to say where and how it is, and to be asked to exit.
        actor = self._ray.remote(_Host).options(
            num_cpus=wanted.cpus if self._reserves else 0,
            num_gpus=wanted.gpus,
            resources=dict(wanted.custom),
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=4,
            scheduling_strategy=self._place(worker, wanted),
        )
        hosted = _Actor(
            self._ray, actor.remote(), self._worker_specs[worker], wanted, ended, self._died_on, self._warnings
        )
        hosted.watch(self._driver, max_placement_s=self._max_placement_s)
        return hosted

    def _place(self, worker: str, wanted: programs.Resources) -> Any:
        """Apart from its like; and not where its process has just died, because the machine itself may be dead."""
        avoided = self._died_on.pop(worker, None)
        if avoided is None:
            return "SPREAD"
        needs = {"CPU": wanted.cpus, "GPU": wanted.gpus, **wanted.custom}
        others = [
            node["NodeID"]
            for node in self._ray.nodes()
            if node["Alive"]
            and node["NodeID"] != avoided
            and all(node["Resources"].get(kind, 0.0) >= amount for kind, amount in needs.items())
        ]
        if not others:
            return "SPREAD"
        from ray.util import scheduling_strategies

        return scheduling_strategies.NodeAffinitySchedulingStrategy(
            random.choice(others), soft=True, _spill_on_unavailable=True
        )


class _Actor:
    """One worker's actor; `ended` is called with how the worker ended."""

    def __init__(
        self,
        ray: Any,
        actor: Any,
        spec: specs.WorkerSpec,
        wanted: programs.Resources,
        ended: Callable[[supervisor.End], None],
        died_on: MutableMapping[str, str],
        warnings: relay.WarningRelay,
    ) -> None:
        """`died_on` is called with the machine if the process dies, or the machine with it."""
        self._ray = ray
        self._actor = actor
        self._spec = spec
        self._wanted = wanted
        self._ended = ended
        self._died_on = died_on
        self._warnings = warnings
        self._place: _Place | None = None  # once it is known
        self._log_file = folders.TrialFolder(Path(spec.folder)).log_file(spec.worker)
        self._log_start = logs.size(self._log_file)
        self._has_ended = False
        self._asked: Any = None  # for its last beat, and not yet answered
        self._beat: heartbeat.Beat | None = None

    @property
    def pid(self) -> int | None:
        return self._place.pid if self._place else None

    @property
    def host(self) -> str | None:
        return self._place.host if self._place else None

    def watch(self, driver: tuple[str, int], *, max_placement_s: float) -> None:
        """Let the worker live; a thread waits for its end."""
        # Not a callback of Ray's: those run in a thread of Ray's from which Ray cannot be called.
        name = f"ludus-wait-{self._spec.worker}"
        threading.Thread(target=self._wait, args=(driver, max_placement_s), name=name, daemon=True).start()

    def ask_exit(self) -> None:
        self._actor.ask_exit.remote("asked by the driver")

    def kill(self) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):  # it may be gone already
            self._ray.kill(self._actor, no_restart=True)
        if self._is_here and not self._has_ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid or 0, signal.SIGKILL)  # a stopped process does not hear of Ray's wish

    @property
    def _is_here(self) -> bool:
        """Whether its process is on this machine. In a container the same id may be another's: it must be Ray's."""
        if self._place is None or self._place.host != self._ray.util.get_node_ip_address():
            return False
        try:
            return Path(f"/proc/{self._place.pid}/cmdline").read_bytes().startswith(b"ray::")
        except OSError:
            return False

    def vitals(self) -> vital_signs.Vitals:
        """On this machine as for a process of the local engine. Elsewhere only the beats are seen, by asking."""
        if self._place is None:
            return vital_signs.Vitals(beat=None)
        try:
            if self._asked is not None:
                answered, _ = self._ray.wait([self._asked], timeout=0)
                if answered:
                    self._note(self._asked)
                    self._asked = None
            if self._asked is None:
                self._asked = self._actor.news.remote()
        except self._ray.exceptions.RayError:  # it is ending; the thread that waits for it will say how
            return vital_signs.Vitals(beat=self._beat)
        process = vital_signs.read_process(self._place.pid) if self._is_here else None
        is_stopped, cpu_s = process or (False, None)
        return vital_signs.Vitals(beat=self._beat, is_stopped=is_stopped, cpu_s=cpu_s)

    def _note(self, asked: Any) -> None:
        self._beat, warnings = self._ray.get(asked, timeout=_LAST_NEWS_S)
        for line in warnings:
            self._warnings.take(self._spec.worker, line)

    def _wait(self, driver: tuple[str, int], max_placement_s: float) -> None:
        try:
            end = self._live(driver, max_placement_s)
        except self._ray.exceptions.RayTaskError as error:  # the worker's host raised, before the worker could
            end = self._failed("its actor failed", traceback=str(error))
        except Exception as error:
            if self._place is not None:
                self._died_on[self._spec.worker] = self._place.node
            end = self._failed(_explain(error))
        self._has_ended = True
        self.kill()  # the process has served its one worker
        self._ended(end)

    def _live(self, driver: tuple[str, int], max_placement_s: float) -> supervisor.End:
        where, life = self._actor.where.remote(), self._actor.live.remote(self._spec, driver)
        placed, _ = self._ray.wait([where], timeout=max_placement_s)
        if not placed:
            return self._failed(  # until another program leaves it some
                f"the cluster had no place for it within {max_placement_s:g} s. It needs {self._wanted}; the cluster "
                f"has {self._ray.cluster_resources()}, and free of that {self._ray.available_resources()}",
                is_external=True,
            )
        self._place = self._ray.get(where)
        end: supervisor.End = self._ray.get(life)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._note(self._actor.news.remote())  # its last ones
        return end

    def _failed(self, reason: str, *, traceback: str = "", is_external: bool = False) -> supervisor.End:
        lines = tuple(logs.tail(self._log_file, since=self._log_start))
        if not lines and self._place is not None:
            reason = f"{reason} (If it left a log, it is {self._log_file} on {self._place.host}.)"
        return supervisor.End(
            status=core.WorkerStatus.FAILED,
            reason=reason,
            traceback=traceback,
            last_lines=lines,
            is_external=is_external,
        )


def _explain(error: BaseException) -> str:
    """Ray's account of a death on one line, from where it comes to the point."""
    text = " ".join(str(error).split())
    text = text.partition(" Some common causes")[0]
    for point in ("Worker exit detail: ", "The actor is dead because ", "The actor died because "):
        if point in text:
            text = text.partition(point)[2]
            break
    return f"its process died; Ray says: {text}"
