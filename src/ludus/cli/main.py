"""The `ludus` command. Each subcommand is a file of its own, imported only when it is the one asked for."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

import ludus
from ludus import errors
from ludus.discovery import names as naming

__all__ = ["main"]

_COMMANDS = {  # name → what it does; ludus.cli.NAME has add_arguments(parser) and run(args) → exit code
    "ctl": "look at and command the workers of a running trial",
    "demo": "ten seconds of workers calling each other, with one killed on purpose and coming back",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 if all went well, 1 if something failed, 2 if it was not understood."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in words if not word.startswith("-")), None)
    if command is not None and command not in _COMMANDS:
        print(f"ludus: there is no command {command!r}. {naming.nearest(command, _COMMANDS)}", file=sys.stderr)
        return 2
    try:
        args = _parser(command).parse_args(words)
    except SystemExit as end:  # argparse has said why
        return int(end.code or 0)
    if command is None:
        _parser(None).print_help()
        return 2
    try:
        return int(importlib.import_module(f"ludus.cli.{command}").run(args))
    except errors.LudusError as error:
        print(f"ludus {command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"ludus {command}: interrupted", file=sys.stderr)
        return 130


def _parser(wanted: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ludus", description="Distributed reinforcement learning.")
    parser.add_argument("--version", action="version", version=f"ludus {ludus.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in _COMMANDS.items():
        own = commands.add_parser(name, help=summary, description=summary)
        if name == wanted:
            importlib.import_module(f"ludus.cli.{name}").add_arguments(own)
    return parser


if __name__ == "__main__":
    sys.exit(main())
