"""Which checkpoint of a training run its model has as a version: written once for each, beside the versions.

So a checkpoint is published once, and what is published later, by a script or by the run itself, stays the newest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ludus import files
from ludus.models.versions.file import Version

__all__ = ["Adoption", "read_adoption", "write_adoption"]

_FILE = "adopted.json"


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """The last checkpoint that was taken: the digest of its weights, and its number among the versions."""

    digest: str
    number: int

    def covers(self, digest: str, newest: Version) -> bool:
        """Whether weights of this digest were taken and have not been lost since, so that an earlier one is newest."""
        return self.digest == digest and newest.number >= self.number


def read_adoption(folder: Path) -> Adoption | None:
    """Of the model in this folder; `None` if there is none, or if it is damaged."""
    try:
        return Adoption(**json.loads((folder / _FILE).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_adoption(folder: Path, adoption: Adoption) -> None:
    files.replace(folder / _FILE, [json.dumps(asdict(adoption)).encode()])
