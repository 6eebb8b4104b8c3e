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


def pytest_collection_modifyitems(items):
    """What takes longest begins first, so that nothing else waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("chaos") is None)
