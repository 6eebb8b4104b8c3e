"""`benchmarks/sessions.py`, small: what must hold in a minute of fire must hold in ten seconds of it."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "sessions.py"


def test_the_accounts_of_games_actors_gateway_and_buffer_agree():
    words = [sys.executable, str(SCRIPT), "--sessions", "24", "--seconds", "10", "--kill-every", "3", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["faults"] == 0
    assert sum(report["killed"].values()) >= 1
    assert report["answered"] > 100
