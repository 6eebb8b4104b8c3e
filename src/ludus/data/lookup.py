"""`module:name` and `file.py:name`: something of the user's own, given as text."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ludus import spelling
from ludus.errors import ConfigError

__all__ = ["add_user_files", "load_attribute", "user_files"]


def load_attribute(text: str, *, what: str) -> Any:
    """What `module:name` or `path/to/file.py:name` names. Raises `ConfigError` that says what is missing.

    Modules are looked for in the current folder, too; what a file imports, also in the file's own.
    """
    where, _, path = text.rpartition(":")
    found: Any = _from_file(text, where, what) if where.endswith(".py") else _from_module(text, where, what)
    for part in path.split("."):
        if not hasattr(found, part):
            public = [each for each in dir(found) if not each.startswith("_")]
            raise ConfigError(f"{text!r} names no {what}: {where} has no {part!r}.{_near(part, public)}")
        found = getattr(found, part)
    return found


def _from_module(text: str, where: str, what: str) -> ModuleType:
    if os.getcwd() not in sys.path:  # as it is for `python -m`, but not for an installed command
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name and not (where == error.name or where.startswith(f"{error.name}.")):
            raise ConfigError(f"{text!r}: {where} needs the module {error.name!r}, which is not there.") from error
        raise ConfigError(f"{text!r} names no {what}: there is no module {where!r}.") from error
    except ValueError as error:
        raise ConfigError(f"{text!r} names no {what}: {where!r} is not the name of a module: {error}.") from error


def _from_file(text: str, where: str, what: str) -> ModuleType:
    path = Path(where).resolve()
    if not path.is_file():
        there = [each.name for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ConfigError(f"{text!r} names no {what}: there is no file {path}.{_near(path.name, there)}")
    key = f"ludus_user_{path.stem}_{zlib.crc32(str(path).encode()):x}"  # the same in every process
    add_user_files({key: str(path)})
    if str(path.parent) not in sys.path:  # as for a script: what lies beside it can be imported, now and later
        sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(key)
    except Exception as error:
        raise ConfigError(f"{text!r}: {path} raised when loaded: {type(error).__name__}: {error}") from error


class _UserFiles(importlib.abc.MetaPathFinder):
    """Finds the modules of `file.py:name`, so that what is defined in them can be unpickled in any process."""

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = self.paths.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


_USER_FILES = _UserFiles()


def user_files() -> dict[str, str]:
    """The files that were loaded here, by the names of their modules."""
    return dict(_USER_FILES.paths)


def add_user_files(paths: Mapping[str, str]) -> None:
    """Have files found as modules of these names, as `user_files` of another process gives them."""
    _USER_FILES.paths.update(paths)
    if _USER_FILES not in sys.meta_path:
        sys.meta_path.append(_USER_FILES)


def _near(word: str, known: Iterable[str]) -> str:
    near = spelling.suggest(word, known)
    return f" Did you mean {near[0]!r}?" if near else ""
