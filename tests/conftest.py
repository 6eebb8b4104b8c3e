"""Tests run the same however they are started."""

import os
import signal
import sys
from pathlib import Path

# A shell that runs something in the background has it ignore Ctrl-C, and so would everything that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# As in a virtual environment that is activated: what is installed beside this Python is found by its name.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
