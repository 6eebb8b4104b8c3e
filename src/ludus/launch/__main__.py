"""`python -m ludus.launch SPEC_FILE LIFELINE_FD`: one worker process, started by the local engine."""

import sys

from ludus import garbage
from ludus.launch import child

garbage.collect_seldom()
sys.exit(child.main(sys.argv[1:]))
