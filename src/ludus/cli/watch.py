"""`ludus watch TRIAL`: see a trial's policy play, in the terminal or as an animated GIF.

ludus watch 20261115-201402                             # one episode, drawn live
ludus watch 20261115-201402 --episodes 3 --gif three.gif
ludus watch 20261115-201402 --untrained                 # as it played before it had learnt anything
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from ludus.cli import league_trials, options
from ludus.cli.extras import expect_installed
from ludus.experiment import half_blocks
from ludus.options import option
from ludus.trial.find import find

if TYPE_CHECKING:
    from ludus.experiment.recording import Recording
    from ludus.experiment.watching import Moment, VisibleEnv
    from ludus.learn.policies.policy import Policy

__all__ = ["Screen", "add_arguments", "run", "show_episodes"]

_MOST_COLUMNS = 100
_REST_S = 0.7  # before an episode that is over is gone from the screen


@dataclass(frozen=True, kw_only=True)
class _Episodes:
    episodes: int = option(1, help="number of episodes to play", minimum=1)
    fps: float | None = option(None, help="steps shown in a second; none: as the environment says", minimum=0.1)
    seed: int = option(0, help="seed of the first episode; the next ones count up", minimum=0)
    greedy: bool | None = option(None, help="play the most likely actions instead of samples; none: unless untrained")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial", metavar="TRIAL", help="a name in the project folder, or the path of a trial")
    options.add_options(parser, _Episodes())
    parser.add_argument("--gif", metavar="FILE.gif", type=Path, help="also save them as an animated GIF")
    parser.add_argument("--untrained", action="store_true", help="the policy before it had learnt anything")
    options.add_project(parser)


def run(args: argparse.Namespace) -> int:
    chosen = _Episodes(**(asdict(_Episodes()) | options.given_options(args, _Episodes())))
    folder = find(args.trial, project=args.project, trained=True).path
    league_trials.refuse_league(folder)
    expect_installed("torch", *(["PIL"] if args.gif else []), extra="train")
    from ludus.experiment import player, recording, saved_config, watching  # bring torch

    config = saved_config.load_config(folder)
    policy = watching.untrained_policy(folder) if args.untrained else player.load_player(folder).policy
    with watching.VisibleEnv(config.train.env, **config.eval_env_args) as env:
        kept = recording.Recording(fps=chosen.fps or env.fps) if args.gif else None
        show_episodes(
            env,
            policy,
            seeds=range(chosen.seed, chosen.seed + chosen.episodes),
            greedy=not args.untrained if chosen.greedy is None else chosen.greedy,
            fps=chosen.fps,
            recording=kept,
        )
    if kept is not None:
        print(kept.save(args.gif))
    return 0


def show_episodes(
    env: VisibleEnv,
    policy: Policy,
    *,
    seeds: Sequence[int],
    greedy: bool = True,
    fps: float | None = None,
    max_steps: int | None = None,
    recording: Recording | None = None,
    out: TextIO | None = None,
) -> list[float]:
    """Play an episode for each seed: drawn, if `out` is a terminal, and summed up in a line. Returns each one's return.

    Of several agents the mean is returned. An episode of more than `max_steps` is left there.
    """
    from ludus.experiment import watching

    out = sys.stdout if out is None else out
    is_drawn = out.isatty() and os.environ.get("TERM") != "dumb"
    limit = {} if max_steps is None else {"max_steps": max_steps}
    ended: list[float] = []
    for number, seed in enumerate(seeds, 1):
        moments = watching.play_episode(env, policy, seed=seed, greedy=greedy, **limit)
        last: Moment | None = None
        screen: Screen | _Nothing = Screen(fps or env.fps, out=out) if is_drawn else _Nothing()
        with screen:
            for last in moments:
                is_last = last.is_over or last.step == max_steps
                if recording is not None:
                    recording.add(last.frame, is_last=is_last)
                screen.show(last, f"{env.name}   step {last.step:,}   return {_spell(last.returns)}")
        assert last is not None
        cut = "" if last.is_over else ", and cut there"
        out.write(f"episode {number}: return {_spell(last.returns)} in {last.step:,} steps{cut}\n")
        out.flush()
        ended.append(sum(last.returns) / len(last.returns))
    return ended


def _spell(returns: Sequence[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in returns)


class Screen:
    """A terminal that shows moments in place, `fps` of them a second, with a line below; the rest of it stays.

    Frames for which there is no time are left out, so that a slow terminal sees fewer, not slower ones.
    """

    def __init__(
        self,
        fps: float,
        *,
        out: TextIO,
        size: os.terminal_size | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._out = out
        self._every_s = 1.0 / fps
        self._size = size or shutil.get_terminal_size()
        self._clock = clock
        self._sleep = sleep
        self._due: float | None = None
        self._num_lines = 0

    def __enter__(self) -> Self:
        self._out.write("\x1b[?25l")  # no cursor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._out.write("\x1b[?25h")
        self._out.flush()

    def show(self, moment: Moment, caption: str) -> None:
        now = self._clock()
        self._due = now if self._due is None else self._due + self._every_s
        is_late = now > self._due + self._every_s
        if self._due > now:
            self._sleep(self._due - now)
        if is_late and not moment.is_over:
            self._due = max(self._due, now - 1.0)  # a pause is not caught up with
            return
        self._draw(moment.frame, caption)
        if moment.is_over:
            self._sleep(_REST_S)

    def _draw(self, frame: Any, caption: str) -> None:
        height, width = frame.shape[:2]
        columns = min(_MOST_COLUMNS, self._size.columns - 1)
        lines, columns = half_blocks.fit(height, width, columns=columns, lines=max(1, self._size.lines - 3))
        drawn = half_blocks.draw(frame, columns=columns, lines=lines)
        up = f"\x1b[{self._num_lines}A\r" if self._num_lines else ""
        clear = "\x1b[K"  # what is left of a longer line
        self._out.write(up + "".join(f"{line}{clear}\n" for line in [*drawn, caption[: self._size.columns - 1]]))
        self._out.flush()
        self._num_lines = len(drawn) + 1


class _Nothing:
    """Where there is no terminal to draw in."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, moment: Moment, caption: str) -> None: ...
