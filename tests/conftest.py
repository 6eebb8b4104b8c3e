"""Tests run the same however they are started."""

import signal

# A shell that runs something in the background has it ignore Ctrl-C, and so would everything that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
