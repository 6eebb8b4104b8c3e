"""`python -m ludus.launch SPEC_FILE LIFELINE_FD`: one worker process, started by the local engine."""

import sys

from ludus.launch import child

sys.exit(child.main(sys.argv[1:]))
