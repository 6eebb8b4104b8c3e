"""`module:name` and `file.py:name`: something of the user's own, given as text."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import zlib
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError

__all__ = ["load_attribute"]


def load_attribute(text: str, *, what: str) -> Any:
    """What `module:name` or `path/to/file.py:name` names. Raises `ConfigError` that says what is missing.

    Modules are looked for in the current folder, too.
    """
    place, _, attribute = text.rpartition(":")
    module = _load_file(Path(place), what) if place.endswith(".py") else _load_module(place, what)
    try:
        found: Any = module
        for part in attribute.split("."):
            found = getattr(found, part)
        return found
    except AttributeError:
        raise ConfigError(f"{text!r} does not name {what}: {place} has no {attribute!r}.") from None


def _load_module(name: str, what: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{name!r}, where {what} should be, cannot be imported: {error}.") from None


def _load_file(path: Path, what: str) -> Any:
    path = path.absolute()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}, where {what} should be.")
    name = f"ludus_user_{path.stem}_{zlib.crc32(str(path).encode()):x}"  # the same in every process
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
