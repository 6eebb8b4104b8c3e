"""One worker process, started by the local engine, or a template that forks such processes.

python -m ludus.launch SPEC_FILE LIFELINE_FD PULSE_FD
python -m ludus.launch --template SOCKET_FD FOLDER MODULES PADDING
"""

import sys

from ludus import garbage
from ludus.launch import child, template
from ludus.program.process import exit_at_once

garbage.collect_seldom()
words: list[str] | None = sys.argv[1:]
if words and words[0] == "--template":
    words = template.main(words[1:])  # comes back in each worker
exit_at_once(0 if words is None else child.main(words))
