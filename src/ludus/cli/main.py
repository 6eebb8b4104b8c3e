"""The `ludus` command. Each subcommand is a file of its own, imported only when it is the one asked for."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import ludus
from ludus import errors, garbage, spelling
from ludus.cli import error_report, options
from ludus.program.process import exit_at_once

__all__ = ["entry", "main"]


_SIGNALLED = 128  # and the signal's number: how a process says that a signal ended it


class _Command(NamedTuple):
    """`module` has add_arguments(parser) and run(args) → exit code."""

    module: str
    summary: str
    reads_words: bool = False  # add_arguments(parser, words): what options there are depends on what is asked for


_COMMANDS = {
    "train": _Command("train", "train a policy: ludus train ppo CartPole-v1", reads_words=True),
    "resume": _Command("resume", "go on with a trial after a stop, a kill or a reboot"),
    "evaluate": _Command("evaluate", "play episodes with a trial's policy and tell its return"),
    "list": _Command("listing", "the trials of a project: how far they are, what they reached"),
    "plot": _Command("plotting", "the learning curve of one or several trials, as a PNG, SVG or PDF"),
    "watch": _Command("watch", "see a trial's policy play, in the terminal or as a GIF"),
    "serve": _Command("serve", "answer games with a trial's policy: ludus serve TRIAL --port 8000"),
    "promote": _Command("promote", "have new sessions play another version of a trial's model"),
    "rollback": _Command("rollback", "have new sessions play what they played before the last promotion"),
    "replay": _Command("replay", "play recorded sessions again through today's code and compare"),
    "dataset": _Command("dataset", "make episodes into data to learn from: recordings, play, Minari", reads_words=True),
    "league": _Command(
        "league", "a population that trains against itself: ludus league board:connect_four", reads_words=True
    ),
    "arena": _Command("arena", "everybody against everybody: ludus arena A B C --games 200"),
    "dashboard": _Command("dashboard", "a page that shows the trials of a project as they go on, in a browser"),
    "play": _Command("play", "a board in a browser: play against a league, or against a trained policy"),
    "ctl": _Command("ctl", "look at and command the workers of a running trial"),
    "fake-actor": _Command("fake_actor", "a server that answers a game before there is an agent"),
    "fake-game": _Command("fake_game", "games that play at once against a server, and what that cost"),
    "conformance": _Command("conformance", "check a server against the game protocol, rule by rule"),
    "demo": _Command("demo", "two minutes of a Connect Four league on a page, then play against its champion"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns its exit code: 0 if all went well, 1 if a part of it failed, 2 if it was not understood or cannot be done,
    130 if it was interrupted.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's matrices are small here: its threads only spin
    words = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in words if not word.startswith("-")), None)
    if command is not None and command not in _COMMANDS:
        print(f"ludus: there is no command {command!r}. {spelling.nearest(command, _COMMANDS)}", file=sys.stderr)
        return 2
    if command is None:
        return _without_command(words)
    own_words = words[words.index(command) + 1 :]
    try:
        module = importlib.import_module(f"ludus.cli.{_COMMANDS[command].module}")
        parser, own = _parsers(command)
        if _COMMANDS[command].reads_words:
            module.add_arguments(own, own_words)
        else:
            module.add_arguments(own)
        if problem := options.unknown_option(own, own_words):
            print(f"ludus {command}: {problem}", file=sys.stderr)
            return 2
        return int(module.run(parser.parse_args(words)))
    except options.ParserExit as end:  # it has said why
        return int(end.code or 0)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # by rich: who reads what is printed has seen enough
            return 1
        return _exited(command, end.code)
    except (errors.LudusError, OSError) as error:
        print(f"ludus {command}: {error_report.report(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"ludus {command}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if not error_report.user_frames(error):
            raise  # our own bug: all of the traceback is of use
        print(f"ludus {command}: {type(error).__name__}: {error_report.report(error)}", file=sys.stderr)
        return 1


def _exited(command: str, code: str | int | None) -> int:
    """By a signal, as the launcher tells it, or by a `sys.exit` in what the command ran: an environment, a model."""
    if isinstance(code, int) and code > _SIGNALLED:
        return code
    print(f"ludus {command}: something that it ran called sys.exit({code!r}), which ended it.", file=sys.stderr)
    return 1


def _without_command(words: Sequence[str]) -> int:
    parser, _ = _parsers(None)
    try:
        parser.parse_args(words)
    except options.ParserExit as end:
        return int(end.code or 0)
    parser.print_help()
    return 2


def _parsers(wanted: str | None) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The parser of `ludus`, and within it that of the wanted command, which is yet to be given its arguments."""
    parser = own = options.Parser(prog="ludus", description="Distributed reinforcement learning.")
    parser.add_argument("--version", action="version", version=f"ludus {ludus.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in _COMMANDS.items():
        each = commands.add_parser(name, help=command.summary, description=command.summary, allow_abbrev=False)
        if name == wanted:
            own = each
    return parser, own


def entry() -> NoReturn:
    """The console script: run one command and leave at once."""
    garbage.collect_seldom()
    logging.getLogger().addHandler(error_report.ConsoleHandler())
    exit_at_once(main())


if __name__ == "__main__":
    entry()
