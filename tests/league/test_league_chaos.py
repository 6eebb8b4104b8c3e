"""A league that is spread, while its processes are killed: `benchmarks/league_chaos.py`, a short one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).parents[2] / "benchmarks" / "league_chaos.py"


@pytest.mark.chaos
def test_results_count_once_and_ratings_go_on_whatever_is_killed() -> None:
    """Its service, a learner and a simulator are killed, then all at once; the ledger of its processes is compared with
    it. Its metrics come from all of them: lag, matches per second, what simulators do.
    """
    faults = ("--faults", "3", "--only", "league,learner,simulators", "--calm", "0.2", "--within", "120")
    spread = ("--learners", "1", "--simulators", "1", "--seed", "1", "--json")
    command = [sys.executable, str(CHAOS), *faults, *spread]
    found = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert found.returncode == 0, found.stderr
    result = json.loads(found.stdout.splitlines()[-1])
    assert result["faults"] == {"league": 1, "learner": 1, "simulators": 1}
    assert result["games_acknowledged"] > 0
    assert result["violations"] == []
