"""The settings of a table as a file, so that it can be opened again without those who made it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus import files
from ludus.errors import ConfigError, DataError
from ludus.services.buffer import limiters, selectors
from ludus.services.buffer.table import TableSettings

__all__ = ["read", "write"]

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        selectors.Uniform,
        selectors.Prioritised,
        selectors.Fifo,
        selectors.Lifo,
        selectors.MinHeap,
        selectors.MaxHeap,
        limiters.MinSize,
        limiters.SamplesPerInsert,
        limiters.Queue,
    )
}


def write(path: Path, name: str, settings: TableSettings, kind: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for selectors and limiters of other modules: nobody could make them again."""
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            if type(value) is not _KINDS.get(type(value).__name__):
                raise ConfigError(f"{field.name}={value!r} cannot be kept in a file; use one of {', '.join(_KINDS)}")
            value = {"type": type(value).__name__, **dataclasses.asdict(value)}
        parts[field.name] = value
    files.replace_json(path, {"name": name, "settings": parts, "items": dict(kind)})


def read(path: Path) -> tuple[str, TableSettings, dict[str, Any]]:
    """Raises `DataError` if `write` did not write it."""
    try:
        saved = json.loads(path.read_bytes())
        settings: dict[str, Any] = {}
        for name, value in saved["settings"].items():
            if isinstance(value, dict):
                arguments = {key: part for key, part in value.items() if key != "type"}
                value = _KINDS[value["type"]](**arguments)
            settings[name] = value
        return str(saved["name"]), TableSettings(**settings), dict(saved["items"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error!r}); nothing was opened") from None
