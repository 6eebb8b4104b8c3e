"""Which version is served: a tag that is moved forward by `promote`, and back by `rollback`.

Every move is written down beside the model's versions, so that it can be taken back. Until a person moves it, the tag
of a trial that is served follows the newest version.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

from ludus import files
from ludus.errors import ConfigError
from ludus.models.versions.store import VersionStore

__all__ = ["PRODUCTION", "history", "is_chosen", "promote", "rollback"]

PRODUCTION = "production"
_LOG = logging.getLogger(__name__)


def promote(
    folder: Path, model: str, version: int | str = "latest", *, tag: str = PRODUCTION, by_default: bool = False
) -> int:
    """Have `tag` stand for a version from now on: sessions that begin play it, those that are live keep theirs.

    `by_default`: nobody asks for this version; the tag follows the newest, from now on if a person had moved it.
    """
    store = VersionStore(folder / "models")
    with store.hold(model, version) as held:  # a run that trains may replace it just now
        number = held.number
        store.tag(model, tag, number)
    known = history(folder, model, tag=tag)
    if not known or known[-1] != number or by_default == is_chosen(folder, model, tag=tag):
        _note(folder, model, tag, number, by_default=by_default)
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
    for move in _moves(folder, model, tag):
        if move["is_back"]:
            del stack[-1:]
        elif not stack or stack[-1] != move["number"]:
            stack.append(move["number"])
    return stack


def is_chosen(folder: Path, model: str, *, tag: str = PRODUCTION) -> bool:
    """Whether a person has moved the tag last: then it stays where it was put."""
    return any(not move.get("by_default", False) for move in _moves(folder, model, tag)[-1:])


def _moves(folder: Path, model: str, tag: str) -> list[dict[str, Any]]:
    try:
        lines = _path(folder, model).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    moves: list[dict[str, Any]] = []
    for line in lines:
        try:
            move = json.loads(line)
            move = {**move, "tag": move["tag"], "number": int(move["number"]), "is_back": bool(move["is_back"])}
        except (ValueError, TypeError, KeyError):
            _LOG.warning("a line of %s is damaged and left out: %.80r", _path(folder, model), line)
            continue
        if move["tag"] == tag:
            moves.append(move)
    return moves


def _note(folder: Path, model: str, tag: str, number: int, *, is_back: bool = False, by_default: bool = False) -> None:
    # The versions that it may go back to must stay: each has a tag of its own.
    store = VersionStore(folder / "models")
    store.tag(model, f"{tag}-{number}", number)
    move = {"time": time.time(), "tag": tag, "number": number, "is_back": is_back, "by_default": by_default}
    files.append_line(_path(folder, model), json.dumps(move).encode())


def _path(folder: Path, model: str) -> Path:
    return folder / "models" / f"{model}.promotions"
