"""A model as a service: forward passes for callers of other processes, in work-conserving batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ludus import errors
from ludus.rpc.deferred import Deferred
from ludus.services.model.definition import ModelFolder
from ludus.services.model.host import ModelHost
from ludus.services.model.statistics import HostStatistics
from ludus.services.weights.store import VersionStore
from ludus.workers.register import register
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["ModelService"]

_log = logging.getLogger(__name__)
_TRY_AGAIN_S = 5.0
_KEEP_VERSIONS = 32  # who holds what is known to the callers' processes only


class ModelService(Worker):
    """Commands: `forward`, `load`, `verification`. `folder` is the trial's.

    `max_batch` counts rows; a call that has more by itself is run alone. A worker that was started again knows nothing
    of the one before it, and loads what is asked for by its number. If the model cannot run here, callers are told why,
    and now and then it is tried again.
    """

    idle_s = 0.5  # a request ends it

    def __init__(
        self, server: WorkerServer, folder: Path, name: str, *, max_batch: int = 256, num_threads: int = 1
    ) -> None:
        super().__init__(server)
        self._folder = ModelFolder(Path(folder) / "models", name)
        self._changes = {"max_batch": max_batch, "num_threads": num_threads}
        self._host: ModelHost | None = None
        self._error: Exception | None = None
        self._try_again = 0.0
        server.register_service(self)

    def _configure(self, config: Mapping[str, Any]) -> None:
        try:
            settings = self._folder.settings().changed(self._changes)
            self._store = VersionStore(self._folder.folder, keep=settings.keep)
            host = ModelHost(self._folder, settings=settings, keep_versions=_KEEP_VERSIONS, wake=self.server.wake)
            host.prepare()
            self._host = host
        except Exception as error:
            if self._host is not None:  # it goes on as it was
                raise
            _log.exception("the model %s cannot run here", self._folder.name)
            self._error = error
            self._try_again = time.monotonic() + _TRY_AGAIN_S

    @property
    def host(self) -> ModelHost:
        if self._host is None:
            error = self._error or errors.WorkerError("the model is not configured yet")
            raise error.with_traceback(None)  # it is raised more than once
        return self._host

    @register
    def forward(self, version: int | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Deferred:
        """The outputs for arguments with a row axis, of one or more rows, by a version: a number, a tag or "latest".

        Raises `SpecError` for what the model cannot take, and `DataError` for a version that is not there (any more).
        """
        answer = Deferred()
        host = self.host
        number = self._store.resolve(self._folder.name, version)
        host.submit_rows(number, tuple(args), dict(kwargs), _SINK, answer)
        return answer

    @register
    def load(self, number: int) -> None:
        """Have a version ready before it is asked for."""
        self.host.load(number)

    @register
    def verification(self, again: bool = False) -> dict[str, Any]:
        """Which backend runs and how it compared with eager; `again` compares anew, on what was asked since, too."""
        found = self.host.verify_again() if again else self.host.verification
        assert found is not None, "prepared when configured"
        return found.to_nest()

    def is_warming_up(self, doing: str) -> bool:
        return doing != "poll" or self._host is None or not self._host.statistics().num_batches

    def _poll(self) -> int:
        if self._host is not None:
            return self._host.run_pending()
        if time.monotonic() >= self._try_again:
            self._configure(self.config)
        return 0

    def statistics(self) -> HostStatistics:
        return self.host.statistics()

    def _stats(self) -> Mapping[str, Any]:
        if self._host is None:
            return {}
        statistics = self.statistics()
        return {**asdict(statistics), "mean_batch_rows": statistics.mean_batch_rows}

    def _exit(self) -> None:
        if self._host is not None:
            self._host.close()


class _DeferredSink:
    def deliver(self, tokens: list[Deferred], results: list[Any]) -> None:
        for answer, result in zip(tokens, results, strict=True):
            answer.set_result(result)

    def fail(self, tokens: list[Deferred], error: BaseException) -> None:
        for answer in tokens:
            answer.set_error(error)


_SINK = _DeferredSink()
