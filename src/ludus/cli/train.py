"""`ludus train ALGORITHM ENV`: train a policy; every setting is an option.

    ludus train ppo CartPole-v1 --steps 100000 --seed 1
    ludus train my_algorithm.py:Mine ALE/Pong-v5 --simulators 4 --flow async
    ludus train appo game://127.0.0.1:8000 --spec game.json  # games call, and are learnt from: docs/games.md
    ludus train ppo CartPole-v1 --help                      # all settings, with their defaults there

Torch is imported only once all options are understood.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ludus.cli import options, outcome
from ludus.envs import registry as envs_by_name
from ludus.experiment import config as configs
from ludus.learn.algorithms import registry

__all__ = ["add_arguments", "run"]

_POSITIONAL = ("algorithm", "env")


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    names = ", ".join(registry.NAMES)
    parser.usage = "ludus train ALGORITHM ENV [--option value …]"
    parser.epilog = "With an algorithm and an environment before it, --help also shows their settings and defaults."
    parser.add_argument("algorithm", metavar="ALGORITHM", help=f"{names}, or file.py:Class of your own")
    parser.add_argument(
        "env",
        metavar="ENV",
        help="CartPole-v1, ALE/Pong-v5, …, file.py:function of your own, or game://HOST:PORT where games call",
    )
    outcome.add_arguments(parser)
    algorithm, env = (None, None) if options.names_argument(words, _POSITIONAL) else _what(words)
    if algorithm is None:
        options.add_options(parser.add_argument_group("the run"), configs.TrainConfig(), without=_POSITIONAL)
        return
    config = configs.resolve(algorithm, env or "")
    options.add_options(parser.add_argument_group("the run"), config.train, without=_POSITIONAL)
    unused = registry.algorithm_class(algorithm).unused
    options.add_options(parser.add_argument_group(f"the algorithm, {algorithm}"), config.algorithm, hidden=unused)
    options.add_options(parser.add_argument_group("the network"), config.network)


def run(args: argparse.Namespace) -> int:
    settings = _settings(args)
    config = configs.resolve(args.algorithm, args.env, settings)
    train = config.train

    def start(on_progress: outcome.OnProgress, on_status: outcome.OnStatus) -> outcome.Run:
        from ludus.training import api as training  # brings torch

        began = outcome.process_began()
        return training.train(
            args.algorithm, args.env, on_progress=on_progress, on_status=on_status, began=began, **settings
        )

    return outcome.follow(
        start,
        args,
        total_steps=train.steps,
        project=train.project,
        trial=train.trial,
        is_clipped=envs_by_name.clips_rewards(train.env, config.env_args),
    )


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What was given on the command line, by the names of fields."""
    config = configs.resolve(args.algorithm, args.env)
    given: dict[str, Any] = {}
    for part in (config.train, config.algorithm, config.network):
        given |= options.given_options(args, part)
    return {name: value for name, value in given.items() if name not in _POSITIONAL}


def _what(words: Sequence[str]) -> tuple[str | None, str | None]:
    """The algorithm and the environment among the words, if they are there: what options there are depends on them."""
    for index, word in enumerate(words):
        if word.lower() in registry.NAMES:
            after = words[index + 1] if len(words) > index + 1 else "-"
            return word, None if after.startswith("-") else after
    plain = options.Parser(prog="ludus train", add_help=False, allow_abbrev=False)
    for name in _POSITIONAL:
        plain.add_argument(name, nargs="?")
    outcome.add_arguments(plain)
    options.add_options(plain, configs.TrainConfig(), without=_POSITIONAL)
    found = plain.parse_known_args(list(words))[0]
    return found.algorithm, found.env
