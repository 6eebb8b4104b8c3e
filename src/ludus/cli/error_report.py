"""Errors as the command line shows them: what happened, and the lines of the user's own files that did it, once.

A bug in an environment or a network comes through many layers, and from another process as text with its tracebacks in
it. What is of use to its author are the frames in their own files; the rest is in the worker's log, or is shown if
LUDUS_TRACEBACK is set.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["ConsoleHandler", "condense", "report", "user_frames"]

_VARIABLE = "LUDUS_TRACEBACK"
_FRAME = re.compile(r'^\s*File "(?P<path>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_BEGIN = "Traceback (most recent call last):"
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
    "Remote traceback:",
)
_MAX_FRAMES = 8  # the last ones: a recursion has a thousand
_logged: set[str] = set()  # frames that the log has shown on the console: an error that ends the run has them again
_GAVE_UP = "the run was ended because worker"  # raised by the run as well, which shows it


class Frame(NamedTuple):
    """One line of a user's file that was being run."""

    path: str
    line: int
    function: str
    source: str

    def __str__(self) -> str:
        where = f"  {_short(self.path)}:{self.line}"
        where += f" in {self.function}" if self.function and self.function != "<module>" else ""
        return f"{where}: {self.source}" if self.source else where


def user_frames(error: BaseException) -> list[Frame]:
    """Those of the error or of what caused it, outermost first; empty if no file of the user's took part."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        frames = [
            Frame(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
            for frame in traceback.extract_tb(each.__traceback__)
            if _is_users(frame.filename)
        ]
        if isinstance(each, SyntaxError) and each.filename and _is_users(each.filename):
            frames.append(Frame(each.filename, each.lineno or 0, "", (each.text or "").strip()))
        if frames:
            return frames
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return []


def report(error: BaseException) -> str:
    """An error for a person: its text, without tracebacks but for the lines of the user's own files."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        text += ". What was whole on disk is kept: free some space, and go on with the same command, or ludus resume"
    if os.environ.get(_VARIABLE):
        return text + "\n" + "".join(traceback.format_exception(error)).rstrip()
    frames = _last([str(frame) for frame in user_frames(error)])
    lines = condense(text).splitlines()
    return "\n".join(line for line in dict.fromkeys([*lines, *frames]) if line not in _logged)


def condense(text: str) -> str:
    """A text whose tracebacks are replaced by their frames in the user's files; nothing in it is said twice."""
    if _BEGIN not in text:
        return text
    kept: list[str] = []
    for line in _without_tracebacks(text):
        plain = line.strip().removeprefix("ludus.errors.")
        if plain and not any(plain in earlier for earlier in kept):
            kept.append(line)
    return "\n".join(kept)


def _without_tracebacks(text: str) -> Iterator[str]:
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.strip() in _LINKS:
            continue
        if not line.strip().endswith(_BEGIN):
            yield line
            continue
        indent = len(line) - len(line.lstrip())
        frames: list[Frame] = []
        while at < len(lines) and lines[at].startswith(" " * (indent + 1)):
            found = _FRAME.match(lines[at])
            at += 1
            if found is None:
                continue
            source = lines[at].strip() if at < len(lines) and not _FRAME.match(lines[at]) else ""
            if _is_users(found["path"]):
                frames.append(Frame(found["path"], int(found["line"]), found["function"] or "", source))
        yield from _last([str(frame) for frame in frames])


def _last(frames: list[str]) -> list[str]:
    return frames if len(frames) <= _MAX_FRAMES else [f"  … {len(frames) - _MAX_FRAMES} more", *frames[-_MAX_FRAMES:]]


@functools.cache
def _is_users(path: str) -> bool:
    """Whether a file is neither ours, nor Python's, nor of an installed library."""
    if path.startswith("<") or not path:
        return False
    own = Path(__file__).resolve().parent.parent
    known = (sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    resolved = Path(path).resolve()
    return not any(resolved.is_relative_to(folder) for folder in (own, *(Path(each).resolve() for each in known)))


def _short(path: str) -> str:
    """Relative, if it is below the working folder."""
    shown = os.path.relpath(path)
    return path if shown.startswith(os.pardir) else shown


class ConsoleHandler(logging.Handler):
    """Warnings and errors of the log on standard error, tracebacks condensed, and what repeats in one line."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(message)s"))
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            if not os.environ.get(_VARIABLE):
                if _GAVE_UP in text:
                    return
                text = condense(text)
                key = re.sub(r"\d+", "#", text)
                if key in self._seen:
                    text = text.partition("\n")[0]
                self._seen.add(key)
                _logged.update(line for line in text.splitlines() if line.startswith("  "))
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)
