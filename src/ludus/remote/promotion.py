"""Which version is served: a tag that is moved forward by `promote`, and back by `rollback`.

Every move is written down beside the model's versions, so that it can be taken back.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

from ludus import files
from ludus.errors import ConfigError
from ludus.services.weights.store import VersionStore

__all__ = ["PRODUCTION", "history", "promote", "rollback"]

PRODUCTION = "production"
_LOG = logging.getLogger(__name__)


def promote(folder: Path, model: str, version: int | str = "latest", *, tag: str = PRODUCTION) -> int:
    """Have `tag` stand for a version from now on: sessions that begin play it, those that are live keep theirs."""
    store = VersionStore(folder / "models")
    number = store.resolve(model, version)
    store.tag(model, tag, number)
    known = history(folder, model, tag=tag)
    if not known or known[-1] != number:
        _note(folder, model, tag, number)
    return number


def rollback(folder: Path, model: str, *, tag: str = PRODUCTION) -> int:
    """Have `tag` stand for what it stood for before. Raises `ConfigError` if there is no before, or it is gone."""
    known = history(folder, model, tag=tag)
    if len(known) < 2:
        raise ConfigError(f"{tag!r} of model {model!r} has stood for {known or 'nothing'} only: there is no way back")
    store = VersionStore(folder / "models")
    store.tag(model, tag, known[-2])
    _note(folder, model, tag, known[-2], is_back=True)
    return known[-2]


def history(folder: Path, model: str, *, tag: str = PRODUCTION) -> list[int]:
    """What the tag has stood for, oldest first; what was taken back is left out."""
    stack: list[int] = []
    try:
        lines = _path(folder, model).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return stack
    for line in lines:
        try:
            move = json.loads(line)
            its_tag, number, is_back = move["tag"], int(move["number"]), bool(move["is_back"])
        except (ValueError, TypeError, KeyError):
            _LOG.warning("a line of %s is damaged and left out: %.80r", _path(folder, model), line)
            continue
        if its_tag != tag:
            continue
        if not is_back:
            stack.append(number)
        elif stack:
            stack.pop()
    return stack


def _note(folder: Path, model: str, tag: str, number: int, *, is_back: bool = False) -> None:
    # The versions that it may go back to must stay: each has a tag of its own.
    store = VersionStore(folder / "models")
    store.tag(model, f"{tag}-{number}", number)
    move = {"time": time.time(), "tag": tag, "number": number, "is_back": is_back}
    files.append_line(_path(folder, model), json.dumps(move).encode())


def _path(folder: Path, model: str) -> Path:
    return folder / "models" / f"{model}.promotions"
