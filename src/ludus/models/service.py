"""A model as a worker: forward passes for callers of other processes, in work-conserving batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ludus import errors
from ludus.learn.policies.policy import PolicySpec
from ludus.learn.policies.served import ServedPolicy
from ludus.models.definition import Definition, ModelFolder
from ludus.models.kernel import Kernel
from ludus.models.settings import ModelSettings
from ludus.models.stats import counts
from ludus.models.torch_weights import as_arrays
from ludus.models.versions.client import connect
from ludus.rpc.deferred import Deferred
from ludus.telemetry.counts import Counts
from ludus.workers.register import register
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["ModelService"]

_log = logging.getLogger(__name__)
_TRY_AGAIN_S = 5.0
_KEEP_VERSIONS = 32  # which versions are held is known to the callers' processes only


class ModelService(Worker):
    """Commands: `forward`, `load`, `verification`. It runs the model `name`.

    source: the trial's folder, which has the model's definition, settings and versions. With a `policy`, the model is
        that policy, without its value, and `source` has only its versions: a folder, or the remote of a
        `WeightsService`.
    max_batch, num_threads, backend: as in `ModelSettings`; `None` is the model's own, and of a policy "numpy".
    keep_versions: how many stay ready to run; others are loaded when asked for.

    If a named model cannot run here, calls raise the reason, and it is tried again every few seconds.
    """

    idle_s = 0.5  # a request ends it

    def __init__(
        self,
        server: WorkerServer,
        source: Any,
        name: str,
        *,
        policy: PolicySpec | None = None,
        max_batch: int | None = None,
        num_threads: int | None = None,
        backend: str | None = None,
        keep_versions: int = _KEEP_VERSIONS,
    ) -> None:
        super().__init__(server)
        self._source = source
        self._name = name
        self._policy = policy
        self._given = {"max_batch": max_batch, "num_threads": num_threads, "backend": backend}
        ModelSettings().changed({**self._given, "keep": keep_versions})  # raises
        self._keep_versions = keep_versions
        self._kernel: Kernel | None = None
        self._error: Exception | None = None
        self._try_again = 0.0
        server.register_service(self)

    def _configure(self, config: Mapping[str, Any]) -> None:
        if self._policy is not None:
            self._kernel = self._make_policy(self._policy)  # a failure ends the worker: a run cannot do without it
            return
        try:
            self._kernel = self._make_named()
        except Exception as error:
            _log.exception("the model %s cannot run here", self._name)
            self._error = error
            self._try_again = time.monotonic() + _TRY_AGAIN_S

    def _make_named(self) -> Kernel:
        folder = ModelFolder(Path(self._source) / "models", self._name)
        settings = folder.settings().changed(self._given)
        kernel = Kernel.of(folder, settings=settings, keep_versions=self._keep_versions, wake=self.server.wake)
        kernel.prepare()
        return kernel

    def _make_policy(self, spec: PolicySpec) -> Kernel:
        module = ServedPolicy(spec, has_value=False)
        kernel = Kernel(
            self._name,
            Definition(module=module, forward_args=module.example()),
            connect(self._source),
            settings=ModelSettings(backend="numpy").changed(self._given),
            keep_versions=self._keep_versions,
            wake=self.server.wake,
        )
        kernel.prepare(as_arrays(module))  # there may be no version yet
        return kernel

    def _reconfigure(self, config: Mapping[str, Any]) -> None:
        unknown = sorted(config.keys() - {"max_batch"})
        if unknown or int(config.get("max_batch", 1)) < 1:
            raise errors.ConfigError(f"only max_batch, from 1, can be changed while it runs; not {unknown or config}")
        self.kernel.max_batch = int(config.get("max_batch", self.kernel.max_batch))

    @property
    def kernel(self) -> Kernel:
        if self._kernel is None:
            error = self._error or errors.WorkerError("the model is not configured yet")
            raise error.with_traceback(None)  # it is raised more than once
        return self._kernel

    @register
    def forward(self, version: int | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Deferred:
        """`outputs` for arguments with a row axis, of one or more rows, and the number of the `version` that ran.

        `version` is a number, a tag or "latest". Raises `SpecError` for what the model cannot take, and `DataError`
        for a version that is not there (any more).
        """
        if type(version) not in (int, str):
            raise errors.DataError(f"a version is a number, a tag or 'latest', not a {type(version).__name__}")
        answer = Deferred()
        self.kernel.submit_rows(version, tuple(args), dict(kwargs), _SINK, answer)
        return answer

    @register
    def load(self, number: int) -> None:
        """Make a version ready before it is asked for."""
        self.kernel.load(number)

    @register
    def verification(self, again: bool = False) -> dict[str, Any]:
        """Which backend runs and how it compares with eager; `again`: compare again, on recently seen rows, too."""
        found = self.kernel.prepare() if again else self.kernel.verification
        assert found is not None, "prepared when configured"
        return found.to_nest()

    def activity(self, method: str) -> str:
        return "forward" if method == "poll" else method

    def has_worked(self, *, is_busy: bool) -> bool:
        return self._kernel is not None and self._kernel.stats().num_batches > 0

    def is_warming_up(self, doing: str) -> bool:
        return doing != "forward" or not self.has_worked(is_busy=True)

    def _poll(self) -> int:
        if self._kernel is not None:
            return self._kernel.run_pending()
        if time.monotonic() >= self._try_again:
            self._configure(self.config)
        return 0

    def _stats(self) -> Mapping[str, Any]:
        if self._kernel is None:
            return {}
        stats = self._kernel.stats()
        return {**asdict(stats), "mean_batch_rows": stats.mean_batch_rows}

    @staticmethod
    def metric_counts(stats: Mapping[str, Any]) -> Counts | None:
        return counts(stats) if "num_rows" in stats else None  # it may not run yet

    def _exit(self) -> None:
        if self._kernel is not None:
            self._kernel.close()


class _DeferredSink:
    def deliver(self, tokens: list[Deferred], results: list[Any], version: int) -> None:
        for answer, result in zip(tokens, results, strict=True):
            answer.set_result({"outputs": result, "version": version})

    def fail(self, tokens: list[Deferred], error: BaseException) -> None:
        for answer in tokens:
            answer.set_error(error)


_SINK = _DeferredSink()
