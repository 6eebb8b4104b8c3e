"""Ludus: distributed reinforcement learning where the agent you train is the agent you serve."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ludus import launch as launch
    from ludus.discovery import name_resolve as name_resolve
    from ludus.program.program import Handle as Handle
    from ludus.program.program import Program as Program
    from ludus.remote.training import TrainingRun as TrainingRun
    from ludus.remote.training import evaluate as evaluate
    from ludus.remote.training import resume as resume
    from ludus.remote.training import train as train
    from ludus.rpc.client import RpcClient as RpcClient
    from ludus.rpc.server import RpcServer as RpcServer
    from ludus.workers.panel import WorkerControlPanel as WorkerControlPanel
    from ludus.workers.register import register as register
    from ludus.workers.server import WorkerServer as WorkerServer
    from ludus.workers.solver import Solver as Solver
    from ludus.workers.worker import Worker as Worker

_HOMES = {
    "Handle": "ludus.program.program",
    "Program": "ludus.program.program",
    "RpcClient": "ludus.rpc.client",
    "RpcServer": "ludus.rpc.server",
    "Solver": "ludus.workers.solver",
    "TrainingRun": "ludus.remote.training",
    "Worker": "ludus.workers.worker",
    "WorkerControlPanel": "ludus.workers.panel",
    "WorkerServer": "ludus.workers.server",
    "evaluate": "ludus.remote.training",
    "register": "ludus.workers.register",
    "resume": "ludus.remote.training",
    "train": "ludus.remote.training",
}
_MODULES = {"launch": "ludus.launch", "name_resolve": "ludus.discovery.name_resolve"}

__all__ = ["__version__", *sorted(_HOMES), *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    """Names are fetched from their homes when first used, so that `import ludus` costs nothing."""
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'ludus' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
