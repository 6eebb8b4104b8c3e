"""Breaks the code on purpose, one small change at a time, and counts how many of them the tests notice.

    python benchmarks/mutants.py [--jobs 2] [--only REGEX] [--timeout 180] [--list] [--no-baseline]

The changes are data: `mutants.toml`. Each is made in a temporary copy of the tree, never in place, and each names the
few tests that should notice it. Before that, those tests must pass on the copy as it is. A mutant is

    killed      the tests fail, or hang until the timeout
    survived    the tests pass: a hole, unless `mutants.toml` explains it
    stale       its pattern is not in its file exactly once; adapt or remove it

Exits with 0 only if nothing is stale, at least 95 % are killed and every survivor is explained.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).resolve().parent / "mutants.toml"
SHARE_KILLED = 0.95
_PASSED, _NO_TESTS, _USAGE = 0, 5, 4  # exit codes of pytest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one file."""

    what: str  # is broken, in a few words; its name
    file: str  # from the root of the tree
    pattern: str  # is in the file exactly once
    replacement: str
    tests: str  # arguments of pytest

    def fault(self, root: Path) -> str | None:
        """Why it cannot be made in this tree, if so."""
        path = root / self.file
        if not path.is_file():
            return f"there is no {self.file}"
        count = path.read_text().count(self.pattern)
        if count != 1:
            return f"its pattern is in {self.file} {count} times, not once"
        return None

    def apply(self, source: str) -> str:
        return source.replace(self.pattern, self.replacement)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    mutant: Mutant
    verdict: str  # killed, survived, stale
    detail: str
    seconds: float


def read_list(path: Path = LIST) -> tuple[list[Mutant], dict[str, str]]:
    """All mutants, and the explained survivors: why the tests need not notice them, by name."""
    listed = tomllib.loads(path.read_text())
    mutants = [
        Mutant(
            what=what,
            file=part["file"],
            pattern=pattern.replace("\\n", "\n"),
            replacement=replacement.replace("\\n", "\n"),
            tests=tests[0] if tests else part["tests"],
        )
        for part in listed["part"]
        for what, pattern, replacement, *tests in part["mutants"]
    ]
    return mutants, listed.get("survivors", {})


class Copies:
    """Temporary copies of the tree's tracked files, one for each job."""

    def __init__(self, root: Path, num: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ludus-mutants-", ignore_cleanup_errors=True)
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            check=True,
        )
        names = [name for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()]
        for number in range(num):
            copy = Path(self._folder.name) / str(number)
            for name in names:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
            self._free.put(copy)

    @contextlib.contextmanager
    def one(self) -> Iterator[Path]:
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)

    def close(self) -> None:
        self._folder.cleanup()


class Tests:
    """Runs pytest in copies, each time in a fork of a process that has loaded heavy libraries and none of our code."""

    def __init__(self, timeout_s: float, preload: Sequence[str]) -> None:
        self.timeout_s = timeout_s
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        self._running: set[int] = set()

    def run(self, copy: Path, tests: str) -> tuple[int | None, str]:
        """The exit code of pytest, `None` if it took too long, and the last lines of what it printed."""
        with tempfile.NamedTemporaryFile("r") as output:
            process = self._context.Process(target=_run_pytest, args=(copy, shlex.split(tests), output.name))
            process.start()
            assert process.pid is not None
            self._running.add(process.pid)
            process.join(self.timeout_s)
            code = process.exitcode
            self._kill(process.pid)  # what the tests started, too
            process.kill()  # it may have no group of its own yet
            process.join()
            return code, "\n".join(output.read().splitlines()[-12:])

    def close(self) -> None:
        for pid in list(self._running):
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        self._running.discard(pid)


