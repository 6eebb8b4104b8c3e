"""A league that is spread, while its processes are killed and stopped: every result is counted once, and it goes on.

    python benchmarks/league_chaos.py                          # 20 faults, about two minutes; part of `make chaos`
    python benchmarks/league_chaos.py --faults 60 --seed 7 --json

`ludus league board:tic_tac_toe --learners 2 --simulators 2` runs as a program of processes. At random moments:

    league        kill -9 of the service
    learner       kill -9 of a learner
    simulators    kill -9 of half the simulators
    stop          SIGSTOP, for ever, of a simulator
    halt          SIGSTOP, for ever, of the service
    pause         SIGSTOP of the service for a second
    everything    kill -9 of all processes at once, the driver, too; then the same command again

A ledger of its own (`league_ledger.py`) has what each process asked for, what it reported and what was answered. At the
end, after one more kill -9 of everything, the league is opened and compared:

    every result that was acknowledged as counted is in the payoff; what was reported without an answer may be
    a player from another trial, with another network, that was added while it ran, has met others
    no match was acknowledged twice, none was counted that nobody reported
    what is reported again is refused
    ratings, steps and the number of games went on: after each kill all that was shown before it is there, the same
    the trial's metrics say how old what was learnt from is, how many matches there are, and what simulators do

The exit code is 1 if anything of this does not hold, if a victim was not replaced, or if matches stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ludus import envs
from ludus.experiment import config as configs
from ludus.experiment import saved_config, wiring
from ludus.experiment.checkpoints import CheckpointStore
from ludus.league.frozen_import import import_player
from ludus.league.live import open_league
from ludus.league.view import VIEW_FILE, read_view
from ludus.learn.policies.policy import Policy
from ludus.telemetry.metrics_file import read_metrics

GAME = "board:tic_tac_toe"
FAULTS = ("league", "learner", "simulators", "stop", "halt", "pause", "everything")
SMALL = ("--num-envs", "16", "--num-steps", "32", "--num-epochs", "1", "--minibatch-size", "256", "--hidden", "16")
SETTINGS = (*SMALL, "--turn-updates", "1", "--threads", "1", "--snapshot-steps", "20000", "--games-per-match", "2")
RUN = ("--checkpoint-seconds", "1", "--decay", "1")
RIVAL = "rival"
_PLAYED = "simulator/steps_per_second"
LEDGER = Path(__file__).with_name("league_ledger.py")


class Chaos:
    """One league, its faults and what was found."""

    def __init__(self, scratch: Path, args: argparse.Namespace) -> None:
        self.folder = scratch / "project" / "league"
        self.violations: list[str] = []
        self.faults: Counter[str] = Counter()
        self.replaced_s: dict[str, list[float]] = defaultdict(list)  # from the fault to the successor's process
        self.recovered_s: dict[str, list[float]] = defaultdict(list)  # from the fault to the next result
        self._ledger = scratch / "ledger"
        self._ledger.mkdir()
        site = scratch / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(LEDGER.read_text())
        path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
        self._environ = {**os.environ, "PYTHONPATH": path, "LUDUS_LEDGER": str(self._ledger), "OMP_NUM_THREADS": "1"}
        self._log = (scratch / "league.out").open("ab")
        self._args = args
        self._chance = random.Random(args.seed)
        self._process: subprocess.Popen[bytes] | None = None
        self._last: dict[str, Any] | None = None

    # --- the league

    def start(self) -> None:
        spread = ("--learners", str(self._args.learners), "--simulators", str(self._args.simulators))
        where = ("--project", str(self.folder.parent), "--trial", self.folder.name)
        command = [sys.executable, "-m", "ludus", "league", GAME, *where, *spread, *SETTINGS, *RUN]
        self._process = subprocess.Popen(command, env=self._environ, stdout=self._log, stderr=self._log)

    def view(self) -> dict[str, Any] | None:
        return read_view(self.folder / "league" / VIEW_FILE)

    def num_games(self) -> int:
        view = self.view()
        return 0 if view is None else int(view["stats"]["num_games"])

    def workers(self) -> dict[str, int]:
        """Worker (`league-0`) → process."""
        prefix = f"{self.folder}/workers/".encode()
        return {
            Path(os.fsdecode(word)).stem: pid
            for pid, words in command_lines()
            for word in words
            if word.startswith(prefix) and word.endswith(b".spec")
        }

    def add_rival(self) -> None:
        """From a trial of `ludus train` whose network is not the league's."""
        config = configs.resolve("ppo", GAME, {"hidden": (24, 12)})
        trial = self.folder.parent / RIVAL
        trial.mkdir()
        saved_config.write_trial(trial, config)
        policy = Policy(wiring.make_policy_spec(config, envs.spec(GAME)))
        CheckpointStore(trial / "checkpoints", keep=1).save(1, {"weights": policy.weights()})
        import_player(self.folder, RIVAL, str(trial))

    def expect_rival_met(self) -> None:
        def is_met() -> bool:
            return any(each["name"] == RIVAL and each["games"] for each in (self.view() or {"players": []})["players"])

        if not wait_for(is_met, self._args.within):
            self.violation(f"{RIVAL}, which was added from another trial, has met nobody within {self._args.within} s")

    def expect_progress(self, what: str, since: float, at_least: int) -> bool:
        """Results are counted again."""
        if wait_for(lambda: self.num_games() > at_least, self._args.within):
            self.recovered_s[what].append(time.monotonic() - since)
            return True
        words = Path(self._log.name).read_text(errors="replace").strip().splitlines()[-8:]
        self.violation(f"no result within {self._args.within} s of {what}: {' | '.join(words)}")
        return False

    def violation(self, text: str) -> None:
        self.violations.append(text)
        print(f"VIOLATION {text}", file=sys.stderr, flush=True)

    # --- faults

    def strike(self, fault: str) -> None:
        time.sleep(self._chance.uniform(0.0, self._args.calm))
        workers = self.workers()
        named = {
            "league": ["league-0"],
            "halt": ["league-0"],
            "pause": ["league-0"],
            "learner": [self._chance.choice([name for name in workers if name.startswith("learner")] or [""])],
            "simulators": sorted(name for name in workers if name.startswith("simulator"))[::2],
            "stop": [self._chance.choice([name for name in workers if name.startswith("simulator")] or [""])],
            "everything": list(workers),
        }[fault]
        victims = {name: workers[name] for name in named if name in workers}
        if not victims:
            return
        before = self.num_games()
        began = time.monotonic()
        self.faults[fault] += 1
        if fault == "everything":
            self.kill_all()
            self.check_ratings()
            began = time.monotonic()
            before = self.num_games()
            self.start()
        else:
            number = signal.SIGSTOP if fault in ("stop", "halt", "pause") else signal.SIGKILL
            for pid in victims.values():
                send(pid, number)
            if fault == "pause":
                time.sleep(1.0)
                for pid in victims.values():
                    send(pid, signal.SIGCONT)
            else:
                self._expect_replaced(fault, victims, began)
        self.expect_progress(fault, began, before)

    def _expect_replaced(self, fault: str, victims: dict[str, int], began: float) -> None:
        def are_replaced() -> bool:
            now = self.workers()
            return all(now.get(name) not in (None, pid) for name, pid in victims.items())

        if wait_for(are_replaced, self._args.within):
            self.replaced_s[fault].append(time.monotonic() - began)
        else:
            self.violation(f"{', '.join(victims)} not replaced within {self._args.within} s of {fault}")

    def check_metrics(self) -> None:
        """They come from all its processes, also from those that were started again."""
        wanted = {"lag/max", "league/matches_per_second"} | ({_PLAYED} if self._args.simulators else set())
        missing: set[str] = set()

        def are_there() -> bool:
            lines = read_metrics(self.folder)
            missing.clear()
            missing.update(wanted - {name for line in lines for name, value in line.items() if value})
            return not missing

        if not wait_for(are_there, self._args.within):
            self.violation(f"no metrics {', '.join(sorted(missing))} within {self._args.within} s")

    def kill_all(self) -> None:
        """All at once, as when the power goes; the files of this machine stay."""
        assert self._process is not None
        self._last = self.view()
        send(self._process.pid, signal.SIGSTOP)  # from here on nothing is started
        pids = {self._process.pid, *processes_of(self.folder), *descendants_of(self._process.pid)}
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none sees another die
            for pid in pids:
                send(pid, number)
        self._process.wait(30)
        if not wait_for(lambda: not any(is_alive(pid) for pid in pids), 10.0):
            self.violation("processes outlive kill -9")

    def check_ratings(self) -> None:
        """What was shown before a kill is there after it, and went on from there."""
        if self._last is None:
            return
        with open_league(self.folder) as service:
            league = service.league
            if league.num_games < self._last["stats"]["num_games"]:
                self.violation(f"{league.num_games} games after a kill, {self._last['stats']['num_games']} before it")
            for player in self._last["players"]:
                name = player["name"]
                then = {number: (mean, std) for number, mean, std in self._last["history"].get(name, ())}
                now = {number: (mean, std) for number, mean, std in league.history.get(name, ())}
                if any(now[number] != then[number] for number in then.keys() & now.keys()):
                    self.violation(f"the ratings of {name} are others after a kill")
                if then and max(now, default=0) < max(then):
                    self.violation(f"ratings of {name} are lost after a kill")
                if league.player(name).step < player["step"]:
                    self.violation(f"{name} had {player['step']} steps, and {league.player(name).step} after a kill")

    # --- the accounts

    def compare(self) -> dict[str, Any]:
        """The ledger with the league, after the last kill."""
        started, tried, counted, refused = self._read_ledger()
        twice = [match for match, num in counted.items() if num > 1]
        if twice:
            self.violation(f"{len(twice)} matches were acknowledged more than once: {twice[:5]}")
        if invented := [match for match in counted if match not in tried]:
            self.violation(f"{len(invented)} matches were counted that nobody reported: {invented[:5]}")
        # What was never answered may be counted. So may what was refused: a report is repeated when its answer is lost.
        unsure = {match for match in tried if match not in counted}
        sure, most = self._sums(started, tried, counted), self._sums(started, tried, {*counted, *unsure})
        with open_league(self.folder) as service:
            payoff, names = service.league.payoff, [player.name for player in service.league.players]
            # A learner that began again has no results of before: of those the ledger says at most how many there are.
            forgot = {player.name for player in service.league.players if player.is_learning and player.num_resets}
            for one in names:
                for two in names:
                    least = [0, 0, 0] if forgot & {one, two} else sure[one, two]
                    found, bound = payoff.record(one, two), most[one, two]
                    within = [low <= has <= high for low, has, high in zip(least, found, bound, strict=True)]
                    if one != two and not all(within):
                        self.violation(f"{one} against {two}: {tuple(found)}, and {least} to {bound} in the ledger")
            if not any(payoff.record(RIVAL, name).games for name in names if name != RIVAL):
                self.violation(f"the games of {RIVAL}, which was added from another trial, are lost")
            num_games = service.league.num_games
            least_games = sum(len(tried[match]) for match in counted)
            most_games = least_games + sum(len(tried[match]) for match in unsure)
            if not least_games <= num_games <= most_games:
                self.violation(f"{num_games} games in the league, {least_games} to {most_games} in the ledger")
            again = [[match, tried[match]] for match in list(counted)[-2000:]]
            if again and any(service.report_series(again)):
                self.violation("results that were acknowledged were counted again")
        return {
            "games": num_games,
            "games_acknowledged": least_games,
            "matches_acknowledged": len(counted),
            "matches_unanswered": len(unsure - refused),
            "matches_refused": len(refused),
        }

    def _read_ledger(self) -> tuple[dict[str, list[str]], dict[str, list[Any]], Counter[str], set[str]]:
        started: dict[str, list[str]] = {}
        tried: dict[str, list[Any]] = {}
        counted: Counter[str] = Counter()
        refused: set[str] = set()
        for path in self._ledger.glob("*.jsonl"):
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                for match, players in entry.get("started", ()):
                    if started.setdefault(match, players) != players:
                        self.violation(f"the match {match} was handed out twice, with other players")
                for match, games in entry.get("tried", ()):
                    if tried.setdefault(match, games) != games:
                        self.violation(f"the match {match} was reported twice, with other results")
                counted.update(entry.get("counted", ()))
                refused.update(entry.get("refused", ()))
        return started, tried, counted, refused

    def _sums(
        self, started: dict[str, list[str]], tried: dict[str, list[Any]], matches: Any
    ) -> dict[tuple[str, str], list[int]]:
        """Wins, draws and losses of each ordered pair."""
        sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        for match in matches:
            players = started[match]
            for scores in tried[match] if players[0] != players[1] else ():
                for side in range(2):
                    margin = scores[side] - scores[1 - side]
                    sums[players[side], players[1 - side]][0 if margin > 0 else 1 if margin == 0 else 2] += 1
        return sums

    def close(self) -> None:
        if self._process is not None:
            for pid in {self._process.pid, *processes_of(self.folder), *descendants_of(self._process.pid)}:
                send(pid, signal.SIGKILL)
            self._process.wait(30)
        self._log.close()


