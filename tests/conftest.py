"""Tests run the same however they are started."""

import atexit
import os
import shutil
import signal
import tempfile

# A shell that runs something in the background has it ignore Ctrl-C, and so would everything that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What tests make is sealed by a key of their own, not by the user's.
if "LUDUS_STATE_DIR" not in os.environ:
    os.environ["LUDUS_STATE_DIR"] = tempfile.mkdtemp(prefix="ludus-tests-")
    atexit.register(shutil.rmtree, os.environ["LUDUS_STATE_DIR"], ignore_errors=True)
