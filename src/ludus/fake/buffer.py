"""Made-up items for a trainer that is made before its actors.

ludus.fake.FakeBuffer(name="atari_buffer", item={"obs": ArraySpec((42, 42, 4), np.float32), "action": 3})
buffer = ludus.RemoteBuffer("atari_buffer")
item = buffer.next()
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ludus import errors
from ludus.data.nest import Nest
from ludus.fake.made_up import as_specs, make_up

__all__ = ["FakeBuffer"]

_SECONDS_BETWEEN = 0.02
_PATIENCE_S = 10.0


class _Target(Protocol):
    """What items are pushed to: a `RemoteBuffer`."""

    def push(self, *items: Any, drop: bool = True) -> Any: ...


class FakeBuffer:
    """Pushes to the buffer of that name, from a thread, until `stop`; it begins when it is made, as the seed's does.

    `item`: specs or an example of one item, or a function of a random generator that makes one. `rate`: items a
    second; `num`: after how many it ends by itself. What goes wrong while pushing is raised by `stop` and `join`.
    """

    def __init__(
        self,
        name: str,
        item: Nest | Callable[[np.random.Generator], Nest] = 0.0,
        *,
        rate: float = 100.0,
        num: int | None = None,
        seed: int = 0,
        buffer: _Target | None = None,
        autostart: bool = True,
    ) -> None:
        if rate <= 0:
            raise errors.ConfigError(f"rate is {rate}; it must be more than 0 items a second")
        self.name = name
        self.num_pushed = 0
        specs = None if callable(item) else as_specs(item)
        self._make = item if callable(item) else lambda rng: make_up(specs, rng)
        self._rate = rate
        self._num = num
        self._rng = np.random.default_rng(seed)
        self._buffer = buffer
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._live, name=f"fake-buffer-{name}", daemon=True)
        if autostart:
            self.start()

    def start(self) -> None:
        if self._buffer is None:
            from ludus.trial.named.buffer import RemoteBuffer  # brings the buffer's service

            self._buffer = RemoteBuffer(self.name)
        self._thread.start()

    def join(self, timeout_s: float = _PATIENCE_S) -> None:
        """Wait until `num` items are pushed."""
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise errors.DeadlineExceeded(f"{self.num_pushed} items were pushed in {timeout_s:g} s, and more are to be")

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self.join()

    def __enter__(self) -> FakeBuffer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def _live(self) -> None:
        try:
            self._push()
        except Exception as error:  # raised by `stop` and `join`
            self._error = error

    def _push(self) -> None:
        assert self._buffer is not None
        began = time.monotonic()
        while not self._stopped.is_set():
            due = int((time.monotonic() - began) * self._rate) + 1
            wanted = due if self._num is None else min(due, self._num)
            num = wanted - self.num_pushed
            if num > 0:
                self._buffer.push(*(self._make(self._rng) for _ in range(num)), drop=True)
                self.num_pushed += num
            if self.num_pushed == self._num:
                return
            self._stopped.wait(max(_SECONDS_BETWEEN, 1.0 / self._rate / 4))
