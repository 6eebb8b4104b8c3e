"""A channel that misbehaves on purpose: answers are dropped, delayed and delivered twice, calls too if asked for."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections import deque

from ludus.rpc.address import Address
from ludus.rpc.opening import OpenChannel, nearest
from ludus.rpc.transport import Channel, Frames

__all__ = ["FaultStats", "Faults", "FaultyChannel"]


@dataclasses.dataclass(kw_only=True)
class FaultStats:
    """What was done to the messages of all channels of one `Faults`."""

    num_passed: int = 0
    num_dropped: int = 0
    num_delayed: int = 0
    num_duplicated: int = 0


class Faults:
    """How often each fault happens. `Solver(..., opener=faults.open)` sends all its calls through them."""

    def __init__(
        self,
        *,
        seed: int,
        drop: float = 0.0,
        delay: float = 0.0,
        duplicate: float = 0.0,
        max_delay_s: float = 0.05,
        on_calls: bool = False,
        opener: OpenChannel | None = None,
    ) -> None:
        self.drop = drop
        self.delay = delay
        self.duplicate = duplicate
        self.max_delay_s = max_delay_s
        self.on_calls = on_calls
        self.random = random.Random(seed)
        self.statistics = FaultStats()
        self._opener: OpenChannel = opener or (
            lambda to, timeout_s: nearest(to, transport=None, secret=None, timeout_s=timeout_s, max_bytes=1 << 30)
        )

    def open(self, address: Address, timeout_s: float) -> Channel:
        return FaultyChannel(self._opener(address, timeout_s), self)


class FaultyChannel:
    """Passes messages on, less reliably."""

    def __init__(self, inner: Channel, faults: Faults) -> None:
        self.same_host = inner.same_host
        self.instance = getattr(inner, "instance", "")
        self._inner = inner
        self._faults = faults
        self._held: deque[tuple[float, Frames]] = deque()  # (due, message), by due time
        self._lock = threading.Lock()

    def send(self, frames: Frames, timeout_s: float) -> None:
        if not self._faults.on_calls:
            self._inner.send(frames, timeout_s)
            return
        for message, delay_s in self._fate(frames):
            if delay_s:
                time.sleep(delay_s)
            self._inner.send(message, timeout_s)

    def receive(self, timeout_s: float) -> list[Frames]:
        due = self._due()
        if due:
            return due
        with self._lock:
            wait_s = min(timeout_s, max(self._held[0][0] - time.monotonic(), 0.0)) if self._held else timeout_s
        arrived: list[Frames] = []
        for frames in self._inner.receive(wait_s):
            for message, delay_s in self._fate([bytearray(frame) for frame in frames]):
                if delay_s:
                    self._hold(message, delay_s)
                else:
                    arrived.append(message)
        return arrived or self._due()

    def _fate(self, frames: Frames) -> list[tuple[Frames, float]]:
        """The copies of a message that get through, each with its delay."""
        faults, stats = self._faults, self._faults.statistics
        dice = faults.random
        if dice.random() < faults.drop:
            stats.num_dropped += 1
            return []
        copies = 1
        if dice.random() < faults.duplicate:
            stats.num_duplicated += 1
            copies = 2
        fates = []
        for _ in range(copies):
            late = dice.random() < faults.delay
            stats.num_delayed += late
            fates.append((frames, dice.uniform(0.001, faults.max_delay_s) if late else 0.0))
        stats.num_passed += copies
        return fates

    def _hold(self, frames: Frames, delay_s: float) -> None:
        with self._lock:
            held = [*self._held, (time.monotonic() + delay_s, frames)]
            self._held = deque(sorted(held, key=lambda entry: entry[0]))

    def _due(self) -> list[Frames]:
        now = time.monotonic()
        due = []
        with self._lock:
            while self._held and self._held[0][0] <= now:
                due.append(self._held.popleft()[1])
        return due

    def fileno(self) -> int:
        return self._inner.fileno()

    def began(self, slot: int, seq: int) -> bool | None:
        return self._inner.began(slot, seq)

    def close(self) -> None:
        self._inner.close()
