"""What commands for one policy say of a trial that is a league."""

from __future__ import annotations

from pathlib import Path

from ludus import errors
from ludus.league.folder import is_league

__all__ = ["refuse_league"]


def refuse_league(folder: Path) -> None:
    """Raise `ConfigError` for a league, whose players are measured and watched by other commands."""
    if is_league(folder):
        raise errors.ConfigError(
            f"trial {folder.name!r} is a league: `ludus arena {folder} alphabeta:4` measures its champion, "
            f"`ludus play {folder}` is a game against it, `ludus league status {folder}` has all its players"
        )
