"""Bots of a league that are code of somebody: whether this user has named them, on this machine.

    allow(folder, "my_bots.py:make")                   # it was given on a command line, or added to a league that runs
    expect_allowed(folder, "my_bots.py:make")          # before it is imported

A league that was made elsewhere, and copied or unpacked here, has no seal: opening it runs none of its code.
"""

from __future__ import annotations

import json
from pathlib import Path

from ludus import errors, files
from ludus.league.players import BOTS
from ludus.program import trust

__all__ = ["allow", "expect_allowed", "names_code"]

_FILE = "code_bots.json"
_SEAL_FILE = "code_bots.seal"


def names_code(model: str) -> bool:
    """Whether this bot would be imported from a file or a module."""
    return ":" in model and model.partition(":")[0] not in BOTS


def allow(folder: Path, model: str) -> None:
    """This user has named it. `folder` is the league's in its trial."""
    if not names_code(model):
        return
    allowed = _allowed(folder)
    if model not in allowed:
        content = json.dumps([*allowed, model]).encode()
        files.make_folder(folder)
        files.replace(folder / _FILE, [content])
        files.replace(folder / _SEAL_FILE, [trust.seal(content).hex().encode()])


def expect_allowed(folder: Path, model: str) -> None:
    """Raise `ConfigError` if it is code that this user has not named."""
    if names_code(model) and model not in _allowed(folder):
        raise errors.ConfigError(
            f"the bot {model!r} of this league is code, and it was not named by this user on this machine; nothing was "
            f"run. If you trust it, name it once: ludus league GAME --bots {model}"
        )


def _allowed(folder: Path) -> list[str]:
    try:
        content = (folder / _FILE).read_bytes()
        if not trust.is_own(content, bytes.fromhex((folder / _SEAL_FILE).read_text())):
            return []
        return [str(model) for model in json.loads(content)]
    except (FileNotFoundError, ValueError):
        return []
