"""One run of one contestant: a process that works for a while, prints one JSON object and ends.

Standard library only, like `harness`.
"""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path

from harness import BenchmarkError, Child

END_S = 15.0
LOOK_S = 2.0


class Run(Child):
    """`threads` sets the number of threads of OpenMP and BLAS; None leaves the choice to the contestant."""

    def __init__(self, name: str, command: list[str], *, folder: Path, threads: int | None) -> None:
        variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        if threads is None:
            settings = [part for variable in variables for part in ("-u", variable)]
        else:
            settings = [f"{variable}={threads}" for variable in variables]
        self._begin = time.time()
        command = ["env", *settings, f"BENCH_START={self._begin}", *command]
        super().__init__(name, command, folder=folder, grace_s=END_S)

    def result(self, *, timeout_s: float) -> dict:
        """The last JSON object that it prints, with `wall_s`: how long the process lived."""
        deadline = time.monotonic() + timeout_s
        fd, printed, found = self._process.stdout.fileno(), b"", None
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([fd], [], [], min(left, LOOK_S))[0]:
                self._remember_descendants()
                continue
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                break
            printed += chunk
            found = last_object(printed)
            if found is not None:  # nothing more is expected: the process may end now, but need not take long
                deadline = min(deadline, time.monotonic() + END_S)
        wall_s = time.time() - self._begin
        if found is not None:
            return {**found, "wall_s": wall_s}
        if left <= 0:
            raise Late(f"{self.name} was not done after {timeout_s:.0f} s")
        raise self._failure("ended without a result")


class Late(BenchmarkError):
    """The contestant was given up because it took too long."""


def last_object(printed: bytes) -> dict | None:
    for line in reversed(printed.splitlines()):
        if line.startswith(b"{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None
