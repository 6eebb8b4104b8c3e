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

__all__ = ["GUARD_HINT", "add_user_files", "load_attribute", "main_name", "user_files"]

GUARD_HINT = 'A script that trains must do so below `if __name__ == "__main__":`, because its workers load it, too.'


def load_attribute(text: str, *, what: str) -> Any:
    """What `module:name` or `path/to/file.py:name` names. Raises `ConfigError` that says what is missing.

    Modules are looked for in the current folder, too; what a file imports, also in the file's own. The script that runs
    in this process is not loaded a second time: that would run it again.
    """
    where, _, path = text.rpartition(":")
    found: Any
    if _is_main(where):
        found = sys.modules["__main__"]
    else:
        found = _from_file(text, where, what) if where.endswith(".py") else _from_module(text, where, what)
    for part in path.split("."):
        if not hasattr(found, part):
            public = [each for each in dir(found) if not each.startswith("_")]
            hint = f" {GUARD_HINT}" if where == "__main__" and main_name() is None else ""
            raise ConfigError(f"{text!r} names no {what}: {where} has no {part!r}.{_near(part, public)}{hint}")
        found = getattr(found, part)
    return found


def main_name() -> str | None:
    """What other processes find the script by that is `__main__` here: its file, or its module with `python -m`.

    None if there is no such thing: in a notebook, with `python -c`, and in a process that runs Ludus's own `__main__`.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return None if spec.name.partition(".")[0] == "ludus" else str(spec.name)
    file = getattr(main, "__file__", None)
    return str(Path(file).absolute()) if file is not None and file.endswith(".py") else None


def _is_main(where: str) -> bool:
    name = main_name()
    if name is None or not where.endswith(".py"):
        return where == name
    return Path(where).resolve() == Path(name).resolve()


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