# --- processes


def command_lines() -> list[tuple[int, list[bytes]]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                found.append((int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")))
    return found


def processes_of(folder: Path) -> list[int]:
    """Whose command line names the folder."""
    wanted = os.fsencode(folder)
    return [pid for pid, words in command_lines() if any(wanted in word for word in words)]


def descendants_of(pid: int) -> list[int]:
    """One that has just been forked has no command line of its own yet."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
                children[int(parent)].append(int(entry.name))
    found, left = [], [pid]
    while left:
        found += (new := children[left.pop()])
        left += new
    return found


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_for(is_so: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def run(scratch: Path, args: argparse.Namespace) -> dict[str, Any]:
    chaos = Chaos(scratch, args)
    began = time.monotonic()
    try:
        chaos.start()
        if chaos.expect_progress("the start", began, 0):
            chaos.add_rival()
            faults = [args.only[number % len(args.only)] for number in range(args.faults)]
            random.Random(args.seed).shuffle(faults)
            for fault in faults:
                chaos.strike(fault)
                if len(chaos.violations) > 20:
                    break
            chaos.expect_rival_met()
        chaos.check_metrics()
        chaos.kill_all()
        chaos.check_ratings()
        accounts = chaos.compare()
    finally:
        chaos.close()
    return {
        "faults": dict(chaos.faults),
        "seconds": round(time.monotonic() - began, 1),
        "replaced_s": median_and_most(chaos.replaced_s),
        "recovered_s": median_and_most(chaos.recovered_s),
        **accounts,
        "violations": chaos.violations,
    }


def median_and_most(seconds: dict[str, list[float]]) -> dict[str, list[float]]:
    return {what: [round(statistics.median(each), 2), round(max(each), 2)] for what, each in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(FAULTS), help="of these faults")
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--simulators", type=int, default=2)
    parser.add_argument("--calm", type=float, default=3.0, help="at most so many seconds between two faults")
    parser.add_argument("--within", type=float, default=60.0, help="seconds within which the league has to go on")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for fault in args.only:
        if fault not in FAULTS:
            parser.error(f"there is no fault {fault!r}; there are: {', '.join(FAULTS)}")
    with tempfile.TemporaryDirectory(prefix="league-chaos-") as scratch:
        found = run(Path(scratch), args)
    found["seed"] = args.seed
    for name, value in found.items():
        print(f"{name:20} {value}", file=sys.stderr)
    if args.json:
        print(json.dumps(found))
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
