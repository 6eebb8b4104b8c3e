"""`benchmarks/nemesis.py`, short: training and serving go on under all its faults, and nothing is left."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "nemesis.py"


@pytest.mark.chaos
@pytest.mark.timeout(1500)
def test_training_and_serving_go_on_under_faults_and_leave_nothing_behind():
    # The time to progress is that of a machine with other work to do; `make chaos` holds it to 10 s.
    words = [sys.executable, str(SCRIPT), "--seconds", "60", "--within", "120", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1490)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["violations"] == []
    assert report["num_faults"] >= 4
    assert report["slowest_s"].keys() == report["faults"].keys()
    assert report["sync"]["lines"] >= 2
    assert report["async"]["lines"] >= 2
    assert report["serve"]["ticks"] >= 2
