"""Where the time of a training run goes, function by function: a sampling profile of both flows.

    python benchmarks/where_time_goes.py                    # tables for people
    python benchmarks/where_time_goes.py --report           # and into docs/profile.md

py-spy samples each process of a run 200 times a second without slowing it. A sample counts for the innermost Python
function; time inside torch or NumPy counts for the function that called them.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
CASES = {
    "sync, CartPole-v1": "train ppo CartPole-v1 --num-envs 64 --num-steps 32 --num-epochs 4 --minibatch-size 512"
    " --steps 600000 --eval-episodes 0",
    "async, CartPole-v1": "train appo CartPole-v1 --simulators 1 --num-envs 64 --num-steps 32 --minibatch-size 1024"
    " --steps 1000000 --eval-episodes 0",
    "async, ALE/Pong-v5": "train appo ALE/Pong-v5 --simulators 1 --steps 15000 --eval-episodes 0",
}
TOP = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--report", action="store_true", help="write docs/profile.md")
    args = parser.parse_args()
    parts = []
    for name, command in CASES.items():
        print(f"profiling: {name}", file=sys.stderr)
        parts.append(_table(name, command, _profile(command)))
    text = "\n".join(parts)
    print(text)
    if args.report:
        head = (
            "# Where the time goes\n\n"
            f"{datetime.date.today()}, `python benchmarks/where_time_goes.py --report`; py-spy, 200 samples a second "
            "of each process, imports left out. A function's own share of its process's samples; native code that it "
            "calls (torch, NumPy, ALE) counts for it.\nIn `sync`, what is above 10 % (`_SigmoidTowers`) is a list of "
            "calls into torch: the forward and backward pass of the network.\n\n"
        )
        (ROOT / "docs" / "profile.md").write_text(head + text)
    return 0


def _profile(command: str) -> dict[str, collections.Counter[str]]:
    """Samples by function, by process."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        subprocess.run(
            [BIN / "py-spy", "record", "--rate", "200", "--format", "raw", "--subprocesses", "--nonblocking",
             "--output", raw, "--", BIN / "ludus", *command.split(), "--project", folder],
            check=True, capture_output=True,
        )  # fmt: skip
        lines = raw.read_text().splitlines()
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for line in lines:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if any("importlib" in frame for frame in frames):
            continue
        found[_process(frames)][_function(frames[-1])] += int(count)
    return found


def _process(frames: list[str]) -> str:
    """Which part of the run this is, by what is on the stack."""
    for mark, name in (("simulator/service.py", "simulator"), ("trainer/service.py", "trainer")):
        if any(mark in frame for frame in frames):
            return name
    if any("experiment/training.py" in frame for frame in frames):
        return "the one process"
    return ""


def _function(frame: str) -> str:
    frame = re.sub(r":\d+\)$", ")", frame)
    return re.sub(r"\((?:.*/)?(?:site-packages|src)/", "(", frame)


def _table(name: str, command: str, found: dict[str, collections.Counter[str]]) -> str:
    lines = [f"## {name}", f"`ludus {command}`", ""]
    for process, counts in sorted(found.items()):
        total = counts.total()
        if not process or total < 100:
            continue
        lines += [f"| {process}: function | own share |", "|---|--:|"]
        lines += [f"| `{function}` | {count / total:.1%} |" for function, count in counts.most_common(TOP)]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
