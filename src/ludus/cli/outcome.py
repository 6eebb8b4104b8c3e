"""What `train` and `resume` show: progress on standard error, the outcome on standard output, how to go on."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from ludus import errors
from ludus.cli import page_options
from ludus.command_line import trial_command
from ludus.experiment import results
from ludus.telemetry import progress
from ludus.trial.find import find, find_all

__all__ = ["OnProgress", "OnStatus", "Run", "add_arguments", "agents_and_matches", "follow", "process_began"]

_MOST_AGENTS = 8

OnProgress = Callable[[int, Mapping[str, float]], None]
OnStatus = Callable[[str], None]


class Run(Protocol):
    """A training run that has ended."""

    @property
    def result(self) -> Mapping[str, Any]: ...


def add_arguments(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="end with one line of JSON on standard output")
    page_options.add_page(parser)


def follow(
    start: Callable[[OnProgress, OnStatus], Run],
    args: argparse.Namespace,
    *,
    total_steps: int,
    project: str,
    trial: str | None,
    is_clipped: bool = False,
) -> int:
    """Run `start` with progress shown, then print how it ended.

    Returns the exit code: 130 if it was stopped, 1 if it ended and could not be saved whole. `is_clipped`: the return
    of training is one of clipped rewards, and is labelled so.
    """
    began = time.time()
    path = "/newest" if trial is None else f"/trials/{quote(Path(trial).name)}"
    shown_project = str(Path(trial).parent) if trial is not None and Path(trial).is_absolute() else project
    try:
        with (
            page_options.page_beside(shown_project, path, is_wanted=args.page, port=args.page_port),
            progress.Progress(total_steps, return_label="clipped return" if is_clipped else "return") as shown,
        ):
            result = start(shown.update, shown.status).result
    except KeyboardInterrupt:
        print(_stopped(_find(project, trial, began=began)), file=sys.stderr)
        return 130
    print(json.dumps(_finite(result)) if args.json else _sentences(result), flush=True)
    if result.get("save_error"):
        print(f"not all of it could be saved: {result['save_error']}", file=sys.stderr)
        return 1
    return 0


def process_began() -> float:
    """When this process was started, in seconds since 1970: when somebody pressed enter."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):  # not Linux
        return time.time()


def _finite(result: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in result.items()
    }


def _sentences(result: Mapping[str, Any]) -> str:
    lines = [
        f"{result['algorithm']} on {result['env']}, seed {result['seed']}: {result['steps']:,} steps in "
        f"{result['seconds']:.1f} s ({result['steps_per_second']:,.0f} steps/s)"
    ]
    lines += _returns(result)
    if result.get("eval_error"):
        lines.append(f"the evaluation failed: {result['eval_error']}")
    if result.get("time"):
        parts = sorted(result["time"].items(), key=lambda part: -part[1])
        shares = [f"{name.replace('_', ' ')} {part:.0%}" for name, part in parts if part >= 0.005]
        lines.append(f"time: {', '.join(shares)}")
    if result.get("idle"):
        lines.append("idle: " + ", ".join(f"{worker} {part:.0%}" for worker, part in result["idle"].items()))
    lines.append(f"trial {result['trial']}, weights {str(result['weights_hash'])[:12]}")
    return "\n".join(lines)


def _returns(result: Mapping[str, Any]) -> list[str]:
    """Greedy, sampled and training returns, as far as there are any."""
    lines = []
    if result.get("eval_episodes"):
        cut_off = result.get("eval_cut_off")
        lines.append(
            f"return {_spread(result, 'eval_')} over {result['eval_episodes']} episodes, played greedily"
            f"{f', {cut_off} of them cut off before their end' if cut_off else ''}"
        )
    if result.get("eval_sampled_episodes"):
        lines.append(
            f"sampled: {_spread(result, 'eval_sampled_')} over {result['eval_sampled_episodes']} episodes, "
            "with actions sampled as in training"
        )
    if result.get("return_mean") is not None:
        clipped = ", rewards clipped" if result.get("return_clipped") else ""
        lines.append(f"training: {_spread(result, '')}, its last episodes{clipped}")
    lines += agents_and_matches(result, prefix="eval_")
    if result.get("eval_vs_earlier") is not None:
        lines.append(f"against itself at step {result['eval_vs_earlier_step']:,}: won {result['eval_vs_earlier']:.0%}")
    if results.differs_by_sampling(result):
        more = trial_command("evaluate", Path(result["trial"]), "--no-greedy")
        lines.append(
            "greedy and sampled returns differ a lot: the likeliest action is not what was trained. Compare both "
            f"before you serve this policy; more samples: {more}"
        )
    return lines


def agents_and_matches(result: Mapping[str, Any], *, prefix: str = "") -> list[str]:
    """The return of each agent where there are several, and the games won against random play where they compete."""
    lines = []
    start = f"{prefix}return_mean/"
    if by_agent := [name for name in result if name.startswith(start) and result[name] is not None]:
        agents = ", ".join(
            f"{name.partition('/')[2]} {results.spell_return(result[name])}" for name in by_agent[:_MOST_AGENTS]
        )
        lines.append(f"by agent: {agents}{', …' if len(by_agent) > _MOST_AGENTS else ''}")
    if result.get(f"{prefix}vs_random") is not None:
        games = f"of {result[f'{prefix}vs_episodes']} games, each side played equally, draws count half"
        lines.append(f"against random play: won {result[f'{prefix}vs_random']:.0%} {games}")
    return lines


def _spread(result: Mapping[str, Any], prefix: str) -> str:
    return " ± ".join(results.spell_return(result[f"{prefix}return_{what}"]) for what in ("mean", "std"))


# --- a run that was stopped


def _find(project: str, trial: str | None, *, began: float) -> Path | None:
    """The folder of the trial that was just stopped: the one that was named, or the newest started since."""
    if trial is not None:
        with contextlib.suppress(errors.ProgramError):  # it was stopped before it was started
            return find(trial, project=project, trained=True).path
        return None
    paths = [folder.path for folder in find_all(project, trained=True)]
    recent = [path for path in paths if path.stat().st_mtime >= began - 1.0]
    return recent[-1] if recent else None


def _stopped(folder: Path | None) -> str:
    if folder is None or (summary := results.summarise(folder)).saved_step is None:
        return "\nstopped before the first checkpoint; there is nothing to go on with."
    return f"\nstopped at step {summary.saved_step:,}; go on with: {trial_command('resume', folder)}"
