"""A process that has imported what workers need, and forks them: a worker is there in a moment, not after seconds.

    python -P -m ludus.launch --template SOCKET_FD FOLDER MODULE,… PADDING

The driver's side is `forks.py`. Requests and answers are JSON, a message each, over a socket pair:

    → {"start": 3, "spec": "…/simulator-0.spec"}, with three descriptors: lifeline, heartbeats, log
    ← {"started": 3, "pid": 4711}            it leads a session of its own
    ← {"ended": 4711, "code": 0}             and is kept as a zombie, so that its id stays its own, until
    → {"reap": 4711}

It imports modules of Ludus and its libraries, no code of a user, and starts no thread, so that forking is safe. It ends
when the driver does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["MAX_MESSAGE", "NUM_FDS", "PADDING", "Template", "main", "show_command"]

MAX_MESSAGE = 65_536
NUM_FDS = 3
PADDING = "." * 1024  # room in this process's command line for those of workers
_ARG_START = 45  # of /proc/self/stat, counted from the process's state
_ARG_END = 46


class Template:
    """Forks on request until the other end of `channel` is closed."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._children: set[int] = set()

    def serve(self) -> list[str] | None:
        """In a worker: what `child.main` is to be given. In the template itself: `None`, when the driver is gone."""
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        while True:
            sources: list[Any] = [self._channel, woken]
            readable, _, _ = select.select(sources, [], [])
            if woken in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
                self._tell_ends()
            if self._channel not in readable:
                continue
            message, fds, _flags, _address = socket.recv_fds(self._channel, MAX_MESSAGE, NUM_FDS)
            if not message:
                return None
            request = json.loads(message)
            if "reap" in request:
                os.waitpid(request["reap"], 0)
                continue
            words = self._fork(request, fds)
            if words is not None:
                os.close(woken)
                os.close(waker)
                return words

    def _tell_ends(self) -> None:
        for pid in list(self._children):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self._children.remove(pid)
                code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                self._tell({"ended": pid, "code": code})

    def _tell(self, message: dict[str, int]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # noticed by the next read
            self._channel.send(json.dumps(message).encode())

    def _fork(self, request: dict[str, str | int], fds: list[int]) -> list[str] | None:
        """In the worker: what `child.main` is to be given."""
        lifeline, pulse, log = fds
        leads, is_leading = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.close(leads)
            os.close(is_leading)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._channel.close()
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            _reseed()
            words = [str(request["spec"]), str(lifeline), str(pulse)]
            show_command([sys.executable, "-P", "-m", "ludus.launch", *words])
            return words
        os.close(is_leading)
        os.read(leads, 1)  # end-of-file: it leads its session, so that its group can be killed
        os.close(leads)
        for fd in fds:
            os.close(fd)
        self._children.add(pid)
        self._tell({"started": int(request["start"]), "pid": pid})
        self._tell_ends()  # its signal may have come before it was known here
        return None


def show_command(words: Sequence[str]) -> None:
    """Have `ps` show this command, as far as there is room for it, where the kernel allows it."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    except (OSError, IndexError, ValueError):  # not Linux
        return
    shown = b"\0".join(os.fsencode(word) for word in words)
    if 0 < len(shown) < end - start:
        ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def _reseed() -> None:
    """Python does it by itself; NumPy's global generator would be the same in all workers."""
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed()


def main(argv: Sequence[str]) -> list[str] | None:
    """As `Template.serve`."""
    channel = socket.socket(fileno=int(argv[0]))
    folder, modules = argv[1], argv[2].split(",")
    show_command([sys.executable, "-P", "-m", "ludus.launch", "--template", argv[0], folder])
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:  # a worker that needs it will say so itself
            sys.stderr.write(f"{module} cannot be imported: {error}\n")
    gc.collect()
    gc.freeze()  # shared by all workers, as long as nobody touches it
    return Template(channel).serve()
