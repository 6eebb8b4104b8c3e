"""`ludus evaluate TRIAL`: play episodes with a trial's newest policy and tell its return.

ludus evaluate 20261115-201402 --episodes 100 --seed 7
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

from ludus.cli import league_trials, options, outcome
from ludus.experiment import results
from ludus.experiment.config import MAX_SEED
from ludus.options import option
from ludus.trial.find import find

__all__ = ["add_arguments", "run"]


@dataclass(frozen=True, kw_only=True)
class _Episodes:
    episodes: int = option(100, help="number of episodes to play", minimum=1)
    seed: int = option(0, help="seed of the environments", minimum=0, maximum=MAX_SEED)
    max_steps: int | None = option(None, help="steps of an episode; none: as the trial has it", minimum=1)
    search: int = option(0, help="simulations of a tree search before each move, in board games; 0: none", minimum=0)
    gumbel: bool = option(False, help="the search has Gumbel roots")
    greedy: bool = option(True, help="play the most likely action instead of a sample")
    env_args: str = option("{}", help="arguments of the environment, over those of the trial's evaluation, as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial", metavar="TRIAL", help="a name in the project folder, or the path of a trial")
    options.add_options(parser, _Episodes())
    parser.add_argument("--env", help="environment to play, if the trial was not made by `ludus train`")
    parser.add_argument("--model", default="policy", help="the model that plays, with --env")
    options.add_project(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a sentence")


def run(args: argparse.Namespace) -> int:
    folder = find(args.trial, project=args.project).path
    if args.env is None:
        league_trials.refuse_league(folder)
    from ludus.training import api as training  # brings torch

    chosen = asdict(_Episodes()) | options.given_options(args, _Episodes())
    result = training.evaluate(folder, project=args.project, env=args.env, model=args.model, **chosen)
    if args.json:
        print(json.dumps(result))
    else:
        cut_off = f", {result['cut_off']} of them cut off before their end" if result["cut_off"] else ""
        mean, std = (results.spell_return(result[name]) for name in ("return_mean", "return_std"))
        of_all = ", of all agents" if "vs_random" in result else ""
        print(f"return {mean} ± {std} over {result['episodes']} episodes{of_all}{cut_off}")
        for line in outcome.agents_and_matches(result):
            print(line)
    return 0
