"""The nemesis: training and serving while processes are killed, stopped, starved of disk, and their files torn.

    python benchmarks/nemesis.py                               # two minutes, all subjects, all faults
    python benchmarks/nemesis.py --seconds 20 --subjects sync
    python benchmarks/nemesis.py --only stop,freeze --seed 7 --json

Subjects: `sync` (two simulators, and the trainer asks both for every batch), `async` (two simulators, two inference
workers) and `serve` (a gateway of two workers, a model, a buffer, and games that play). Faults:

    kill     kill -9 of a worker                      names    the driver, which hosts the names, is stopped for a while
    stop     SIGSTOP of a worker for 1 to 30 s        disk     no space is left for a while (needs root, for a tmpfs)
    freeze   SIGSTOP of a worker, for ever            torn     kill -9 of the driver; a file is torn; resume
    trainer  kill -9 of the trainer; resume           driver   kill -9 of the driver; resume

Each must end in progress within `--within` seconds, or in an error that says how to go on (and then in progress after
`ludus resume`). Afterwards the accounts are checked: segments trained, stale and queued are those pushed; steps only
grow between two resumes; games, actors, journal and buffer agree (`sessions.py`). Nothing may be left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ludus
import sessions
from ludus.experiment.metrics import METRICS_FILE, read_metrics
from ludus.gateway.client import GameClient

SUBJECTS = ("sync", "async", "serve")
WORKER_FAULTS = ("kill", "stop", "freeze")
RUN_FAULTS = ("trainer", "driver", "torn", "names", "disk")
BALLAST = "ballast"
SMALL = (
    *("--num-envs", "4", "--num-steps", "32", "--num-epochs", "1", "--threads", "1", "--eval-episodes", "0"),
    *("--checkpoint-seconds", "1", "--steps", "1000000000"),
)
SETTINGS = {
    "sync": ("ppo", "CartPole-v1", "--simulators", "2", *SMALL),
    "async": ("impala", "CartPole-v1", "--simulators", "2", "--inference", "2", "--batch-segments", "2", *SMALL),
}
LUDUS = (sys.executable, "-c", "import sys; from ludus.cli.main import main; sys.exit(main(sys.argv[1:]))")


class Violation(Exception):
    """Something that must not happen."""


class Account:
    """What was done and what was found."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []
        self.slowest_s = 0.0
        self.figures: dict[str, Any] = {}

    def violation(self, text: str) -> None:
        self.violations.append(text)
        print(f"VIOLATION {text}", file=sys.stderr, flush=True)


