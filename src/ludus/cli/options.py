"""Options of a command from the fields of a configuration: `--kebab-case`, typed, with help and default.

add_options(parser.add_argument_group("ppo"), PPOConfig())
given_options(parser.parse_args(["--clip", "0.1"]), PPOConfig())        # {"clip": 0.1}: what was given, no more
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn, Protocol

from ludus import errors, options, spelling
from ludus import secret as secrets

__all__ = [
    "Parser",
    "ParserExit",
    "add_options",
    "add_project",
    "add_secrets",
    "find_secret",
    "given_options",
    "names_argument",
    "unknown_option",
]

_WORDS = {bool: "BOOL", int: "N", float: "X", str: "TEXT"}


class ParserExit(SystemExit):
    """A parser has said what there is to say. Any other `SystemExit` comes from what a command runs."""


class Parser(argparse.ArgumentParser):
    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            self._print_message(message, sys.stderr)
        raise ParserExit(status)


class _Group(Protocol):
    def add_argument(self, *names: str, **kwargs: Any) -> argparse.Action: ...


def add_options(
    group: _Group, config: Any, *, without: Collection[str] = (), hidden: Collection[str] = ()
) -> list[str]:
    """Add each field of `config`, a dataclass object, but those named in `without`. Returns the fields' names.

    Those in `hidden` are understood and not shown: what reads them has a better answer than the parser.

    An option that is not given leaves no trace in what is parsed, so that one can tell it from one that is.
    """
    added = []
    for option in options.describe(config):
        if option.name in without:
            continue
        flag = f"--{option.name.replace('_', '-')}"
        help = f"{option.help} (default: {_spell(option.default)})".replace("%", "%%").strip()
        help = argparse.SUPPRESS if option.name in hidden else help
        common: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS, "help": help}
        if option.type in (bool, bool | None):
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
        else:
            metavar = "{" + ",".join(option.choices) + "}" if option.choices else _word(option.type)
            group.add_argument(flag, type=_parser(config, option.name), metavar=metavar, **common)
        added.append(option.name)
    return added


def given_options(args: argparse.Namespace, config: Any) -> dict[str, Any]:
    """Those of `config`'s fields that were given."""
    given = vars(args)
    return {field.name: given[field.name] for field in dataclasses.fields(config) if field.name in given}


def add_project(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", metavar="DIR", default="trials", help="where trials are (default: trials)")


def add_secrets(parser: argparse.ArgumentParser, *, token: str, secret: str) -> None:
    """`--token`, `--secret` and the files that have them; `find_secret` then finds each."""
    for name, help in (("token", token), ("secret", secret)):
        parser.add_argument(f"--{name}", metavar="TEXT", help=f"{help}; other users can see it here")
        where = f"a file that has it; or set LUDUS_{name.upper()} or LUDUS_{name.upper()}_FILE"
        parser.add_argument(f"--{name}-file", metavar="FILE", help=where)


def find_secret(name: str, given: str | None, file: str | None) -> str | None:
    """A secret from the command line, a file or the environment; a file that others can read is mentioned on stderr."""
    return secrets.find(name, given, file, warn=lambda text: print(f"warning: {text}", file=sys.stderr, flush=True))


def unknown_option(parser: argparse.ArgumentParser, words: Collection[str]) -> str | None:
    """What to say of the first option the parser does not know, with the nearest it does; None if it knows them all.

    One that names an argument, as other libraries have it, goes first: what options there are depends on those.
    """
    known = list(parser._option_string_actions)
    unknown = [name for name in _option_names(words) if name not in known]
    arguments = {action.dest: str(action.metavar) for action in parser._actions if not action.option_strings}
    for name in unknown:
        if (argument := spelling.our_name(name)) in arguments:
            usage = parser.format_usage().strip().removeprefix("usage: ")
            return f"there is no option {name}: {arguments[argument]} is given without one, as in: {usage}"
    if not unknown:
        return None
    near = spelling.suggest(unknown[0], known)
    hint = f"Did you mean {near[0]!r}?" if near else "See --help for those there are."
    return f"there is no option {unknown[0]}. {spelling.absence(unknown[0], known) or hint}"


def names_argument(words: Collection[str], arguments: Collection[str]) -> bool:
    """Whether one of these arguments is given as if it were an option."""
    return any(spelling.our_name(name) in arguments for name in _option_names(words))


def _option_names(words: Collection[str]) -> Iterator[str]:
    """Of all that look like options, up to `--`."""
    for word in words:
        if word == "--":
            return
        if word.startswith("--"):
            yield word.split("=", 1)[0]


def _parser(config: Any, name: str) -> Callable[[str], Any]:
    """Parse and check one field's text as the configuration itself would."""

    def parse(text: str) -> Any:
        try:
            return getattr(options.replace(config, {name: text}), name)
        except errors.ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def _word(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _word(next(part for part in typing.get_args(kind) if part is not type(None)))
    if origin is tuple:
        word = _word(typing.get_args(kind)[0])
        return f"{word},{word},…"
    return _WORDS.get(kind, "TEXT")


def _spell(value: Any) -> str:
    match value:
        case True | False:
            return "yes" if value else "no"
        case None:
            return "none"
        case int():
            return f"{value:_}" if abs(value) >= 10_000 else str(value)
        case tuple():
            return ",".join(map(_spell, value)) or "none"
    return str(value)
