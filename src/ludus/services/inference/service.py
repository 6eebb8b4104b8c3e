"""Inference as a service: whenever it is free, it runs everything that is pending, one batch for each version.

Requests that arrive while a batch runs make the next one, so batches grow with the load by themselves and nobody waits
for a timer. Each request is answered by the version that it names; "latest" is the newest when its batch begins.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import errors
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.rpc.deferred import Deferred
from ludus.services.inference.request import Request, RequestSpec, join
from ludus.services.inference.versions import LoadedVersions, ServedPolicy
from ludus.services.weights.client import WeightsClient
from ludus.workers.register import register
from ludus.workers.remote import Remote
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["InferenceService", "InferenceStatistics"]


@dataclass(frozen=True, kw_only=True)
class InferenceStatistics:
    num_requests: int
    num_rows: int
    num_batches: int  # forward passes
    num_refused: int  # requests that failed, each alone
    num_pending: int
    num_loads: int  # versions loaded so far
    versions: tuple[int, ...]  # loaded now
    busy_s: float
    idle_s: float

    @property
    def mean_batch_rows(self) -> float:
        return self.num_rows / self.num_batches if self.num_batches else 0.0


class InferenceService(Worker):
    """Command: `forward`. `weights` is the remote of a `WeightsService`, or its folder on this host.

    `max_batch` counts rows; a request that has more by itself is run alone. `keep_versions` are ready to run at a time,
    others are loaded when asked for. `build` makes the policy, if it is not the usual one.
    """

    idle_s = 0.5  # a request ends it

    def __init__(
        self,
        server: WorkerServer,
        policy_spec: PolicySpec,
        weights: Remote | Path | str,
        *,
        model: str = "policy",
        max_batch: int = 1024,
        keep_versions: int = 4,
        num_threads: int = 1,
        build: Callable[[PolicySpec], ServedPolicy] = Policy,
    ) -> None:
        super().__init__(server)
        if min(max_batch, keep_versions, num_threads) < 1:
            raise errors.ConfigError("max_batch, keep_versions and num_threads begin at 1")
        self._policy_spec = policy_spec
        self._source = weights
        self._model = model
        self._max_batch = max_batch
        self._keep_versions = keep_versions
        self._num_threads = num_threads
        self._build = build
        self._pending: deque[Request] = deque()
        self._num_requests = self._num_rows = self._num_batches = self._num_refused = 0
        self._busy_s = 0.0
        self._began = time.monotonic()
        server.register_service(self)

    def _configure(self, config: Mapping[str, Any]) -> None:
        torch.set_num_threads(self._num_threads)
        self._weights = WeightsClient(self._source)
        policy = self._build(self._policy_spec)
        spares = [policy]  # the first one is there already
        self._spec = RequestSpec(self._policy_spec.obs, policy.memory_spec)
        self._versions = LoadedVersions(
            self._weights,
            self._model,
            lambda: spares.pop() if spares else self._build(self._policy_spec),
            keep=self._keep_versions,
        )

    def _reconfigure(self, config: Mapping[str, Any]) -> None:
        unknown = sorted(config.keys() - {"max_batch"})
        if unknown or int(config.get("max_batch", 1)) < 1:
            raise errors.ConfigError(f"only max_batch, from 1, can be changed while it runs; not {unknown or config}")
        self._max_batch = int(config.get("max_batch", self._max_batch))

    @register
    def forward(self, version: int | str, obs: Nest, memory: Nest, first: NDArray[np.bool_]) -> Deferred:
        """`params` [n, ...] of the distribution and the `memory` after `obs` [n, ...], and the `version` they are by.

        `version` is a number, a tag or "latest". Raises `SpecError` for what the policy cannot take, and `DataError`
        for a version that is not there (any more).
        """
        self._num_requests += 1
        try:
            self._spec.check(version, obs, memory, first)
        except errors.DataError:
            self._num_refused += 1
            raise
        request = Request(version=version, obs=obs, memory=memory, first=first, answer=Deferred())
        self._pending.append(request)
        return request.answer

    def activity(self, method: str) -> str:
        return "forward" if method == "poll" else method

    def has_worked(self, *, is_busy: bool) -> bool:
        return self._num_batches > 0

    def is_warming_up(self, doing: str) -> bool:
        return not self._num_batches

    def _poll(self) -> int:
        if not self._pending:
            return 0
        began = time.monotonic()
        rows = 0
        for number, requests in self._take().items():
            rows += self._run(number, requests)
        self._busy_s += time.monotonic() - began
        return rows

    def _take(self) -> dict[int, list[Request]]:
        """All that is pending, up to `max_batch` rows, by the version that is meant."""
        taken: dict[int, list[Request]] = {}
        rows = 0
        while self._pending and (not rows or rows + self._pending[0].num_rows <= self._max_batch):
            request = self._pending.popleft()
            rows += request.num_rows
            try:
                number = self._versions.resolve(request.version)
            except errors.LudusError as error:
                self._refuse([request], error)
            else:
                taken.setdefault(number, []).append(request)
        return taken

    def _run(self, number: int, requests: list[Request]) -> int:
        """One forward pass for requests of one version. What goes wrong is told to these callers and to no others."""
        sizes = [request.num_rows for request in requests]
        try:
            runner = self._versions.runner(number)
        except Exception as error:
            self._refuse([request for request in requests if not self._ask_again(request, number)], error)
            return 0
        try:
            params, memory = runner(*join(requests))
            answers = nests.split({"params": params, "memory": memory}, sizes)
        except Exception as error:
            self._refuse(requests, error)
            return 0
        self._num_batches += 1
        self._num_rows += sum(sizes)
        for request, answer in zip(requests, answers, strict=True):
            request.answer.set_result({**answer, "version": number})
        return sum(sizes)

    def _ask_again(self, request: Request, gone: int) -> bool:
        """Put a request back whose name stands for another version by now: retention was quicker than we were."""
        if isinstance(request.version, int):
            return False
        try:
            is_other = self._versions.resolve(request.version) != gone
        except errors.LudusError:  # the name is gone, too: it is refused with the reason that its version is
            return False
        if is_other:
            self._pending.append(request)
        return is_other

    def _refuse(self, requests: list[Request], error: Exception) -> None:
        self._num_refused += len(requests)
        for request in requests:
            request.answer.set_error(error)

    def statistics(self) -> InferenceStatistics:
        return InferenceStatistics(
            num_requests=self._num_requests,
            num_rows=self._num_rows,
            num_batches=self._num_batches,
            num_refused=self._num_refused,
            num_pending=len(self._pending),
            num_loads=self._versions.num_loads,
            versions=self._versions.numbers,
            busy_s=self._busy_s,
            idle_s=time.monotonic() - self._began - self._busy_s,
        )

    def _stats(self) -> Mapping[str, Any]:
        statistics = self.statistics()
        return {**asdict(statistics), "mean_batch_rows": statistics.mean_batch_rows}

    def _exit(self) -> None:
        self._weights.close()
        for request in self._pending:
            request.answer.set_error(errors.Unreachable("the inference service ends; the request was not run"))
