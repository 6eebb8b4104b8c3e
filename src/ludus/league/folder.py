"""Where a league is within the folder of its trial. (Nothing heavy is imported: every command may ask.)"""

from __future__ import annotations

from pathlib import Path

__all__ = ["CONFIG_FILE", "FOLDER", "is_league"]

FOLDER = "league"
CONFIG_FILE = "config.json"


def is_league(folder: Path) -> bool:
    """Whether a league was started in this folder of a trial."""
    return (folder / FOLDER / CONFIG_FILE).is_file()
