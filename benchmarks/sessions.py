"""Sessions under fire: 200 games, broken connections, steps sent twice or too early, workers killed, games that vanish.

    python benchmarks/sessions.py                        # about a minute
    python benchmarks/sessions.py --sessions 20 --seconds 6
    python benchmarks/sessions.py --json

Everything that happens is written down where it happens: by the games what they were answered, by the actors what they
were called for, by the gateway when sessions began and ended, by the buffer what was pushed. The accounts must agree:

    every tick that was answered ran, and no tick ran twice;
    every session has one start and one end, with a reason;
    every trajectory is whole, or its session is marked lost;
    no trajectory whose push was acknowledged is missing from the buffer.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import ludus
from ludus.gateway.client import GameClient, GameError
from ludus.gateway.journal import read_journal

BODY = 64


class Ledger:
    """An append-only file of one process: one write for each line."""

    def __init__(self, folder: Path, who: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(folder / f"{who}-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, *words: Any) -> None:
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())


class Net:
    """Made in each process when it is needed: torch is slow to import for those who only play."""

    @staticmethod
    def make() -> Any:
        import torch
        from torch import nn

        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


_ledgers: dict[Path, Ledger] = {}
_models: dict[str, Any] = {}
_buffers: dict[str, Any] = {}


class FireActor(ludus.Actor):
    """Asks a model in another process, notes all that it is called for, and pushes its trajectory at the end."""

    def __init__(self, folder: Path) -> None:
        if folder not in _ledgers:
            _ledgers[folder] = Ledger(folder, "actor")
            _models["net"] = ludus.RemoteModel("net")
            _buffers["fire"] = ludus.RemoteBuffer("fire", capacity=100_000)
        self._ledger = _ledgers[folder]
        self._ticks: list[int] = []

    def start(self, session: ludus.Session, data: bytes) -> bytes:
        self._who = f"{session} {session.run}"
        self._ledger.note("start", self._who)
        return b"started"

    async def tick(self, data: bytes) -> bytes:
        number = int(data[:8])
        await _models["net"].forward(np.full(8, number % 7, np.float32))
        self._ledger.note("tick", self._who, number)
        self._ticks.append(number)
        return data

    async def end(self, data: bytes, reason: str) -> bytes:
        self._ledger.note("end", self._who, reason)
        item = {"who": self._who, "ticks": np.array(self._ticks, np.int64), "reason": reason}
        await _buffers["fire"].push_async(item, drop=False)
        self._ledger.note("pushed", self._who)
        return b"%d" % len(self._ticks)


def play(url: str, number: int, until: float, folder: Path, seed: int) -> None:
    """One game after another in one session id; some vanish, some are cut off, some repeat themselves."""
    chance = random.Random(seed * 1000 + number)
    ledger = Ledger(folder, f"game{number}")
    life = 0
    while time.monotonic() < until:
        life += 1
        session, run = f"s{number}", f"r{life}"
        disturbed: set[str] = set()
        game = GameClient(url, session, run=run, timeout_s=20.0, retries=8)
        try:
            game.start()
            ledger.note("began", session, run)
            for tick in range(1, chance.randint(5, 60)):
                if chance.random() < 0.05:
                    game.close()  # the next step opens another
                data = b"%08d" % tick + bytes(BODY)
                if game.tick(data) != data:
                    ledger.note("wrong", session, run, tick)
                ledger.note("answered", session, run, tick)
                if chance.random() < 0.1:
                    disturbed.add(_disturb(url, session, run, tick, chance, ledger))
                if time.monotonic() > until:
                    break
            if chance.random() < 0.2:
                ledger.note("vanished", session, run)
            else:
                game.end()
                ledger.note("ended", session, run)
        except GameError as error:
            ledger.note("refused", session, run, error.code)
            # A start that the network repeats after its session was lost begins another one, which has other numbers.
            stray = ("out_of_order",) if "start" in disturbed else ()
            if error.code not in ("session_lost", "overloaded", "shutting_down", "unknown_session", *stray):
                ledger.note("unexpected", session, run, error.code)
        except (ConnectionError, TimeoutError, ludus.errors.LudusError) as error:
            ledger.note("failed", session, run, type(error).__name__)
        finally:
            game.close()


def _disturb(url: str, session: str, run: str, tick: int, chance: random.Random, ledger: Ledger) -> str:
    """What a bad network does: an old step again, one from the future, a second start, half a request."""
    import http.client

    kind = chance.choice(("again", "older", "future", "start", "half"))
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    number = {"again": tick, "older": max(1, tick - 3), "future": tick + 5, "start": 0, "half": tick}[kind]
    headers = {"session": session, "step_kind": "start" if kind == "start" else "tick", "step": str(number)}
    if kind == "start":
        headers = {"session": session, "step_kind": "start", "run": run}
    data = b"%08d" % number + bytes(BODY)
    try:
        if kind == "half":
            connection.connect()
            connection.sock.sendall(b"POST /step HTTP/1.1\r\nsession: " + session.encode() + b"\r\nstep_ki")
        else:
            connection.request("POST", "/step", data, headers)
            status = connection.getresponse().status
            expected = {"again": (200,), "older": (409,), "future": (409,), "start": (409,)}[kind]
            if tick <= 3 and kind == "older":
                expected = (200, 409)
            if kind == "start" and status == 200:  # it came so late that the lease was over: a session of its own
                ledger.note("stray", session, run)
            elif status not in (*expected, 404, 410, 503):
                ledger.note("unexpected", session, run, f"{kind}:{status}")
    except OSError:
        pass  # the worker was killed: the game itself will notice
    finally:
        connection.close()
    return kind


def kill_workers(trial: Any, until: float, seed: int, counts: Counter[str], every_s: float) -> None:
    chance = random.Random(seed)
    while time.monotonic() + 2.0 < until:
        time.sleep(every_s * chance.uniform(0.5, 1.5))
        live = [record for record in trial.workers() if record.pid and not record.status.is_final]
        if not live:
            continue
        victim = chance.choice(live)
        counts[victim.name.partition("/")[0].partition("-")[0]] += 1
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def check(folder: Path, gateway: Path, taken: list[Any]) -> tuple[list[str], dict[str, Any]]:
    """What does not fit together, and the metrics."""
    faults: list[str] = []
    ran: Counter[tuple[str, str, int]] = Counter()
    calls: dict[tuple[str, str], list[str]] = defaultdict(list)
    pushed: set[tuple[str, str]] = set()
    counts: Counter[str] = Counter()
    answered: set[tuple[str, str, int]] = set()
    began: set[tuple[str, str]] = set()
    stray: set[tuple[str, str]] = set()
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            words = line.split()
            counts[words[0]] += 1
            who = (words[1], words[2])
            match words[0]:
                case "tick":
                    ran[(*who, int(words[3]))] += 1
                case "start" | "end":
                    calls[who].append(words[0] if words[0] == "start" else f"end:{words[3]}")
                case "pushed":
                    pushed.add(who)
                case "answered":
                    answered.add((*who, int(words[3])))
                case "began":
                    began.add(who)
                case "stray":
                    stray.add(who)
                case "unexpected" | "wrong":
                    faults.append(f"a game was answered otherwise than it should be: {line}")
    faults += [f"tick {tick} ran {count} times" for tick, count in ran.items() if count > 1]
    faults += [f"tick {tick} was answered and never ran" for tick in answered if not ran[tick]]
    starts, ends = Counter[str](), Counter[str]()
    reasons: Counter[str] = Counter()
    lives: Counter[tuple[str, str]] = Counter()
    lost_lives: Counter[tuple[str, str]] = Counter()
    open_run: dict[str, str] = {}
    lost: set[tuple[str, str]] = set()
    for path in gateway.glob("*.journal"):
        for sign, session, word, _time in sorted(read_journal(path), key=lambda event: event[3]):
            if sign == "+":
                starts[session] += 1
                open_run[session] = word
                lives[session, word] += 1
            else:
                ends[session] += 1
                reasons[word] += 1
                if word == "lost":
                    lost.add((session, open_run[session]))
                    lost_lives[session, open_run[session]] += 1
    faults += [f"session {s} began {starts[s]} times and ended {ends[s]} times" for s in starts if starts[s] != ends[s]]
    for who, seen in calls.items():
        if who in stray:
            continue
        # A start whose worker died before it could answer is sent again, and begins another life; the first was lost.
        if not 1 <= seen.count("start") <= lives[who] or lives[who] - lost_lives[who] > 1:
            faults.append(f"{who} was started {seen.count('start')} times")
        num_ends = sum(call.startswith("end:") for call in seen)
        if num_ends > 1 or (num_ends == 0 and who not in lost):
            faults.append(f"{who} was ended {num_ends} times and is not marked lost")
    faults += [f"{who} was reported as started and never was" for who in began if who not in calls]
    kept: Counter[tuple[str, str]] = Counter()
    for item in taken:
        session, run = item["who"].split()
        kept[session, run] += 1
        ticks = item["ticks"].tolist()
        if ticks != list(range(1, len(ticks) + 1)):
            faults.append(f"the trajectory of {session} {run} is not whole: {ticks}")
    faults += [f"the trajectory of {who} was acknowledged and is missing" for who in pushed if not kept[who]]
    faults += [
        f"the trajectory of {who} is there {count} times" for who, count in kept.items() if count > 1 + (who in stray)
    ]
    faults += [f"{who} has no trajectory and is not lost" for who in calls if not kept[who] and who not in lost]
    metrics = {
        "sessions": len(calls),
        "started_again": sum(seen.count("start") > 1 for seen in calls.values()),
        "ticks": sum(ran.values()),
        "answered": len(answered),
        "trajectories": len(taken),
        "ends": dict(reasons),
        "counts": {word: counts[word] for word in ("refused", "failed", "vanished", "ended")},
    }
    return faults, metrics


def main() -> int:
    parser = argparse.ArgumentParser(description="sessions under fire")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--workers", type=int, default=2, help="of the gateway")
    parser.add_argument("--kill-every", type=float, default=2.0, metavar="S")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ludus-fire-") as scratch:
        faults, metrics = _run(args, Path(scratch))
    print(f"seed {args.seed}: {json.dumps(metrics)}", file=sys.stderr)
    for fault in faults[:20]:
        print(f"FAULT {fault}", file=sys.stderr)
    print(f"{len(faults)} faults", file=sys.stderr)
    if args.json:
        print(json.dumps({"faults": len(faults), "seed": args.seed, **metrics}))
    return 1 if faults else 0


def _run(args: argparse.Namespace, scratch: Path) -> tuple[list[str], dict[str, Any]]:
    ledgers = scratch / "ledgers"
    trial = ludus.init(project=scratch, trial="fire")
    kills: Counter[str] = Counter()
    taken: list[Any] = []
    try:
        ludus.RemoteModel("net", Net.make(), forward_args=(np.zeros(8, np.float32),), num_workers=2)
        buffer = ludus.RemoteBuffer("fire", capacity=100_000)
        actor = ludus.RemoteActor(num_workers=args.workers, lease_s=3.0)
        actor.serve(Actor=FireActor, folder=ledgers)
        for number in range(args.workers * 4):  # until everybody has imported torch
            with GameClient(actor.url, f"warm{number}", run="r0", timeout_s=60.0) as game:
                game.start()
                game.tick(b"%08d" % 1 + bytes(BODY))
                game.end()
        until = time.monotonic() + args.seconds
        threads = [
            threading.Thread(target=play, args=(actor.url, number, until, ledgers, args.seed), daemon=True)
            for number in range(args.sessions)
        ]
        killer = threading.Thread(
            target=kill_workers, args=(trial, until, args.seed, kills, args.kill_every), daemon=True
        )
        for thread in (*threads, killer):
            thread.start()
        for thread in (*threads, killer):
            thread.join(args.seconds + 120)
        time.sleep(4.0)  # the leases of those who vanished run out
        actor.stop(10.0)
        while batch := buffer.take(256, timeout_s=0.5):
            taken += batch
    finally:
        trial.close()
    faults, metrics = check(ledgers, trial.folder / "gateway", taken)
    return faults, {"killed": dict(kills), **metrics}


if __name__ == "__main__":
    sys.exit(main())