class TrainingSubject:
    """A training run as a user starts it, in a process of its own, on a disk of its own where that is possible."""

    def __init__(self, kind: str, scratch: Path, chance: random.Random, account: Account, args: argparse.Namespace):
        self.kind = kind
        self.project = scratch / kind
        self.project.mkdir()
        self.has_own_disk = _mount(self.project)
        self._chance = chance
        self._account = account
        self._args = args
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped: list[int] = []
        self._resumed_at: list[float] = []

    # ---- its life

    @property
    def folder(self) -> Path:
        return self.project / f"run{self._number}"

    @property
    def _said(self) -> Path:
        return self.project.parent / f"{self.kind}.said"

    def start(self) -> None:
        self._number += 1
        self._launch("train", *SETTINGS[self.kind], "--trial", self.folder.name, "--seed", str(self._args.seed))
        self.expect_progress("its start", within_s=max(60.0, self._args.within))

    def _launch(self, *words: str) -> None:
        self._resumed_at.append(time.time())
        with open(self._said, "wb") as said:
            command = (*LUDUS, *words, "--project", str(self.project))
            self._process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)

    def resume(self) -> None:
        self._launch("resume", self.folder.name)

    def stop(self) -> None:
        """As Ctrl-C does it: a checkpoint is written, and everything leaves."""
        assert self._process is not None
        for pid in self._stopped:
            _signal(pid, signal.SIGCONT)
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(90)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._account.violation(f"{self.kind}: not gone 90 s after Ctrl-C; it said: {self._words()}")
            return
        if code != 130:
            self._account.violation(f"{self.kind}: exit code {code} after Ctrl-C; it said: {self._words()}")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self.has_own_disk:
            _wait_for(lambda: not _processes_of(self.project), 10.0)
            subprocess.run(["umount", "-l", str(self.project)], check=False)

    # ---- what is done to it

    def faults(self) -> list[str]:
        return [*WORKER_FAULTS, *(fault for fault in RUN_FAULTS if fault != "disk" or self.has_own_disk)]

    def strike(self, fault: str) -> None:
        began = time.monotonic()
        if fault in WORKER_FAULTS:
            self._strike_worker(fault)
            self.expect_progress(fault)
        elif fault == "names":
            assert self._process is not None
            with _stopped(self._process.pid):
                time.sleep(self._chance.uniform(1.0, 4.0))
            self.expect_progress(fault)
        elif fault == "disk":
            with _full_disk(self.project):
                time.sleep(self._chance.uniform(1.0, 3.0))
            self.expect_progress(fault)
        else:
            self._end_and_resume(fault)
        self._account.slowest_s = max(self._account.slowest_s, time.monotonic() - began)

    def _strike_worker(self, fault: str) -> None:
        workers = {name: pid for name, pid in _workers_of(self.folder).items() if not name.startswith("trainer")}
        if not workers:
            return
        name = self._chance.choice(sorted(workers))
        if fault == "kill":
            _signal(workers[name], signal.SIGKILL)
            return
        _signal(workers[name], signal.SIGSTOP)
        if fault == "freeze":
            self._stopped.append(workers[name])
            return
        seconds = self._chance.uniform(1.0, self._args.max_stop)
        timer = threading.Timer(seconds, _signal, (workers[name], signal.SIGCONT))
        timer.daemon = True
        timer.start()

    def _end_and_resume(self, fault: str) -> None:
        assert self._process is not None
        if fault == "trainer":
            pid = _workers_of(self.folder).get("trainer-0")
            if pid is not None:
                _signal(pid, signal.SIGKILL)
            try:
                code = self._process.wait(max(20.0, self._args.within))
            except subprocess.TimeoutExpired:
                raise Violation(f"{self.kind}: the run neither ended nor went on after its trainer's death") from None
            if code == 0 or "ludus resume" not in self._words():
                raise Violation(f"{self.kind}: no clear error after the trainer's death (exit {code}): {self._words()}")
        else:
            self._process.kill()
            self._process.wait()
        if not _wait_for(lambda: not _processes_of(self.folder), 3.0 + self._args.within):
            raise Violation(f"{self.kind}: workers outlived their driver: {_processes_of(self.folder)}")
        if fault == "torn":
            self._tear()
        self.resume()
        try:
            self.expect_progress(fault)
        except Violation:
            if self._process.poll() in (None, 0) or "Traceback" in self._words() or fault != "torn":
                raise
            self.start()  # a clear error: nothing of it could be used. The next run is a new one

    def _tear(self) -> None:
        """Cut a file that was being written when the power went."""
        files = [*sorted((self.folder / "checkpoints").glob("checkpoint-*"))[-1:], self.folder / METRICS_FILE]
        path = self._chance.choice([path for path in files if path.exists()])
        os.truncate(path, path.stat().st_size // 2)

    # ---- what must hold

    def expect_progress(self, after: str, within_s: float | None = None) -> None:
        """Two more lines of metrics, of growing steps, from now on."""
        assert self._process is not None
        began, until = time.time(), time.monotonic() + (within_s or self._args.within)
        while time.monotonic() < until:
            new = [line["step"] for line in read_metrics(self.folder) if line["time"] >= began]
            if len(new) >= 2 and new[-1] > new[0]:
                return
            if self._process.poll() is not None:
                raise Violation(f"{self.kind}: ended after {after} (exit {self._process.returncode}): {self._words()}")
            time.sleep(0.05)
        raise Violation(
            f"{self.kind}: no progress in {within_s or self._args.within:g} s after {after}: {self._words()}"
        )

    def check(self) -> dict[str, Any]:
        """The accounts of all its runs."""
        num_lines = 0
        for folder in sorted(self.project.glob("run*")):
            before: dict[str, Any] = {"step": -1}
            for line in read_metrics(folder):
                num_lines += 1
                if line["step"] <= before["step"]:
                    self._account.violation(f"{self.kind}: step {line['step']} comes after step {before['step']}")
                before = line
                if "count/segments_pushed" not in line:
                    continue
                parts = [line[f"count/segments_{name}"] for name in ("trained", "stale", "queued")]
                if sum(parts) != line["count/segments_pushed"]:
                    self._account.violation(f"{self.kind}: segments {parts}, pushed {line['count/segments_pushed']}")
        return {"lines": num_lines, "runs": self._number, "starts": len(self._resumed_at)}

    def _words(self) -> str:
        text = self._said.read_text(errors="replace") if self._said.exists() else ""
        return " | ".join(text.strip().splitlines()[-12:])[-1500:]


class ServingSubject:
    """A gateway of two workers with a model and a buffer, driven by this process, and games that play all the time."""

    kind = "serve"

    def __init__(self, scratch: Path, chance: random.Random, account: Account, args: argparse.Namespace) -> None:
        self._scratch = scratch / "serve"
        self._ledgers = self._scratch / "ledgers"
        self._chance = chance
        self._account = account
        self._args = args

    def start(self) -> None:
        self._trial = ludus.init(project=self._scratch, trial="fire")
        net = sessions.Net.make()
        ludus.RemoteModel("net", net, forward_args=(sessions.np.zeros(8, sessions.np.float32),), num_workers=2)
        self._buffer = ludus.RemoteBuffer("fire", capacity=100_000)
        self._actor = ludus.RemoteActor(num_workers=2, lease_s=3.0)
        self._actor.serve(Actor=sessions.FireActor, folder=self._ledgers)
        for number in range(8):  # until everybody has imported torch
            with GameClient(self._actor.url, f"warm{number}", run="r0", timeout_s=120.0) as game:
                game.start()
                game.tick(b"%08d" % 1 + bytes(sessions.BODY))
                game.end()
        self._stop_playing = threading.Event()
        self._games = [
            threading.Thread(target=self._play, args=(number,), daemon=True) for number in range(self._args.games)
        ]
        for thread in self._games:
            thread.start()

    def _play(self, number: int) -> None:
        round_number = 0
        while not self._stop_playing.is_set():
            round_number += 1
            until = time.monotonic() + 2.0
            sessions.play(self._actor.url, number * 1000 + round_number, until, self._ledgers, self._args.seed)

    def faults(self) -> list[str]:
        return list(WORKER_FAULTS)

    def strike(self, fault: str) -> None:
        began = time.monotonic()
        live = [record for record in self._trial.workers() if record.pid and not record.status.is_final]
        if not live:
            return
        victim = self._chance.choice(live)
        _signal(victim.pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        if fault == "stop":
            seconds = self._chance.uniform(1.0, self._args.max_stop)
            timer = threading.Timer(seconds, _signal, (victim.pid, signal.SIGCONT))
            timer.daemon = True
            timer.start()
        self.expect_progress(f"{fault} of {victim.name}")
        self._account.slowest_s = max(self._account.slowest_s, time.monotonic() - began)

    def expect_progress(self, after: str) -> None:
        """A game of our own is begun and ended."""
        until = time.monotonic() + self._args.within
        last: Exception | None = None
        number = 0
        while time.monotonic() < until:
            number += 1
            name = f"probe{time.monotonic_ns()}"
            try:
                with GameClient(self._actor.url, name, run="r0", timeout_s=self._args.within, retries=8) as game:
                    game.start()
                    game.tick(b"%08d" % 1 + bytes(sessions.BODY))
                    game.end()
                return
            except (ludus.errors.LudusError, OSError) as error:
                last = error
            time.sleep(0.1)
        raise Violation(f"serve: no game went through in {self._args.within:g} s after {after}: {last!r}")

    def stop(self) -> None:
        self._stop_playing.set()
        for thread in self._games:
            thread.join(120.0)
        time.sleep(4.0)  # the leases of those who vanished run out
        self._actor.stop(10.0)

    def check(self) -> dict[str, Any]:
        taken: list[Any] = []
        while batch := self._buffer.take(256, timeout_s=0.5):
            taken += batch
        self.close()
        faults, figures = sessions.check(self._ledgers, self._trial.folder / "gateway", taken)
        for fault in faults:
            self._account.violation(f"serve: {fault}")
        return figures

    def close(self) -> None:
        self._trial.close()


# ---- what is done, and what is looked at


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    _signal(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(pid, signal.SIGCONT)


def _mount(folder: Path) -> bool:
    """A small disk of its own for a subject, which can be filled; not everybody may have one."""
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _full_disk(folder: Path) -> Iterator[None]:
    path = folder / BALLAST
    try:
        with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
            while True:
                file.write(b"x")
        yield
    finally:
        path.unlink(missing_ok=True)


def _command_lines() -> Iterator[tuple[int, list[bytes]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")


def _workers_of(folder: Path) -> dict[str, int]:
    """Worker (as its files are named: `simulator-0`) → process."""
    prefix = f"{folder}/workers/".encode()
    return {
        Path(os.fsdecode(word)).stem: pid
        for pid, words in _command_lines()
        for word in words
        if word.startswith(prefix) and word.endswith(b".spec")
    }


def _processes_of(folder: Path) -> list[int]:
    """Whose command line names the folder, but for this process."""
    wanted = os.fsencode(folder)
    return [pid for pid, words in _command_lines() if pid != os.getpid() and any(wanted in word for word in words)]


def _wait_for(is_so: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _leftovers(scratch: Path) -> list[str]:
    """Processes and sockets of ours that are still there; shared memory has no name and ends with its processes."""
    _wait_for(lambda: not _processes_of(scratch), 10.0)
    left = [f"process {pid}" for pid in _processes_of(scratch)]
    sockets = list(Path(os.environ["LUDUS_RUNTIME_DIR"]).rglob("*.sock"))
    live = [path for path in sockets if _is_listened_at(path)]
    return left + [f"socket {path}" for path in live]


def _is_listened_at(path: Path) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


# ---- the whole


def run(args: argparse.Namespace, scratch: Path) -> Account:
    account = Account()
    chance = random.Random(args.seed)
    share_s = args.seconds / len(args.subjects)
    for kind in args.subjects:
        subject: Any = (
            ServingSubject(scratch, chance, account, args)
            if kind == "serve"
            else TrainingSubject(kind, scratch, chance, account, args)
        )
        try:
            _torment(subject, account, chance, share_s, args)
        finally:
            subject.close()
    for text in _leftovers(scratch):
        account.violation(f"left behind: {text}")
    return account


def _torment(subject: Any, account: Account, chance: random.Random, seconds: float, args: argparse.Namespace) -> None:
    faults = [fault for fault in subject.faults() if not args.only or fault in args.only]
    if not faults:
        return
    try:
        subject.start()
        until = time.monotonic() + seconds
        num = 0
        while time.monotonic() < until or num == 0:
            fault = chance.choice(faults)
            num += 1
            account.faults[f"{subject.kind}:{fault}"] += 1
            print(f"{subject.kind}: {fault}", file=sys.stderr, flush=True)
            subject.strike(fault)
            time.sleep(chance.uniform(0.0, args.pause))
        subject.stop()
    except Violation as violation:
        account.violation(str(violation))
        return
    account.figures[subject.kind] = subject.check()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="of faults, shared by the subjects")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--subjects", type=_words(SUBJECTS), default=SUBJECTS)
    parser.add_argument("--only", type=_words((*WORKER_FAULTS, *RUN_FAULTS)), default=(), help="these faults")
    parser.add_argument("--within", type=float, default=10.0, help="seconds from a fault to progress")
    parser.add_argument("--max-stop", type=float, default=30.0, help="the longest SIGSTOP that ends")
    parser.add_argument("--pause", type=float, default=0.5, help="the longest pause between two faults")
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ludus-nemesis-"))
    os.environ["LUDUS_RUNTIME_DIR"] = str(scratch / "run")  # sockets of our own, to see what is left of them
    (scratch / "run").mkdir(mode=0o700)
    print(f"seed {args.seed}", file=sys.stderr, flush=True)
    try:
        account = run(args, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    report = {
        "seed": args.seed,
        "num_faults": sum(account.faults.values()),
        "faults": dict(sorted(account.faults.items())),
        "slowest_s": round(account.slowest_s, 1),
        "violations": account.violations,
        **account.figures,
    }
    print(json.dumps(report) if args.json else json.dumps(report, indent=2))
    return 1 if account.violations else 0


def _words(allowed: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        words = tuple(word for word in text.split(",") if word)
        if unknown := set(words) - set(allowed):
            raise argparse.ArgumentTypeError(f"no {sorted(unknown)}; there are {', '.join(allowed)}")
        return words

    return parse


if __name__ == "__main__":
    sys.exit(main())
