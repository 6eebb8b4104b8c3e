"""Processes of a benchmark: each in its virtual environment, spoken to in JSON lines, all stopped at the end.

Standard library only, for any Python from 3.8: it runs before the virtual environments exist.

    with Stage() as stage:
        server = stage.start("server", python, "contestants/over_pyzmq.py", "server")
        print(server.hello["address"])
        client = stage.start("client", python, "contestants/over_pyzmq.py", "client")
        print(client.ask({"do": "slice", ...}, timeout_s=10))
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent
ROOT = BENCHMARKS.parent
START_S = 60.0
SETUP_S = 3600.0

# Variables that would let the caller's surroundings into a contestant's process.
FOREIGN = (
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "RAY_ADDRESS",
    "RAY_NAMESPACE",
    "MAKEFLAGS",
    "MAKELEVEL",
    "MFLAGS",
)
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


class BenchmarkError(Exception):
    """The run cannot go on: a process died, was late, or answered with an error."""


class Child:
    """One process that answers each order, a JSON line on stdin, with one JSON line on stdout."""

    def __init__(self, name: str, command: list[str], *, folder: Path, grace_s: float) -> None:
        self.name = name
        self.hello: dict = {}
        self._grace_s = grace_s
        self._unread = b""
        self._log = folder / (name.replace(" ", "-").replace("/", "-") + ".log")
        env = {k: v for k, v in os.environ.items() if k not in FOREIGN and k.lower() not in PROXIES}
        env.update(OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1", BENCH_FOLDER=str(folder))
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._tree = {self.pid: _start_time(self.pid)}

    def tell(self, order: dict) -> None:
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as e:
            raise self._failure("does not take orders any more") from e

    def answer(self, *, timeout_s: float) -> dict:
        deadline = time.monotonic() + timeout_s
        fd = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            readable, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise self._failure(f"gave no answer within {timeout_s:.0f} s")
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                raise self._failure("ended before it answered")
            self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(f"{self.name} failed:\n{answer['error']}")
        return answer

    def ask(self, order: dict, *, timeout_s: float) -> dict:
        self.tell(order)
        return self.answer(timeout_s=timeout_s)

    def family(self) -> list[int]:
        """Process ids of the child and of everything it started that still runs."""
        self._remember_descendants()
        return [pid for pid in self._tree if self._runs(pid)]

    def cpu_s(self) -> float:
        """CPU seconds used so far by the child and everything it started (Linux only)."""
        return sum(_cpu_s(pid) for pid in self.family())

    def ask_to_stop(self) -> None:
        self._remember_descendants()
        self._process.stdin.close()
        self._process.stdout.close()
        if not self._grace_s:
            self._signal(self.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Waits for the end that `ask_to_stop` asked for, then ends by id whatever is left."""
        deadline = time.monotonic() + (self._grace_s or 2.0)
        while self._process.poll() is None and time.monotonic() < deadline:
            self._remember_descendants()
            time.sleep(0.02)
        for pid in list(self._tree):
            self._signal(pid, signal.SIGKILL)
        self._process.wait(timeout=10.0)

    def _remember_descendants(self) -> None:
        parents = _parents()
        grown = True
        while grown:
            born = [pid for pid, parent in parents.items() if parent in self._tree and pid not in self._tree]
            self._tree.update((pid, _start_time(pid)) for pid in born)
            grown = bool(born)

    def _runs(self, pid: int) -> bool:
        """Whether `pid` is still the process we know, not a later one with the same number."""
        if pid == self.pid:
            return self._process.poll() is None
        return self._tree[pid] is not None and _start_time(pid) == self._tree[pid]

    def _signal(self, pid: int, number: int) -> None:
        if self._runs(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _failure(self, what: str) -> BenchmarkError:
        tail = self._log.read_text(errors="replace").splitlines()[-30:] if self._log.exists() else []
        return BenchmarkError("\n".join([f"{self.name} {what}; the end of its log:", *tail]))


class Stage:
    """Owns a temporary folder and every child; leaving the `with` block stops them all, whatever happened."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def __enter__(self) -> Stage:
        # Short, because unix socket paths are (Ray's go some 60 characters deep).
        self.folder = Path(tempfile.mkdtemp(prefix="lb", dir="/tmp" if os.path.isdir("/tmp") else None))
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)
        return self

    def __exit__(self, *_: object) -> None:
        previous = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            for child in self.children:
                child.ask_to_stop()
            for child in self.children:
                child.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            for number, handler in previous.items():
                signal.signal(number, handler)

    def begin(self, name: str, python: str, script: str, *args: str, grace_s: float = 0.0) -> Child:
        """Starts a child without waiting for its hello; it gets `grace_s` to clean up after itself."""
        command = [python, str(BENCHMARKS / script), *args]
        child = Child(name, command, folder=self.folder, grace_s=grace_s)
        self.children.append(child)
        return child

    def start(self, name: str, python: str, script: str, *args: str, grace_s: float = 0.0) -> Child:
        child = self.begin(name, python, script, *args, grace_s=grace_s)
        self.ready([child])
        return child

    def ready(self, children: list[Child]) -> None:
        """Waits until every child has said hello: its versions, and its address when it is a server."""
        for child in children:
            if not child.hello:
                child.hello = child.answer(timeout_s=START_S)


def make_environments(*targets: str) -> None:
    """Builds the virtual environments that are missing or out of date; takes no time when they are not."""
    env = {k: v for k, v in os.environ.items() if k not in FOREIGN}
    command = ["make", "-s", "-C", str(ROOT), *targets]
    try:
        subprocess.run(command, check=True, stdout=sys.stderr, env=env, timeout=SETUP_S)
    except FileNotFoundError:
        raise BenchmarkError("`make` is not installed; it builds .venv and .venv-peers") from None
    except subprocess.CalledProcessError as e:
        raise BenchmarkError(f"`{' '.join(command)}` failed with code {e.returncode}; its output is above") from None


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name, which may itself hold spaces."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def _start_time(pid: int) -> str | None:
    fields = _stat(pid)
    return fields[19] if fields else None


def _parents() -> dict[int, int]:
    if not sys.platform.startswith("linux"):
        return {}
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: int(fields[1]) for pid, fields in stats.items() if fields}


def _cpu_s(pid: int) -> float:
    """From schedstat, in nanoseconds a thread; /proc/PID/stat would count whole ticks of 10 ms."""
    total = 0
    for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(schedstat.read_text().split()[0])
        except OSError:
            continue
    return total / 1e9


def conclude(name: str, run: Callable[[], dict], print_result: Callable[[dict], None], *, as_json: bool) -> int:
    """Run a benchmark and print what it found; its exit code."""
    try:
        result = run()
    except BenchmarkError as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted; every process was stopped", file=sys.stderr)
        return 130
    print_result(result)
    if as_json:
        print(json.dumps(result))
    return 0
