"""`ludus`, whose name service does not answer while a file is there.

python benchmarks/names_away.py FILE train ppo CartPole-v1 --simulators 2

The driver hosts the names. Here only the thread that answers for them stands still; the driver itself goes on.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ludus.discovery.registry import RegistryServer

_TICK_S = 0.02


def install(path: Path) -> None:
    """Make the registries of this process wait for as long as `path` exists."""
    answer = RegistryServer._answer_watches  # called in each turn of the thread that answers all calls

    def wait_and_answer(self: RegistryServer) -> None:
        while path.exists() and not self._stop.is_set():
            time.sleep(_TICK_S)
        answer(self)

    RegistryServer._answer_watches = wait_and_answer  # type: ignore[method-assign]


if __name__ == "__main__":
    from ludus.cli.main import main

    install(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
