from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ludus
from ludus.trial import current as trials

from .drivers import mentioning


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[trials.Trial]:
    """A trial driven by this process; at its end no worker of it may be left."""
    made = ludus.init(tmp_path, "t")
    yield made
    made.close()
    assert mentioning(str(tmp_path)) == []
