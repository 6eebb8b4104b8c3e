"""A league that is somewhere else: calls to its service, which may be killed and started again in between.

    league = LeagueCaller(Remote("league"))
    league.request_matches("main", 64, "learner/0")

Whatever is called may be called twice: a result counts once, a learner's step is the same step, and of matches that
were asked for twice the first are aborted when nobody reports them.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from ludus.data.nest import Nest
from ludus.errors import DeadlineExceeded, OutcomeUnknown, Overloaded, Unreachable
from ludus.rpc.call import Pending

__all__ = ["LeagueCaller"]

_PATIENCE_S = 60.0
_PAUSE_S = 0.1


class _Calls(Protocol):
    """A `Remote`."""

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending: ...


class LeagueCaller:
    """Waits for a service that is being started again, up to `patience_s`; then the last error is raised."""

    def __init__(self, service: _Calls, *, patience_s: float = _PATIENCE_S) -> None:
        self._service = service
        self._patience_s = patience_s

    def request_matches(self, learner: str, num: int, owner: str = "") -> list[Nest]:
        return list(self._call("request_matches", learner, num, owner))

    def request_evaluations(self, num: int, names: list[str] | None = None, owner: str = "") -> list[Nest]:
        return list(self._call("request_evaluations", num, names, owner))

    def report_series(self, results: list[Nest]) -> list[bool]:
        return list(self._call("report_series", results))

    def next_learner(self, part: int = 0, num_parts: int = 1) -> Nest:
        return self._call("next_learner", part, num_parts)

    def advance(self, name: str, step: int, version: int | None = None) -> Nest:
        return self._call("advance", name, step, version)

    def players(self) -> list[Nest]:
        return list(self._call("players"))

    def mixture(self) -> dict[str, float]:
        return dict(self._call("mixture"))

    def num_missing_evaluations(self) -> int:
        return int(self._call("num_missing_evaluations"))

    def start_process(self, owner: str) -> int:
        return int(self._call("start_process", owner))

    def release(self, owner: str) -> int:
        return int(self._call("release", owner))

    def request_for(
        self, name: str | None = None, role: str | None = None, owner: str = "", without: list[str] | None = None
    ) -> Nest:
        return self._call("request_for", name, role, owner, without)

    def request_named(self, names: list[str], owner: str = "") -> Nest:
        return self._call("request_named", names, owner)

    def add_player(self, player: Nest) -> None:
        self._call("add_player", player)

    def keep(self, owner: str) -> None:
        self._call("keep", owner)

    def can_evaluate(self) -> bool:
        return bool(self._call("can_evaluate"))

    def statistics(self) -> dict[str, Any]:
        return dict(self._call("statistics"))

    def abort_match(self, match: str) -> bool:
        return bool(self._call("abort_match", match))

    def _call(self, command: str, *args: Any) -> Any:
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self._service.submit(command, *args).result()
            except (Unreachable, OutcomeUnknown, DeadlineExceeded, Overloaded):
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE_S)
