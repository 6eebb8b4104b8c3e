"""The nemesis: training and serving while processes are killed, stopped, starved of disk and names, and files torn.

    python benchmarks/nemesis.py                               # two minutes, all subjects, all faults
    python benchmarks/nemesis.py --faults 300                  # until so many were done; part of `make chaos`
    python benchmarks/nemesis.py --seconds 20 --subjects sync
    python benchmarks/nemesis.py --only stop,freeze --seed 7 --json

Subjects: `sync` (two simulators, and the trainer asks both for every batch), `async` (two simulators, two inference
workers), `serve` (a gateway of two workers, a model, a buffer, and games that play) and `finished` (a trial that was
trained and promoted). What is done to them:

    kill     kill -9 of a worker                      sync async serve
    stop     SIGSTOP of a worker for 1 to 30 s        sync async serve
    freeze   SIGSTOP of a worker, for ever            sync async serve
    names    the name service is away for a while     sync async serve      every second time a worker is killed as well
    disk     no space is left for a while             sync async serve      needs root, for a tmpfs
    torn     all is killed -9, a file is torn         sync async finished   any file of the trial; then resume
             workers are killed -9, a file is torn    serve                 journal, weights, tags, settings, trial.json
    trainer  kill -9 of the trainer; resume           sync async
    halt     SIGSTOP of the trainer                   sync async            for 1 to 30 s, or for ever
    driver   kill -9 of the driver; resume            sync async
    hold     SIGSTOP of the driver for a while        sync async

Each must end in progress within `--within` seconds, or in an error that says how to go on (and then in progress after
`ludus resume`). The trainer cannot be replaced: the time of one that is stopped counts from when it goes on, or from
when the run is ended for it, after `TRAINER_NOTICE_S`. A fault counts if it had a victim. After a violation the subject
is started again, and the faults go on. At the end the accounts are checked: segments trained, stale and queued are
those pushed; steps only grow between two resumes; games, actors, journal and buffer agree (`sessions.py`). Nothing may
be left behind. The exit code is 1 if anything does not hold, or if fewer than `--faults` were done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
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

import numpy as np

import ludus
import names_away
import sessions
from ludus.gateway.client import GameClient
from ludus.telemetry.metrics_file import read_metrics

SHARES = {"sync": 3, "async": 3, "serve": 3, "finished": 1}
"""The subjects, and how much of the time and of the faults each gets."""

WORKER_FAULTS = ("kill", "stop", "freeze")
OUTAGES = ("names", "disk")
RUN_FAULTS = ("torn", "trainer", "halt", "driver", "hold")
TRAINER_NOTICE_S = 8.0  # 2 s until a stop is noticed, looked at twice a second; what cannot be replaced gets 5 s more
MAX_FAILED_STARTS = 3
BALLAST = "ballast"
SMALL = ("--num-envs", "4", "--num-steps", "32", "--num-epochs", "1", "--threads", "1", "--eval-episodes", "0")
ENDLESS = (*SMALL, "--checkpoint-seconds", "1", "--steps", "1000000000")
SETTINGS = {
    "sync": ("ppo", "CartPole-v1", "--simulators", "2", *ENDLESS),
    "async": ("impala", "CartPole-v1", "--simulators", "2", "--inference", "2", "--batch-segments", "2", *ENDLESS),
    "finished": ("ppo", "CartPole-v1", *SMALL, "--checkpoint-seconds", "0", "--steps", "512"),
}
NAMES_AWAY = Path(__file__).with_name("names_away.py")
CHECKSUMMED = (".ludus", ".weights", ".onnx", ".checked", ".definition", ".sha256", "newest")
"""Endings of files in which a flipped byte must be noticed. Others are text for people: those are only cut off."""

USE_TRIAL = """
import sys
from pathlib import Path
import ludus
from ludus.cli.main import main
from ludus.serving import promotion
from ludus.serving import serve as serving

folder = Path(sys.argv[1])
project = ["--project", str(folder.parent)]
code = main(["list", *project])
try:
    with ludus.init(project=folder.parent, trial=folder.name):
        model = serving.publish_trained(folder)
        promotion.promote(folder, "policy")
        model.get_model("production")