def _run_pytest(copy: Path, arguments: list[str], output: str) -> None:
    os.setsid()
    os.environ |= {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    os.chdir(copy)
    sys.path.insert(0, str(copy / "src"))
    sys.path[:] = [path for path in sys.path if path not in ("", str(ROOT / "benchmarks"))]
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import hypothesis
    import pytest

    import ludus

    # A failure is all that is asked for: it need not be made smaller.
    hypothesis.settings.register_profile("mutants", phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
    hypothesis.settings.load_profile("mutants")
    if not Path(ludus.__file__).is_relative_to(copy):
        sys.exit(f"the copy {copy} would test {ludus.__file__}")
    rewritten = "ignore::pytest.PytestAssertRewriteWarning"  # of libraries that were loaded before
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-W", rewritten, *arguments])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))  # whatever threads the tests have left behind


def try_mutant(mutant: Mutant, copies: Copies, tests: Tests) -> Outcome:
    start = time.monotonic()
    with copies.one() as copy:
        fault = mutant.fault(copy)
        if fault is not None:
            return Outcome(mutant=mutant, verdict="stale", detail=fault, seconds=0.0)
        path = copy / mutant.file
        original = path.read_text()
        _write(path, mutant.apply(original))
        try:
            code, output = tests.run(copy, mutant.tests)
        finally:
            _write(path, original)
    seconds = time.monotonic() - start
    if code == _PASSED:
        return Outcome(mutant=mutant, verdict="survived", detail=output.splitlines()[-1], seconds=seconds)
    if code in (_NO_TESTS, _USAGE):
        return Outcome(mutant=mutant, verdict="stale", detail=f"no tests: {mutant.tests}", seconds=seconds)
    noticed = next((line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    return Outcome(
        mutant=mutant, verdict="killed", detail="timeout" if code is None else noticed[:160], seconds=seconds
    )


def _write(path: Path, source: str) -> None:
    """Without bytecode of what was there before: Python tells by the second and the size."""
    path.write_text(source)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def check_baseline(selections: Sequence[str], copies: Copies, tests: Tests, jobs: int) -> list[str]:
    """Of the tests that mutants name, those that do not pass as things are."""

    def check(selection: str) -> str | None:
        with copies.one() as copy:
            code, output = tests.run(copy, selection)
        if code == _PASSED:
            return None
        return f"{selection}: {'timeout' if code is None else f'exit code {code}'}\n{output}"

    with ThreadPoolExecutor(jobs) as pool:
        return [fault for fault in pool.map(check, selections) if fault is not None]


def verdict(outcomes: Sequence[Outcome], explained: dict[str, str]) -> tuple[bool, list[str]]:
    """Whether all is well, and the summary."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    lines = [f"{len(outcomes)} mutants: " + ", ".join(f"{counts[v]} {v}" for v in ("killed", "survived", "stale"))]
    unexplained = []
    for outcome in outcomes:
        name = outcome.mutant.what
        if outcome.verdict == "survived":
            lines.append(f"survived  {name}: {explained.get(name, 'NOT EXPLAINED')}")
            unexplained += [] if name in explained else [name]
        elif outcome.verdict == "stale":
            lines.append(f"stale     {name}: {outcome.detail}")
        elif name in explained:
            lines.append(f"killed    {name}: listed as a survivor; remove it there")
    enough = counts["killed"] >= SHARE_KILLED * len(outcomes)
    if not enough:
        lines.append(f"fewer than {SHARE_KILLED:.0%} were killed")
    return enough and not unexplained and not counts["stale"], lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="mutants at the same time")
    parser.add_argument("--only", default="", help="a regular expression for their names or files")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for the tests of one mutant")
    parser.add_argument("--list", action="store_true", help="print them and stop")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests on the unchanged tree first")
    parser.add_argument(
        "--preload", nargs="*", default=["hypothesis", "numpy", "pytest", "torch"], help="heavy modules"
    )
    parser.add_argument("--mutants", type=Path, default=LIST, help="another list of mutants")
    parser.add_argument("--root", type=Path, default=ROOT, help="another tree")
    given = parser.parse_args(arguments)
    mutants, explained = read_list(given.mutants)
    mutants = [mutant for mutant in mutants if re.search(given.only, f"{mutant.file}: {mutant.what}")]
    if not mutants:
        print(f"no mutant matches {given.only!r}")
        return 2
    if given.list:
        for mutant in mutants:
            print(f"{mutant.file}: {mutant.what}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    copies, tests = Copies(given.root, given.jobs), Tests(given.timeout, given.preload)
    try:
        if not given.no_baseline:
            selections = sorted({mutant.tests for mutant in mutants})
            faults = check_baseline(selections, copies, tests, given.jobs)
            if faults:
                print("these tests fail without any mutant:", *faults, sep="\n")
                return 2
            print(f"{len(selections)} selections of tests pass as they are", flush=True)
        outcomes = []
        with ThreadPoolExecutor(given.jobs) as pool:
            for outcome in pool.map(lambda mutant: try_mutant(mutant, copies, tests), mutants):
                outcomes.append(outcome)
                where = f"{outcome.mutant.file.removeprefix('src/ludus/')}: {outcome.mutant.what}"
                print(f"{outcome.verdict:9s} {outcome.seconds:6.1f} s  {where}  {outcome.detail}", flush=True)
    finally:
        tests.close()
        copies.close()
    is_well, lines = verdict(outcomes, explained)
    print("", *lines, sep="\n")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
