"""`benchmarks/nemesis.py`, short: training and serving go on under all its faults, and nothing is left."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.launch import supervisor, vitals

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "nemesis.py"


def test_a_stopped_trainer_is_given_the_time_that_the_supervisor_gives_it(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    given_s = vitals.STOPPED_S + supervisor._UNREPLACED_S
    assert (
        given_s < importlib.import_module("nemesis").TRAINER_NOTICE_S <= given_s + 1.0
    )  # it is looked at twice a second


@pytest.mark.chaos
@pytest.mark.timeout(1500)
def test_training_and_serving_go_on_under_faults_and_leave_nothing_behind():
    # The time to progress is that of a machine with other work to do; `make chaos` holds it to 10 s.
    words = [sys.executable, str(SCRIPT), "--seconds", "45", "--within", "120", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1490)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["violations"] == []
    assert report["num_faults"] >= 4
    assert report["slowest_s"].keys() == report["faults"].keys()
    assert report["sync"]["lines"] >= 2
    assert report["async"]["lines"] >= 2
    assert report["serve"]["ticks"] >= 2
