from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import processes
import pytest


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project folder; at the end of the test no worker of its trials may be left."""
    yield tmp_path
    assert processes.mentioning(str(tmp_path)) == []
