"""What every contestant's process shares: its end of the JSON lines, and how it ends with the benchmark.

Standard library only: each contestant has a virtual environment of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any


class Announcer:
    """Keeps stdout for JSON lines to the harness; whatever a library prints goes to stderr instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        die_with_parent()

    def send(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def hello(self, *packages: str, **facts: Any) -> None:
        """The first line, when all is ready: versions of Python and of some packages, and what else is to be known."""
        versions = {"python": sys.version.split()[0], **{name: metadata.version(name) for name in packages}}
        self.send({"versions": versions, **facts})

    def orders(self) -> Iterator[dict[str, Any]]:
        """What the harness asks, until stdin ends."""
        for line in sys.stdin:
            yield json.loads(line)


def die_with_parent() -> None:
    """Linux: a harness that is killed -9 takes its contestants with it."""
    if sys.platform.startswith("linux"):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def bench_folder() -> Path:
    """The run's temporary folder."""
    return Path(os.environ["BENCH_FOLDER"])


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def call_when_listening(port: int, then: Any) -> None:
    """Calls `then` from a thread as soon as somebody listens on the port."""

    def wait() -> None:
        while True:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        then()

    threading.Thread(target=wait, daemon=True).start()
