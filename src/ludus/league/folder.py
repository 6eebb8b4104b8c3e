"""Where a league is within the folder of its trial. (Nothing heavy is imported: every command may ask.)"""

from __future__ import annotations

from pathlib import Path

from ludus.errors import ConfigError
from ludus.trial.trained import MODEL

__all__ = ["CONFIG_FILE", "FOLDER", "is_league", "refuse_policy_of_league"]

FOLDER = "league"
CONFIG_FILE = "config.json"


def is_league(folder: Path) -> bool:
    """Whether a league was started in this folder of a trial."""
    return (folder / FOLDER / CONFIG_FILE).is_file()


def refuse_policy_of_league(folder: Path, model: str) -> None:
    """Raise `ConfigError` for what a league serves: it moves with the champion, so that there is only one."""
    if model == MODEL and is_league(folder):
        raise ConfigError(
            f"trial {folder.name!r} is a league, and what is served is its champion: `ludus league promote "
            f"{folder.name} NAME` has another player be both, also one that was champion before. Nothing was changed"
        )
