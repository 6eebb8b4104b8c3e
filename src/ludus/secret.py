"""Where a secret comes from: an argument, a file, or the environment. Arguments are seen by all users of a machine.

    find("token", args.token, args.token_file)        # else $LUDUS_TOKEN, else the file that $LUDUS_TOKEN_FILE names

A file holds one secret and nothing else; the end of its line does not count.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

from ludus.errors import ConfigError

__all__ = ["find", "read"]

Warn = Callable[[str], None]


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def find(name: str, given: str | None = None, file: str | Path | None = None, *, warn: Warn = _warn) -> str | None:
    """The secret of that name: what was given, or is in the file, or in the environment. `None` if it is nowhere."""
    variable = f"LUDUS_{name.upper().replace(' ', '_')}"
    if given is not None:
        if file is not None:
            raise ConfigError(f"the {name} is given twice: itself, and as the file {file}. Give one of them.")
        return given
    if file is not None:
        return read(file, name, warn=warn)
    value, named = os.environ.get(variable), os.environ.get(f"{variable}_FILE")
    if value and named:
        raise ConfigError(f"both {variable} and {variable}_FILE are set. Unset one of them.")
    return value or (read(named, name, warn=warn) if named else None)


def read(file: str | Path, name: str, *, warn: Warn = _warn) -> str:
    """The secret in a file. Raises `ConfigError` if there is none; warns if other users can read or change the file."""
    try:
        with Path(file).open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(65536).decode().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"the {name} cannot be read from {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the {name} in {file} is not text in UTF-8") from None
    if not text or "\n" in text:
        raise ConfigError(f"{file} must have the {name} in its first line, and nothing else")
    if stat.S_ISREG(mode) and mode & 0o077:
        warn(f"other users can read or change {file}, which has the {name}; make it yours alone: chmod 600 {file}")
    return text
