"""The control panel: commands to the workers of a trial, by name, one or many at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ludus import errors
from ludus.core import Names
from ludus.discovery import names as spell
from ludus.rpc.client import Pending, RpcClient
from ludus.workers import context

__all__ = ["Outcome", "WorkerControlPanel"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one worker's part of a group call: a value or an error."""

    worker: str
    value: Any = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    def unwrap(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


class WorkerControlPanel:
    """Speaks to the workers of one trial. A worker that was restarted is found again by its name."""

    def __init__(
        self,
        experiment: str | None = None,
        trial: str | None = None,
        *,
        names: Names | None = None,
        secret: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Without arguments, the trial that this process belongs to."""
        here = context.complete(experiment, trial, names, secret)
        self._experiment = here.experiment
        self._trial = here.trial
        self._names = here.names
        self._secret = here.secret
        self._timeout_s = timeout_s
        self._clients: dict[str, RpcClient] = {}
        self._addresses: dict[str, str] = {}

    @property
    def worker_names(self) -> list[str]:
        """The workers that are connected, sorted."""
        return sorted(self._clients)

    def connect(self, worker_names: Sequence[str] | str, *, timeout: float | None = None) -> None:
        """Connect to these workers, waiting for their names. Raises `NameTimeout`."""
        wanted = [worker_names] if isinstance(worker_names, str) else worker_names
        until = time.monotonic() + (self._timeout_s if timeout is None else timeout)
        for name in wanted:
            left = max(until - time.monotonic(), 0.001)
            self._use(name, self._names.wait(spell.worker(self._experiment, self._trial, name), left))

    def auto_connect(self) -> list[str]:
        """Connect to every worker that is there now, forget those that are gone, and return their names."""
        found = {}
        for key in self._names.find_subtree(spell.worker_root(self._experiment, self._trial)):
            with contextlib.suppress(errors.NameNotFound):  # it left between the two questions
                found[spell.worker_name(key)] = self._names.get(key)
        for name in set(self._clients) - set(found):
            self._clients.pop(name).close()
            self._addresses.pop(name, None)
        for name, address in found.items():
            self._use(name, address)
        return self.worker_names

    autoconnect = auto_connect

    def _use(self, name: str, address: str) -> RpcClient:
        if self._addresses.get(name) != address:
            old = self._clients.pop(name, None)
            if old is not None:
                old.close()
            self._clients[name] = RpcClient(address, secret=self._secret, timeout_s=self._timeout_s)
            self._addresses[name] = address
        return self._clients[name]

    def request(self, worker_name: str, command: str, **kwargs: Any) -> Any:
        """Run `command(**kwargs)` at one worker and wait for its result."""
        [outcome] = self.group_request(command, worker_names=[worker_name], worker_kwargs=[kwargs])
        return outcome.unwrap()

    def async_request(self, worker_name: str, command: str, **kwargs: Any) -> Pending:
        """Send `command(**kwargs)` to one worker; the result is had by `.result()`."""
        return self._client(worker_name).submit(command, kwargs=kwargs)

    def group_request(
        self,
        command: str,
        *,
        worker_names: Sequence[str] | None = None,
        worker_regex: str | None = None,
        worker_kwargs: Sequence[Mapping[str, Any]] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[Outcome]:
        """Run `command(**kwargs)` at several workers at once; one outcome for each, in order.

        Without names or a regex (matched against whole names), all that are connected. `worker_kwargs` has one entry
        for each worker, beside the `kwargs` that all get. A worker that fails, is late or is gone is an outcome with
        an error; the others are not disturbed.
        """
        chosen = self._choose(worker_names, worker_regex)
        if worker_kwargs is not None and len(worker_kwargs) != len(chosen):
            raise ValueError(
                f"worker_kwargs has {len(worker_kwargs)} entries for {len(chosen)} workers: {', '.join(chosen)}"
            )
        until = time.monotonic() + (self._timeout_s if timeout is None else timeout)
        own_kwargs = worker_kwargs if worker_kwargs is not None else [{}] * len(chosen)
        all_kwargs = [{**kwargs, **own} for own in own_kwargs]
        sent = [self._submit(name, command, kw, until) for name, kw in zip(chosen, all_kwargs, strict=True)]
        outcomes = []
        for name, own, pending in zip(chosen, all_kwargs, sent, strict=True):
            outcome = _outcome(name, pending)
            if isinstance(outcome.error, errors.Unreachable) and self._has_moved(name):
                outcome = _outcome(name, self._submit(name, command, own, until))
            outcomes.append(outcome)
        return outcomes

    def _choose(self, worker_names: Sequence[str] | None, worker_regex: str | None) -> list[str]:
        if worker_names is not None and worker_regex is not None:
            raise ValueError("give worker_names or worker_regex, not both")
        if worker_names is not None:
            return list(worker_names)
        if worker_regex is None:
            return self.worker_names
        return [name for name in self.worker_names if re.fullmatch(worker_regex, name)]

    def _client(self, name: str) -> RpcClient:
        if name not in self._clients:
            try:
                self._use(name, self._names.get(spell.worker(self._experiment, self._trial, name)))
            except errors.NameNotFound:
                raise errors.Unreachable(
                    f"there is no worker {name!r}. {spell.nearest(name, self.worker_names)}"
                ) from None
        return self._clients[name]

    def _submit(self, name: str, command: str, kwargs: Mapping[str, Any], until: float) -> Pending | Exception:
        try:
            return self._client(name).submit(command, kwargs=kwargs, timeout_s=until - time.monotonic())
        except errors.LudusError as error:
            return error

    def _has_moved(self, name: str) -> bool:
        """Whether the worker has a new address; if so, it is used from now on."""
        before = self._addresses.get(name)
        try:
            address = self._names.get(spell.worker(self._experiment, self._trial, name))
        except errors.DiscoveryError:
            return False
        self._use(name, address)
        return address != before

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._addresses.clear()

    def __enter__(self) -> WorkerControlPanel:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _outcome(name: str, pending: Pending | Exception) -> Outcome:
    if isinstance(pending, Exception):
        return Outcome(name, error=pending)
    try:
        return Outcome(name, pending.result())
    except errors.LudusError as error:
        return Outcome(name, error=error)
