"""Ludus: distributed reinforcement learning where the agent you train is the agent you serve."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ludus import launch as launch
    from ludus.program.program import Handle as Handle
    from ludus.program.program import Program as Program
    from ludus.workers.panel import WorkerControlPanel as WorkerControlPanel
    from ludus.workers.register import register as register
    from ludus.workers.server import WorkerServer as WorkerServer
    from ludus.workers.solver import Solver as Solver
    from ludus.workers.worker import Worker as Worker

_HOMES = {
    "Handle": "ludus.program.program",
    "Program": "ludus.program.program",
    "Solver": "ludus.workers.solver",
    "Worker": "ludus.workers.worker",
    "WorkerControlPanel": "ludus.workers.panel",
    "WorkerServer": "ludus.workers.server",
    "register": "ludus.workers.register",
    "launch": "",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    """Names are fetched from their homes when first used, so that `import ludus` costs nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ludus' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name) if home else importlib.import_module(f"ludus.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
