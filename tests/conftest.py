"""Tests run the same however they are started."""

import atexit
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

# A shell that runs something in the background has it ignore Ctrl-C, and so would everything that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What tests make is sealed by a key of their own, not by the user's.
if "LUDUS_STATE_DIR" not in os.environ:
    os.environ["LUDUS_STATE_DIR"] = tempfile.mkdtemp(prefix="ludus-tests-")
    atexit.register(shutil.rmtree, os.environ["LUDUS_STATE_DIR"], ignore_errors=True)


# As in a virtual environment that is activated: what is installed beside this Python is found by its name.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


# Files whose tests start many processes, beside those that are marked as chaos or ray.
SLOW = (
    "cli/test_serve.py",
    "cli/test_train.py",
    "examples/",
    "experiment/test_engines.py",
    "experiment/test_exactness.py",
    "experiment/test_games.py",
    "experiment/test_kept_versions.py",
    "experiment/test_kills.py",
    "experiment/test_ranks.py",
    "launch/test_forks.py",
    "test_damaged_trials.py",
    "test_readme.py",
    "training/",
    "trial/named/test_actor.py",
    "trial/named/test_service_metrics.py",
    "trial/test_trained.py",
)


def pytest_collection_modifyitems(config, items):
    """What takes longest starts first, shared out to the workers of pytest-xdist: none is left with it at the end.

    Each worker is given an equal part of the list, in order, and takes from others when it has done its own. The first
    one has all tests of Ray, which share a cluster.
    """
    num_workers = getattr(config, "workerinput", {}).get("workercount", 1)
    ray, slow, others = [], [], []
    for item in items:
        place = item.path.relative_to(Path(__file__).parent).as_posix()
        if item.get_closest_marker("ray"):
            ray.append(item)
        elif place.startswith(SLOW) or item.get_closest_marker("chaos"):
            slow.append(item)
        else:
            others.append(item)
    most = max(1, num_workers - 1)
    shares = [ray, *(slow[number::most] for number in range(most))]
    ordered = []
    for number, share in enumerate(shares):
        room = max(0, len(items) * (number + 1) // len(shares) - len(ordered) - len(share))
        ordered += share + others[:room]
        del others[:room]
    items[:] = ordered + others
