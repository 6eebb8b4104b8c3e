"""The last resort: a process that outlives a killed driver by two seconds and ends what is left of its workers.

    python -I -S guard.py      reads "+PID" and "-PID" lines; at end-of-file it kills the process groups left

A worker notices by itself that its driver is gone (`lifeline.py`) and ends in good order. But the thread that
notices needs the interpreter: a worker that is stopped, or in C code that never gives the interpreter up, would
live on. Only the smallest parts of the standard library are imported: this starts in some twenty milliseconds.
"""

import contextlib
import os
import signal
import sys
import time

GRACE_S = 2.0


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    if groups:
        time.sleep(GRACE_S)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
