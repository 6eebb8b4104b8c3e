"""What a handle becomes inside a worker: an object whose methods are calls to the service it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.core import Names
from ludus.rpc.client import Pending
from ludus.workers.solver import Solver

__all__ = ["Remote"]


class Remote:
    """`remote.act(obs)` runs `act` at a live replica; `remote.submit("act", obs)` does not wait for it."""

    def __init__(
        self,
        service: str,
        *,
        experiment: str | None = None,
        trial: str | None = None,
        names: Names | None = None,
        secret: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._service = service
        self._solver = Solver(experiment, trial, names=names, secret=secret, timeout_s=timeout_s)
        self._timeout_s: float | None = None  # the solver's

    def __getattr__(self, command: str) -> Callable[..., Any]:
        if command.startswith("_"):
            raise AttributeError(command)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._solver.retrieve(self._service, command, *args, **kwargs)

        call.__name__ = command
        self.__dict__[command] = call
        return call

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending:
        """Send a call and go on; `.result()` has the result."""
        return self._solver.submit(self._service, command, args, kwargs, timeout_s=self._timeout_s)

    def replica(self, index: int) -> Remote:
        """The same, for calls to one replica and no other. Closing either closes both."""
        return self._like(f"{self._service}/{index}", self._timeout_s)

    def within(self, timeout_s: float) -> Remote:
        """The same, for submitted calls that have so much time. Closing either closes both."""
        return self._like(self._service, timeout_s)

    def _like(self, service: str, timeout_s: float | None) -> Remote:
        one = Remote.__new__(Remote)
        one._service, one._solver, one._timeout_s = service, self._solver, timeout_s
        return one

    @property
    def is_there(self) -> bool:
        """Whether a worker has the name now; a call would wait for one."""
        return bool(self._solver.replicas(self._service))

    @property
    def solver(self) -> Solver:
        return self._solver

    def __repr__(self) -> str:
        return f"Remote({self._service!r})"

    def close(self) -> None:
        self._solver.close()
