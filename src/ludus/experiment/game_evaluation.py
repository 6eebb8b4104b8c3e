"""The evaluation of a run on games: greedy sessions, which nothing is learnt from, of whatever games come.

The episodes that count are those that began first: who ends first played short episodes, as bad ones often are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ludus import clock as clocks
from ludus import errors
from ludus.experiment.final_evaluation import NOT_EVALUATED
from ludus.rpc.call import Pending

__all__ = ["EvaluationLog", "GameEvaluation", "Played"]

_LOG = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.05

PLAYING, OVER, CUT_OFF, VOID = "playing", "over", "cut off", "void"


@dataclass(kw_only=True)
class Played:
    """One greedy episode; `started` by the machine's monotonic clock."""

    started: float
    max_steps: int
    total: float = 0.0
    length: int = 0
    state: str = PLAYING

    def note(self, total: float, length: int) -> None:
        """It has come so far. One that is longer than `max_steps` counts as it is then."""
        if self.state == PLAYING:
            self.total, self.length = total, length
            if length >= self.max_steps:
                self.state = CUT_OFF

    def end(self, *, is_whole: bool) -> None:
        """The session is over; `is_whole`: because its game said so."""
        if self.state == PLAYING:
            self.state = OVER if is_whole and self.length else VOID


class EvaluationLog:
    """The greedy episodes of one gateway worker. Of those that are not void, the first `episodes` are kept."""

    def __init__(self, *, episodes: int, max_steps: int) -> None:
        self._episodes = episodes
        self._max_steps = max_steps
        self._played: list[Played] = []
        self._num_steps = 0

    def begin(self) -> Played | None:
        """A session begins; `None` if there are enough without it."""
        self._played = [played for played in self._played if played.state != VOID]
        if len(self._played) >= self._episodes:
            return None
        played = Played(started=time.monotonic(), max_steps=self._max_steps)
        self._played.append(played)
        return played

    def note_step(self) -> None:
        self._num_steps += 1

    def to_nest(self) -> dict[str, Any]:
        played = [[each.started, each.total, each.length, each.state] for each in self._played]
        return {"played": played, "num_steps": self._num_steps}


class _Worker(Protocol):
    """What a gateway worker is called by: `ludus.workers.remote.Remote`."""

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending: ...


class GameEvaluation:
    """Asks gateway workers for greedy episodes, until there are `episodes`, or no step of one for `wait_s`.

    A worker that is started again is asked again; what it had finished counts.
    """

    def __init__(
        self,
        workers: Sequence[_Worker],
        *,
        episodes: int,
        wait_s: float,
        address: str,
        clock: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self.doing = f"evaluate: wait for games on {address}"
        self._workers = workers
        self._episodes = episodes
        self._wait_s = wait_s
        self._address = address
        self._clock = clock
        self._since = clock.now()
        self._num_steps: dict[tuple[int, str], int] = {}
        self._played: dict[tuple[int, str], list[list[Any]]] = {}  # by worker and its incarnation
        self._has_started = False

    def turn(self, max_steps: int) -> dict[str, Any] | None:
        """Look once, after a moment; the fields of the result when it is over. Episodes end at `max_steps`."""
        if not self._has_started:
            self._has_started, self._since = True, self._clock.now()
        for index in range(len(self._workers)):
            self._look(index, max_steps)
        every = (played for group in self._played.values() for played in group if played[3] != VOID)
        counted = sorted(every, key=lambda played: float(played[0]))[: self._episodes]
        over = [played for played in counted if played[3] != PLAYING]
        if counted:
            self.doing = f"evaluate: {len(over)} of {self._episodes} episodes of games on {self._address}"
        is_silent = self._clock.now() - self._since >= self._wait_s
        if len(over) == self._episodes or is_silent:
            return self._result(over)
        self._clock.wait(threading.Event(), _LOOK_EVERY_S)
        return None

    def _look(self, index: int, max_steps: int) -> None:
        try:
            answer = self._workers[index].submit("evaluate", self._episodes, max_steps).result()
        except errors.LudusError as error:  # it is being started again, perhaps
            _LOG.debug("gateway worker %d does not say what was played: %s", index, error)
            return
        key = (index, str(answer["incarnation"]))
        for other, group in self._played.items():
            if other[0] == index and other != key:  # the sessions of that process are lost
                self._played[other] = [played for played in group if played[3] not in (PLAYING, VOID)]
        self._played[key] = answer["played"]
        if answer["num_steps"] != self._num_steps.get(key):
            self._num_steps[key] = answer["num_steps"]
            if answer["num_steps"]:
                self._since = self._clock.now()

    def _result(self, over: list[list[Any]]) -> dict[str, Any]:
        if not over:
            return {
                **NOT_EVALUATED,
                "eval_error": f"not evaluated: no game on {self._address} played an episode to its end; none made a "
                f"step for {self._wait_s:g} s",
            }
        returns = [float(played[1]) for played in over]
        return {
            **NOT_EVALUATED,
            "eval_return_mean": float(np.mean(returns)),
            "eval_return_std": float(np.std(returns)),
            "eval_episodes": len(over),
            "eval_cut_off": sum(played[3] == CUT_OFF for played in over),
        }
