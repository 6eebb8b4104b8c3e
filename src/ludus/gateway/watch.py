"""Hung is not dead: noticing workers that are there and do nothing.

| what hangs | who notices | after | what follows |
|---|---|---|---|
| the process is stopped (SIGSTOP, a debugger) | `Watch`, in the process that started it | 2 s | it is killed |
| an actor's method waits, and the loop with it | `LoopWatch`, in the worker's main thread | `max_block_s` | it ends |
| an actor's method computes | `LoopWatch` | 6 x `max_block_s` | it ends |
| no thread runs: code keeps the interpreter's lock | `Watch` | 6 x `max_block_s` + 5 s | it is killed |

In all of them a successor is started, and the sessions are lost like those of a worker that died. Computing is allowed
more than waiting: importing torch takes a minute on a busy machine, and the successor would be ended at the same place.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from ludus import errors
from ludus.gateway.beat import Pulse, is_process, is_stopped, read_pulse

__all__ = ["LoopWatch", "Stillness", "Watch"]

_LOG = logging.getLogger(__name__)
_STOPPED_S = 2.0
_COMPUTING = 6  # times `max_block_s` for what uses its processor
_CPU_STEP_S = 0.01  # less than this between two looks is no computing
_LOCKED_S = 5.0  # beyond that, in which a worker should have ended by itself
_MAX_STEP_S = 1.0
_NUM_FRAMES = 6

Clock = Callable[[], float]


class Stillness:
    """For how long a value has not changed, in time that the watcher was awake.

    A watcher that was held up itself (the machine slept, everything was stopped) has seen nothing, so what passed
    between two looks counts as one second at most.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._seen = clock()
        self._value: object = None
        self.still_s = 0.0

    def look(self, value: object) -> float:
        """Tell it the value as it is now; returns for how long it has been that."""
        now = self._clock()
        passed, self._seen = min(now - self._seen, _MAX_STEP_S), now
        self.still_s = self.still_s + passed if value == self._value else 0.0
        self._value = value
        return self.still_s


class Watch:
    """Kills workers that hang; who started them starts them again. `beats` are their files, by worker."""

    def __init__(self, beats: Mapping[str, Path], *, max_block_s: float, clock: Clock = time.monotonic) -> None:
        self._beats = dict(beats)
        self._max_still_s = _COMPUTING * max_block_s + _LOCKED_S
        self._stillness = {worker: Stillness(clock) for worker in beats}

    def check(self) -> None:
        """Called every quarter of a second."""
        for worker, path in self._beats.items():
            pulse = read_pulse(path)
            still_s = self._stillness[worker].look(pulse)
            if pulse is None or pulse.pid == os.getpid():
                continue
            if still_s >= _STOPPED_S and is_stopped(pulse):
                self._kill(worker, pulse, f"has been stopped (SIGSTOP, or a debugger) for {still_s:.1f} s")
            elif still_s >= self._max_still_s and is_process(pulse):
                self._kill(worker, pulse, f"has shown no sign of life for {still_s:.1f} s: no thread of it runs")

    def _kill(self, worker: str, pulse: Pulse, what: str) -> None:
        _LOG.error("%s (pid %d) %s. It is killed and started again; its sessions are lost", worker, pulse.pid, what)
        try:
            os.kill(pulse.pid, signal.SIGKILL)
        except ProcessLookupError:
            _LOG.info("%s (pid %d) has already ended", worker, pulse.pid)


class LoopWatch:
    """For the main thread of a worker whose event loop is another."""

    def __init__(self, *, max_block_s: float, clock: Clock = time.monotonic) -> None:
        self._max_block_s = max_block_s
        self._held_up = Stillness(clock)
        self._waiting = Stillness(clock)

    def check(self, num_turns: int, *, cpu_s: float, thread: int | None) -> float:
        """For how long the loop has not turned. Raises `WorkerError` if that is too long.

        `cpu_s` is the processor time that its thread has used.
        """
        held_up_s = self._held_up.look(num_turns)
        waiting_s = self._waiting.look((num_turns, int(cpu_s / _CPU_STEP_S)))
        if waiting_s < self._max_block_s and held_up_s < _COMPUTING * self._max_block_s:
            return held_up_s
        frame = sys._current_frames().get(thread) if thread is not None else None
        where = "".join(traceback.format_stack(frame)[-_NUM_FRAMES:]) if frame is not None else "(its thread is gone)"
        raise errors.WorkerError(
            f"the event loop has been held up for {held_up_s:.1f} s (max_block_s is {self._max_block_s:g}; what "
            f"computes has {_COMPUTING} times that). This worker is replaced, and its sessions are lost. Make the "
            "actor's method a coroutine that awaits what takes long (asyncio.to_thread runs code that blocks), or "
            f"allow more by max_block_s. It is here:\n{where}"
        )