except ludus.errors.LudusError as error:
    print(error, file=sys.stderr)
    code = 2
sys.exit(code or main(["resume", folder.name, *project]))
"""


class Violation(Exception):
    """Something that must not happen."""


class Account:
    """What was done and what was found."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.slowest_s: dict[str, float] = {}
        self.violations: list[str] = []
        self.metrics: dict[str, Any] = {}

    def fault(self, kind: str, recovery_s: float) -> None:
        self.faults[kind] += 1
        self.slowest_s[kind] = max(self.slowest_s.get(kind, 0.0), round(recovery_s, 1))

    def violation(self, text: str) -> None:
        self.violations.append(text)
        print(f"VIOLATION {text}", file=sys.stderr, flush=True)


class Subject:
    """Something to torment. `strike` gives what happened as `(fault, seconds to recover)`; `None` without a victim."""

    kind: str

    def __init__(
        self, kind: str, scratch: Path, chance: random.Random, account: Account, args: argparse.Namespace
    ) -> None:
        self.kind = kind
        self.project = scratch / kind
        self.project.mkdir()
        self.has_own_disk = _mount(self.project)
        self._away = scratch / f"{kind}.away"
        self._chance = chance
        self._account = account
        self._args = args
        self._number = 0

    def faults(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Begin, for the first time or after a violation; returns when it works."""
        raise NotImplementedError

    def strike(self, fault: str) -> float | None:
        """Seconds to recover; `None` if there was nothing to strike. Raises `Violation` if it does not recover."""
        raise NotImplementedError

    def expect_progress(self, after: str) -> None:
        raise NotImplementedError

    def workers(self) -> dict[str, int]:
        """Those that may be killed and stopped, with their processes."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it as its user would."""

    def close(self) -> None:
        """End what is left of it. It may be started again."""

    def check(self) -> dict[str, Any]:
        """Whether its accounts agree; the metrics of all its lives."""
        return {}

    def unmount(self) -> None:
        if self.has_own_disk:
            _wait_for(lambda: not _processes_of(self.project), 10.0)
            subprocess.run(["umount", "-l", str(self.project)], check=False)

    # ---- faults that are the same for all

    def _strike_worker(self, fault: str) -> float | None:
        victim = self._victim()
        if victim is None:
            return None
        name, pid = victim
        began = time.monotonic()
        if fault == "kill":
            _signal(pid, signal.SIGKILL)
        else:
            _stop_for(pid, math.inf if fault == "freeze" else self._chance.uniform(1.0, self._args.max_stop))
        self.expect_progress(f"{fault} of {name}")
        return time.monotonic() - began

    def _victim(self) -> tuple[str, int] | None:
        """A worker that is neither dead nor stopped already."""
        running = {name: pid for name, pid in self.workers().items() if _state(pid) not in ("", "T", "t", "Z")}
        return self._chance.choice(sorted(running.items())) if running else None

    def _strike_outage(self, fault: str) -> float:
        and_kill = fault == "names" and self._chance.random() < 0.5
        outage = _full_disk(self.project) if fault == "disk" else _present(self._away)
        with outage:
            victim = self._victim() if and_kill else None
            if victim is not None:
                _signal(victim[1], signal.SIGKILL)
            time.sleep(self._chance.uniform(1.0, 3.0 if fault == "disk" else 6.0))
        began = time.monotonic()
        self.expect_progress(fault + (f" and kill of {victim[0]}" if victim else ""))
        return time.monotonic() - began


class TrainingSubject(Subject):
    """A training run as a user starts it, in a process of its own, on a disk of its own where that is possible."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._process: subprocess.Popen[bytes] | None = None
        self._num_starts = 0

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
        self._num_starts += 1
        with open(self._said, "wb") as said:
            command = [sys.executable, str(NAMES_AWAY), str(self._away), *words, "--project", str(self.project)]
            self._process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)

    def resume(self) -> None:
        self._launch("resume", self.folder.name)

    def stop(self) -> None:
        """As Ctrl-C does it: a checkpoint is written, and everything leaves."""
        assert self._process is not None
        for pid in _workers_of(self.folder).values():
            _signal(pid, signal.SIGCONT)
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(90)
        except subprocess.TimeoutExpired:
            raise Violation(f"{self.kind}: not gone 90 s after Ctrl-C; it said: {self._words()}") from None
        if code != 130:
            raise Violation(f"{self.kind}: exit code {code} after Ctrl-C; it said: {self._words()}")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if not _wait_for(lambda: not _processes_of(self.project), 10.0):
            for pid in _processes_of(self.project):
                _signal(pid, signal.SIGKILL)

    # ---- what is done to it

    def faults(self) -> list[str]:
        return [*WORKER_FAULTS, *(fault for fault in OUTAGES if fault != "disk" or self.has_own_disk), *RUN_FAULTS]

    def workers(self) -> dict[str, int]:
        return {name: pid for name, pid in _workers_of(self.folder).items() if not name.startswith("trainer")}

    def strike(self, fault: str) -> float | None:
        if fault in WORKER_FAULTS:
            return self._strike_worker(fault)
        if fault in OUTAGES:
            return self._strike_outage(fault)
        match fault:
            case "hold":
                return self._hold_driver()
            case "trainer" | "halt":
                return self._strike_trainer(fault)
            case _:
                return self._kill_driver(is_torn=fault == "torn")

    def _hold_driver(self) -> float:
        assert self._process is not None
        _signal(self._process.pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(1.0, 4.0))
        _signal(self._process.pid, signal.SIGCONT)
        began = time.monotonic()
        self.expect_progress("a stop of the driver")
        return time.monotonic() - began

    def _strike_trainer(self, fault: str) -> float | None:
        pid = _workers_of(self.folder).get("trainer-0")
        if pid is None or self._process is None:
            return None
        stopped_s = 0.0
        if fault == "trainer":
            _signal(pid, signal.SIGKILL)
        else:
            stopped_s = math.inf if self._chance.random() < 0.3 else self._chance.uniform(1.0, self._args.max_stop)
            _stop_for(pid, stopped_s)
        noticed = time.monotonic() + min(stopped_s, TRAINER_NOTICE_S)
        is_over = self._is_over_or_goes_on(noticed + max(20.0, self._args.within))
        if is_over is None:
            raise Violation(f"{self.kind}: neither progress nor an end after {fault}: {self._words()}")
        if is_over:
            self._expect_clear_error(fault)
            self._expect_all_gone()
            self.resume()
            self.expect_progress(fault)
        return max(0.0, time.monotonic() - noticed)

    def _is_over_or_goes_on(self, until: float) -> bool | None:
        """`True`: the driver has ended. `False`: there are new metrics. `None`: neither."""
        assert self._process is not None
        time.sleep(0.2)  # what the trainer had written before it was struck is there by then
        began = time.time()
        while time.monotonic() < until:
            if self._process.poll() is not None:
                return True
            if self._has_progress(began):
                return False
            time.sleep(0.05)
        return None

    def _expect_clear_error(self, fault: str) -> None:
        assert self._process is not None
        code, words = self._process.returncode, self._words()
        if code == 0 or "ludus resume" not in words or "Traceback" in words:
            raise Violation(f"{self.kind}: no clear error after {fault} (exit {code}): {words}")

    def _expect_all_gone(self) -> None:
        if not _wait_for(lambda: not _processes_of(self.folder), 3.0 + self._args.within):
            raise Violation(f"{self.kind}: workers outlived their driver: {_processes_of(self.folder)}")

    def _kill_driver(self, *, is_torn: bool) -> float | None:
        assert self._process is not None
        began = time.monotonic()
        self._process.kill()
        self._process.wait()
        self._expect_all_gone()
        torn = _tear_one_of(_files_of(self.folder), self._chance) if is_torn else None
        self.resume()
        try:
            self.expect_progress(f"a torn {torn}" if is_torn else "a kill of the driver")
        except Violation:
            if (
                torn is None
                or not _is_needed(torn, self.folder)
                or self._process.poll() != 2
                or "Traceback" in self._words()
            ):
                raise
            self.start()  # it has said that nothing can be resumed; the next run is a new one
        return time.monotonic() - began

    # ---- what must hold

    def expect_progress(self, after: str, within_s: float | None = None) -> None:
        """Two more lines of metrics, of growing steps, from now on."""
        assert self._process is not None
        within_s = within_s or self._args.within
        began, until = time.time(), time.monotonic() + within_s
        while time.monotonic() < until:
            if self._has_progress(began):
                return
            if self._process.poll() is not None:
                raise Violation(f"{self.kind}: ended after {after} (exit {self._process.returncode}): {self._words()}")
            time.sleep(0.05)
        raise Violation(f"{self.kind}: no progress in {within_s:g} s after {after}: {self._words()}")

    def _has_progress(self, since: float) -> bool:
        new = [line["step"] for line in read_metrics(self.folder) if line["time"] >= since]
        return len(new) >= 2 and new[-1] > new[0]

    def check(self) -> dict[str, Any]:
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
        return {"lines": num_lines, "runs": self._number, "starts": self._num_starts}

    def _words(self) -> str:
        return _last_words(self._said)


class FinishedSubject(Subject):
    """A trial that was trained to its end, served and promoted. One of its files is torn; then all of it is used."""

    def faults(self) -> list[str]:
        return ["torn"]

    def start(self) -> None:
        self._number += 1
        self._intact = self.project / f"intact{self._number}"
        names = ("--trial", self._intact.name, "--project", self.project)
        self._expect_success("train", (*_LUDUS, "train", *SETTINGS[self.kind], *names), within_s=300.0)
        for _ in range(2):
            self._expect_success("its first use", (sys.executable, "-c", USE_TRIAL, self._intact), within_s=300.0)

    def strike(self, fault: str) -> float | None:
        folder = self.project / "torn"
        shutil.copytree(self._intact, folder, ignore=shutil.ignore_patterns(".*", "*.lock"))
        try:
            torn = _tear_one_of(_files_of(folder), self._chance)
            began = time.monotonic()
            command = (sys.executable, "-c", USE_TRIAL, folder)
            expected = (0, 2) if _is_needed(torn, folder) else (0,)
            self._expect_success(f"a torn {torn}", command, within_s=60.0 + self._args.within, codes=expected)
            return time.monotonic() - began
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _expect_success(
        self, what: str, command: tuple[Any, ...], *, within_s: float, codes: tuple[int, ...] = (0,)
    ) -> None:
        said = self.project.parent / f"{self.kind}.said"
        with open(said, "wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Violation(f"{self.kind}: not done in {within_s:g} s after {what}: {_last_words(said)}") from None
        if code not in codes or "Traceback" in said.read_text(errors="replace"):
            raise Violation(f"{self.kind}: exit code {code} after {what}: {_last_words(said)}")


class ServingSubject(Subject):
    """A gateway of two workers with a model and a buffer, driven by this process, and games that play all the time."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._trial: Any = None
        self._games: list[threading.Thread] = []
        self._metrics: Counter[str] = Counter()
        names_away.install(self._away)

    @property
    def _ledgers(self) -> Path:
        return self.project.parent / f"ledgers{self._number}"  # not on the disk that is filled

    def start(self) -> None:
        self._number += 1
        self._trial = ludus.init(project=self.project, trial=f"fire{self._number}")
        example = (np.zeros(8, np.float32),)
        self._model = ludus.RemoteModel("net", sessions.Net.make(), forward_args=example, num_workers=2)
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
        return [*WORKER_FAULTS, *(fault for fault in OUTAGES if fault != "disk" or self.has_own_disk), "torn"]

    def workers(self) -> dict[str, int]:
        live = [record for record in self._trial.workers() if record.pid and not record.status.is_final]
        return {record.name: record.pid for record in live}

    def strike(self, fault: str) -> float | None:
        if fault in WORKER_FAULTS:
            return self._strike_worker(fault)
        return self._strike_outage(fault) if fault in OUTAGES else self._tear()

    def _tear(self) -> float | None:
        """Tear a file of workers that are stopped, and kill them: their successors find it so."""
        what = self._chance.choice(("actor-", "model-"))
        named = {name: pid for name, pid in self.workers().items() if name.startswith(what)}
        victims = {name: pid for name, pid in named.items() if _state(pid) in ("R", "S", "D")}
        if not victims:
            return None
        if what == "model-":
            self._model.publish_weights(sessions.Net.make())  # the one before it is there to be gone back to
        for pid in victims.values():
            _signal(pid, signal.SIGSTOP)
        if what == "actor-":
            journals = sorted(self._trial.folder.glob("gateway/*.journal"))
            for path in journals:  # the death of a worker in the middle of a write
                with open(path, "ab") as file:
                    file.write(b"12345678 + cut-o")
            torn = "journal"
        else:
            folder = self._trial.folder / "models" / "net"
            paths = [*sorted(folder.glob("*.weights"))[-1:], folder / "settings.json", folder / "tags.json"]
            paths += [folder / "tags.checked", self._trial.folder / "trial.json"]
            torn = _tear_one_of([path for path in paths if path.exists()], self._chance)
        began = time.monotonic()
        for pid in victims.values():
            _signal(pid, signal.SIGKILL)
        self.expect_progress(f"a torn {torn} and kill of {', '.join(victims)}")
        return time.monotonic() - began

    def expect_progress(self, after: str) -> None:
        """A game of our own is started and ended."""
        until = time.monotonic() + self._args.within
        last: Exception | None = None
        while time.monotonic() < until:
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
        until = time.monotonic() + 120.0
        for thread in self._games:
            thread.join(max(0.0, until - time.monotonic()))
        time.sleep(4.0)  # the leases of those who vanished run out
        self._actor.stop(10.0)
        taken: list[Any] = []
        while batch := self._buffer.take(256, timeout_s=0.5):
            taken += batch
        self._trial.close()
        faults, metrics = sessions.check(self._ledgers, self._trial.folder / "gateway", taken)
        for fault in faults:
            self._account.violation(f"serve: {fault}")
        self._metrics.update({name: value for name, value in metrics.items() if isinstance(value, int)})

    def close(self) -> None:
        for thread in self._games:
            self._stop_playing.set()
            thread.join(30.0)
        if self._trial is not None:
            self._trial.close()

    def check(self) -> dict[str, Any]:
        return {**self._metrics, "lives": self._number}


# ---- what is done, and what is looked at

_LUDUS = (sys.executable, "-m", "ludus")


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _stop_for(pid: int, seconds: float) -> None:
    """SIGSTOP, and SIGCONT later; never, if that is infinite."""
    _signal(pid, signal.SIGSTOP)
    if seconds < math.inf:
        timer = threading.Timer(seconds, _signal, (pid, signal.SIGCONT))
        timer.daemon = True
        timer.start()


def _state(pid: int) -> str:
    """A letter, as `ps` shows it; empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


@contextlib.contextmanager
def _present(path: Path) -> Iterator[None]:
    path.touch()
    try:
        yield
    finally:
        path.unlink()


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


def _files_of(folder: Path) -> list[Path]:
    """What a trial keeps, without logs, locks and the orders to its workers."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    return [path for path in paths if path.suffix != ".lock" and path.parent.name not in ("logs", "workers")]


def _tear_one_of(paths: list[Path], chance: random.Random) -> str:
    """Empty one of the files, halve it, or flip a byte of it; its name. Who has mapped it keeps what was there."""
    older = [each for suffix in (".ludus", ".weights") for each in [p for p in paths if p.suffix == suffix][:-1]]
    path = chance.choice([each for each in paths if each not in older])  # the newest is the one that was being written
    content = path.read_bytes()
    damages: list[Callable[[], bytes]] = [lambda: b"", lambda: content[: len(content) // 2]]
    if path.name.endswith(CHECKSUMMED) and content:
        at = len(content) * 2 // 3
        damages.append(lambda: content[:at] + bytes([content[at] ^ 0x04]) + content[at + 1 :])
    part = path.with_name(f"{path.name}.torn")
    part.write_bytes(chance.choice(damages)())
    part.replace(path)
    return path.name


def _is_needed(torn: str, folder: Path) -> bool:
    """Whether a trial cannot be used without that file: its config, or its only checkpoint."""
    num_checkpoints = len(list((folder / "checkpoints").glob("*.ludus")))
    return torn == "config.json" or (torn.endswith(".ludus") and num_checkpoints == 1)


def _last_words(path: Path) -> str:
    text = path.read_text(errors="replace") if path.exists() else ""
    return " | ".join(text.strip().splitlines()[-12:])[-1500:]


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

KINDS: dict[str, type[Subject]] = {"serve": ServingSubject, "finished": FinishedSubject}


def run(args: argparse.Namespace, scratch: Path) -> Account:
    account = Account()
    chance = random.Random(args.seed)
    shares = {kind: SHARES[kind] / sum(SHARES[each] for each in args.subjects) for kind in args.subjects}
    for kind, share in shares.items():
        subject = KINDS.get(kind, TrainingSubject)(kind, scratch, chance, account, args)
        num_faults = math.inf if args.faults is None else math.ceil(args.faults * share)
        try:
            _torment(subject, account, chance, args.seconds * share, num_faults, args)
        finally:
            subject.close()
            subject.unmount()
    for text in _leftovers(scratch):
        account.violation(f"left behind: {text}")
    num_done = sum(account.faults.values())
    if args.faults is not None and num_done < args.faults:
        account.violation(f"only {num_done} of {args.faults} faults were done in {args.seconds:g} s")
    return account


def _torment(
    subject: Subject,
    account: Account,
    chance: random.Random,
    seconds: float,
    num_faults: float,
    args: argparse.Namespace,
) -> None:
    """Faults until the time is up or all are done; after a violation the subject is started again."""
    faults = [fault for fault in subject.faults() if not args.only or fault in args.only]
    if not faults:
        return
    until, num_done, num_failed_starts = time.monotonic() + seconds, 0, 0
    to_do: list[str] = []
    is_running = False
    while (time.monotonic() < until and num_done < num_faults) or num_done == 0:
        try:
            if not is_running:
                num_failed_starts += 1
                subject.start()
                is_running, num_failed_starts = True, 0
            to_do = to_do or chance.sample(faults, len(faults))  # each comes once before any comes again
            fault = to_do.pop()
            print(f"{subject.kind}: {fault}", file=sys.stderr, flush=True)
            num_done += _strike(subject, fault, account)
            time.sleep(chance.uniform(0.0, args.pause))
        except (Violation, ludus.errors.LudusError, OSError) as error:
            account.violation(str(error) if isinstance(error, Violation) else f"{subject.kind}: {error!r}")
            subject.close()
            is_running = False
            if num_failed_starts >= MAX_FAILED_STARTS:
                account.violation(f"{subject.kind}: {num_failed_starts} starts in a row have failed; given up")
                break
    try:
        if is_running:
            subject.stop()
    except (Violation, ludus.errors.LudusError, OSError) as error:
        account.violation(str(error) if isinstance(error, Violation) else f"{subject.kind}: {error!r}")
    account.metrics[subject.kind] = subject.check()


def _strike(subject: Subject, fault: str, account: Account) -> bool:
    """Whether there was a victim."""
    began = time.monotonic()
    try:
        recovery_s = subject.strike(fault)
    except Violation:
        account.fault(f"{subject.kind}:{fault}", time.monotonic() - began)
        raise
    if recovery_s is not None:
        account.fault(f"{subject.kind}:{fault}", recovery_s)
    return recovery_s is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, metavar="N", help="go on until so many were done, however long it takes")
    parser.add_argument(
        "--seconds", type=float, help="of faults, shared by the subjects (default: 120; no limit with --faults)"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--subjects", type=_words(tuple(SHARES)), default=tuple(SHARES))
    parser.add_argument("--only", type=_words((*WORKER_FAULTS, *OUTAGES, *RUN_FAULTS)), default=(), help="these faults")
    parser.add_argument("--within", type=float, default=10.0, help="seconds from a fault to progress")
    parser.add_argument("--max-stop", type=float, default=30.0, help="the longest SIGSTOP that ends")
    parser.add_argument("--pause", type=float, default=0.5, help="the longest pause between two faults")
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, by what it starts, too
    if args.seconds is None:
        args.seconds = 120.0 if args.faults is None else math.inf
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
        "slowest_s": dict(sorted(account.slowest_s.items())),
        "violations": account.violations,
        **account.metrics,
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
