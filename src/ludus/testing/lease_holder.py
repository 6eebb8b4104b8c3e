"""A process that holds a lease, for tests that kill it: `python -m ludus.testing.lease_holder …`."""

from __future__ import annotations

import importlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from ludus import core, errors

__all__ = ["LeaseHolder", "connect"]

_PATIENCE_S = 10.0


class LeaseHolder:
    """A process that adds a lease, keeps it until SIGTERM, and says how it goes on its standard output."""

    def __init__(self, connector: str, url: str, name: str, value: str, *, ttl: float, go: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ludus.testing.lease_holder", connector, url, name, value, str(ttl), go],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._said: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def line(self) -> str:
        """The next line it says; an empty one when it has ended."""
        return self._said.get(timeout=_PATIENCE_S)

    def expect(self, line: str) -> None:
        assert self.line() == line

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until the system has buried it."""
        self._process.kill()
        self._process.wait()
        self._listener.join()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._said.put(line.strip())
        self._said.put("")


def connect(connector: str, url: str) -> core.Names:
    """The names at `url`, by a connector such as `ludus.discovery:connect`."""
    module, _, function = connector.partition(":")
    names: Any = getattr(importlib.import_module(module), function)(url)
    assert isinstance(names, core.Names)
    return names


def _hold(connector: str, url: str, name: str, value: str, ttl: str, go: str) -> None:
    asked_to_end: list[int] = []  # not an Event: a handler that sets one may find its lock held by this very thread
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_end.append(number))
    names = connect(connector, url)
    if go:
        _say("waiting")
        names.wait(go, timeout=_PATIENCE_S)
    try:
        names.add(name, value, ttl=float(ttl))
    except errors.NameTaken:
        _say("taken")
    else:
        _say("added")
    while not asked_to_end:
        time.sleep(0.05)
    names.close()
    _say("closed")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _hold(*sys.argv[1:])
