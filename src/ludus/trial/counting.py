"""What the services of a trial have counted: its driver asks their workers every few seconds.

- `gateway/…`: of all gateway workers of the trial
- `model/NAME/…`: of the workers of a model, and of those that run it themselves (`local_mode`)
- `buffer/NAME/…`
- `worker/NODE/…`: `live`, `restarts`, and the numbers that heartbeats carry, as means; of workers of your own also what
  their `metric_counts` says
"""

from __future__ import annotations

import collections
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ludus import errors, launch
from ludus.models import stats as model_stats
from ludus.program.program import Node
from ludus.telemetry.counts import Counted, Counts, counted_here
from ludus.workers.solver import Solver
from ludus.workers.worker import Worker

__all__ = ["Service", "ServiceCounts", "services_of"]

_LOG = logging.getLogger(__name__)
_ANSWER_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Service:
    """A worker that counts, the prefix of its metrics, and what its stats are.

    `stats`: where it is in this process. `beside`: the worker in whose process it is, if it has none of its own.
    """

    prefix: str
    worker: str
    counts: Callable[[Mapping[str, Any]], Counts | None]
    stats: Callable[[], Mapping[str, Any]] | None = None
    beside: str | None = None


def services_of(nodes: Iterable[Node], *, prefixes: Mapping[str, str] | None = None) -> list[Service]:
    """The workers of a program that count; `prefixes` are of nodes whose name does not say it."""
    found = []
    for node in nodes:
        if issubclass(node.cls, Worker) and node.cls.metric_counts is not Worker.metric_counts:
            prefix = (prefixes or {}).get(node.name) or _prefix(node)
            found += [Service(prefix=prefix, worker=name, counts=node.cls.metric_counts) for name in node.worker_names]
    return found


def _prefix(node: Node) -> str:
    if node.cls.__module__.startswith("ludus.gateway."):
        return "gateway"
    if node.name.startswith("model-"):
        return f"model/{node.name.removeprefix('model-')}"
    return f"worker/{node.name}"


class ServiceCounts:
    """Asks, and adds up. Called by one thread at a time."""

    def __init__(
        self,
        services: Callable[[], Iterable[Service]],
        records: Callable[[], Iterable[launch.WorkerRecord]],
        solver: Solver,
    ) -> None:
        self._services = services
        self._records = records
        self._solver = solver
        self._counted: dict[str, Counted] = {}
        self._looked_at = time.monotonic()

    def __call__(self) -> dict[str, float]:
        """The metrics that are new since the last call."""
        records = list(self._records())
        up = {record.name for record in records if record.status is launch.Phase.RUNNING}
        asked = []
        for service in list(self._services()):
            if service.stats is not None:
                self._take(service, service.stats())
            elif (service.beside or service.worker) in up:
                try:
                    pending = self._solver.submit(service.worker, "stats", timeout_s=_ANSWER_S)
                except errors.LudusError as error:
                    _LOG.debug("%s cannot be asked what it counts: %s", service.worker, error)
                else:
                    asked.append((service, pending))
        for service, pending in asked:
            try:
                self._take(service, pending.result())
            except errors.LudusError as error:  # it is busy, hung, gone or on its way up: it counts for itself
                _LOG.debug("%s does not say what it counts: %s", service.worker, error)
        self._take_inside("driver", 0, counted_here())
        self._take_records(records)
        self._looked_at = time.monotonic()
        return {name: value for one in self._counted.values() for name, value in one.news().items()}

    def _take(self, service: Service, stats: Mapping[str, Any]) -> None:
        incarnation = stats.get("pid")
        counts = service.counts(stats)
        if counts is not None:
            self._add(service.prefix, service.worker, counts, incarnation)
        self._take_inside(service.worker, incarnation, stats.get("inside", {}))

    def _take_inside(self, worker: str, incarnation: object, inside: Mapping[str, Mapping[str, Any]]) -> None:
        """Models that a worker runs itself."""
        for name, stats in inside.items():
            self._add(name.partition(":")[0], f"{worker}:{name}", model_stats.counts(stats), incarnation)

    def _take_records(self, records: Iterable[launch.WorkerRecord]) -> None:
        by_node: collections.defaultdict[str, list[launch.WorkerRecord]] = collections.defaultdict(list)
        for record in records:
            by_node[record.name.rpartition("/")[0]].append(record)
        for node, workers in by_node.items():
            up = [one for one in workers if one.status is launch.Phase.RUNNING]
            idle = [one.report["idle"] for one in up if "idle" in one.report]
            levels = {
                "live": len(up),
                "restarts": sum(one.restarts for one in workers),
                **({"idle": round(sum(idle) / len(idle), 4)} if idle else {}),
            }
            self._add(f"worker/{node}", "supervisor", Counts(levels=levels, quiet=frozenset({"idle"})), None)

    def _add(self, prefix: str, worker: str, counts: Counts, incarnation: object) -> None:
        counted = self._counted.get(prefix)
        if counted is None:
            counted = self._counted[prefix] = Counted(prefix, since=self._looked_at)
        counted.take(worker, counts, incarnation=incarnation)
