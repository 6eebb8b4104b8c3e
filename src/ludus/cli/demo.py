"""`ludus demo`: a league of Connect Four on a page; or a lunar lander learns to land, before and after are saved.

ludus demo                  # two minutes, then play against the champion: demo_league.py
ludus demo lander           # less than two minutes
ludus demo --calls          # ten seconds of workers calling each other, with one killed on purpose and coming back
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ludus.cli import demo_league, options, outcome, watch
from ludus.cli.extras import expect_installed
from ludus.command_line import command_line, project_words, trial_command
from ludus.telemetry import progress

if TYPE_CHECKING:
    from ludus.experiment.watching import VisibleEnv
    from ludus.learn.policies.policy import Policy

__all__ = ["Lesson", "add_arguments", "run"]

_CALLS_S = 10.0
_SHOWN_SEED = 7


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What is learnt, for how long at most, and how much of it is shown."""

    algorithm: str
    env: str
    seconds: float
    goal: str
    num_tests: int = 20  # episodes
    num_shown: int = 1  # episodes of the trained policy
    max_shown_steps: int = 600
    settings: Mapping[str, Any] = field(default_factory=dict)


_LANDER = Lesson(
    algorithm="ppo",
    env="LunarLander-v3",
    seconds=75.0,
    goal="land softly between the flags: that is a return of 200, and a crash is one below zero",
    num_shown=2,
    settings={
        "steps": 400_000,
        "stop_at_return": 225.0,
        "num_envs": 16,
        "num_steps": 256,
        "gamma": 0.999,
        "lam": 0.98,
        "learning_rate": 1e-3,
        "anneal": True,
        "num_epochs": 10,
        "minibatch_size": 512,
        "entropy_coef": 0.003,
    },
)
_CART = Lesson(
    algorithm="ppo",
    env="CartPole-v1",
    seconds=3.0,
    goal="keep the pole up: 500 steps of it are a return of 500",
    num_tests=5,
    max_shown_steps=120,
    settings={"steps": 30_000, "stop_at_return": 475.0},
)


class TimeIsUp(KeyboardInterrupt):
    """Training is interrupted as Ctrl-C would: it writes a checkpoint, and can be resumed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("league", "lander"), default="league", help="default: league")
    parser.add_argument(
        "--quick", action="store_true", help="some seconds: of tic-tac-toe, or of CartPole-v1 instead of the lander"
    )
    parser.add_argument("--calls", action="store_true", help="workers calling each other, with one killed on purpose")
    parser.add_argument(
        "--seconds", metavar="S", type=float,
        help=f"how long it learns at most (default: {demo_league.SECONDS:g}, the lander {_LANDER.seconds:g}); "
        f"with --calls, how long in all ({_CALLS_S:g})",
    )  # fmt: skip
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="random seed (default: 1)")
    options.add_project(parser)


def run(args: argparse.Namespace) -> int:
    if args.calls:
        from ludus.cli import demo_calls

        return demo_calls.run(project=args.project, seconds=args.seconds or _CALLS_S)
    if args.what == "league":
        return demo_league.run(args)
    lesson = _CART if args.quick else _LANDER
    expect_installed("torch", "gymnasium", "matplotlib", "PIL", "pygame", extra="train")
    if not args.quick:
        expect_installed("Box2D", extra="train")
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{lesson.env}[/bold]: {lesson.goal}.")
    seconds = args.seconds or lesson.seconds
    console.print(f"{lesson.algorithm.upper()} learns it now, for {seconds:g} s at most.\n")
    folder = Path(args.project) / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    result = _learn(lesson, folder, seed=args.seed, seconds=seconds)
    files = _show(lesson, folder, console, result)
    _sum_up(console, folder, files, is_done=result is not None, project=args.project)
    return 0


def _learn(lesson: Lesson, folder: Path, *, seed: int, seconds: float) -> dict[str, Any] | None:
    """Train until it is good, has had its steps, or time is up; None if time was up."""
    from ludus.training import api as training  # brings torch

    began = time.time()
    with progress.Progress(lesson.settings["steps"]) as shown:

        def on_progress(step: int, values: dict[str, float]) -> None:
            shown.update(step, values)
            if time.time() - began >= seconds:
                raise TimeIsUp

        try:
            run = training.train(
                lesson.algorithm,
                lesson.env,
                on_progress=on_progress,
                began=outcome.process_began(),
                seed=seed,
                project=str(folder.parent),
                trial=folder.name,
                eval_episodes=lesson.num_tests,
                **lesson.settings,
            )
        except TimeIsUp:
            return None
    return run.result


def _show(lesson: Lesson, folder: Path, console: Console, result: Mapping[str, Any] | None) -> list[Path]:
    """Before and after: in the terminal, as GIFs, and as a learning curve. Returns the files."""
    from ludus.experiment import player, plot, watching

    files = [plot.plot([folder], folder / "learning_curve.png")]
    with watching.VisibleEnv(lesson.env) as env:
        console.print("\n[bold]Untrained[/bold]")
        untrained = watching.untrained_policy(folder)
        files.append(_film(lesson, env, untrained, folder / "untrained.gif", is_trained=False))
        console.print(_tested(lesson, folder, untrained, is_trained=False))
        trained = player.load_player(folder)
        console.print(f"\n[bold]Trained for {trained.num_steps:,} steps[/bold]")
        files.append(_film(lesson, env, trained.policy, folder / "trained.gif", is_trained=True))
        sentence = None
        if result is not None and result["eval_episodes"]:
            sentence = _spell(result["eval_return_mean"], result["eval_return_std"], lesson)
        console.print(sentence or _tested(lesson, folder, trained.policy, is_trained=True))
    return files


def _tested(lesson: Lesson, folder: Path, policy: Policy, *, is_trained: bool) -> str:
    from ludus.experiment import evaluation, saved_config

    config = saved_config.load_config(folder)
    result = evaluation.evaluate(policy, config, episodes=lesson.num_tests, seed=1, greedy=is_trained)
    return _spell(result.mean, result.std, lesson)


def _spell(mean: float, std: float, lesson: Lesson) -> str:
    return f"over {lesson.num_tests} episodes: return {mean:.1f} ± {std:.1f}"


def _film(lesson: Lesson, env: VisibleEnv, policy: Policy, path: Path, *, is_trained: bool) -> Path:
    from ludus.experiment import recording

    kept = recording.Recording(fps=env.fps)
    num_shown = lesson.num_shown if is_trained else 1
    watch.show_episodes(
        env,
        policy,
        seeds=range(_SHOWN_SEED, _SHOWN_SEED + num_shown),
        greedy=is_trained,
        max_steps=lesson.max_shown_steps,
        recording=kept,
    )
    return kept.save(path)


def _sum_up(console: Console, folder: Path, files: list[Path], *, is_done: bool, project: str) -> None:
    console.print("\nTo look at:")
    for path in files:
        console.print(f"  {path}")
    commands = {trial_command("watch", folder): "see it play again"}
    if not is_done:
        commands[trial_command("resume", folder)] = "let it learn on; it had to stop for the time"
    commands[command_line("list", *project_words(project))] = "what was trained so far"
    commands[command_line("train", "ppo", "CartPole-v1")] = "train something else"
    console.print("\nTo go on:")
    width = max(map(len, commands))
    for command, what in commands.items():
        console.print(f"  [bold]{command:<{width}}[/bold]   {what}")
