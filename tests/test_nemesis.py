"""`benchmarks/nemesis.py`, short: a training run whose workers are killed and stopped goes on, and nothing is left."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "nemesis.py"


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_training_goes_on_under_kills_and_stops_and_leaves_nothing_behind():
    # The time to progress is that of a machine with other work to do; `make chaos` holds it to 10 s.
    words = [sys.executable, str(SCRIPT), "--seconds", "12", "--subjects", "async", "--only", "kill,stop,freeze"]
    done = subprocess.run([*words, "--within", "120", "--json"], capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["violations"] == []
    assert report["num_faults"] >= 1
    assert report["async"]["lines"] >= 2
