"""Ludus: distributed reinforcement learning where the agent you train is the agent you serve."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ludus import fake as fake
    from ludus import launch as launch
    from ludus import league as league
    from ludus.discovery import name_resolve as name_resolve
    from ludus.envs.games import Games as Games
    from ludus.gateway.actor import Actor as Actor
    from ludus.gateway.session import Session as Session
    from ludus.program.program import Handle as Handle
    from ludus.program.program import Program as Program
    from ludus.rpc.client import RpcClient as RpcClient
    from ludus.rpc.server import RpcServer as RpcServer
    from ludus.training.api import TrainingRun as TrainingRun
    from ludus.training.api import evaluate as evaluate
    from ludus.training.api import resume as resume
    from ludus.training.api import train as train
    from ludus.trial.init import init as init
    from ludus.trial.named.actor import RemoteActor as RemoteActor
    from ludus.trial.named.buffer import BatchBuffer as BatchBuffer
    from ludus.trial.named.buffer import PrefetchBuffer as PrefetchBuffer
    from ludus.trial.named.buffer import RemoteBuffer as RemoteBuffer
    from ludus.trial.named.buffer import TorchTensorBuffer as TorchTensorBuffer
    from ludus.trial.named.merge import merge as merge
    from ludus.trial.named.model import RemoteModel as RemoteModel
    from ludus.trial.named.model import get_torch_model_weights as get_torch_model_weights
    from ludus.trial.named.model import set_torch_model_weights as set_torch_model_weights
    from ludus.trial.named.topic import subscribe as subscribe
    from ludus.trial.named.topic import topic as topic
    from ludus.trial.named.trainer import RemoteTrainer as RemoteTrainer
    from ludus.trial.named.trainer import all_reduce as all_reduce
    from ludus.trial.named.trainer import rank as rank
    from ludus.trial.named.trainer import should_stop as should_stop
    from ludus.trial.named.trainer import world_size as world_size
    from ludus.trial.wait import run_until_asked_to_stop as run_until_asked_to_stop
    from ludus.workers.panel import WorkerControlPanel as WorkerControlPanel
    from ludus.workers.register import register as register
    from ludus.workers.server import WorkerServer as WorkerServer
    from ludus.workers.solver import Solver as Solver
    from ludus.workers.worker import Worker as Worker

_HOMES = {
    "Actor": "ludus.gateway.actor",
    "BatchBuffer": "ludus.trial.named.buffer",
    "Games": "ludus.envs.games",
    "Handle": "ludus.program.program",
    "PrefetchBuffer": "ludus.trial.named.buffer",
    "Program": "ludus.program.program",
    "RemoteActor": "ludus.trial.named.actor",
    "RemoteBuffer": "ludus.trial.named.buffer",
    "RemoteModel": "ludus.trial.named.model",
    "RemoteTrainer": "ludus.trial.named.trainer",
    "RpcClient": "ludus.rpc.client",
    "RpcServer": "ludus.rpc.server",
    "Session": "ludus.gateway.session",
    "Solver": "ludus.workers.solver",
    "TorchTensorBuffer": "ludus.trial.named.buffer",
    "TrainingRun": "ludus.training.api",
    "Worker": "ludus.workers.worker",
    "WorkerControlPanel": "ludus.workers.panel",
    "WorkerServer": "ludus.workers.server",
    "all_reduce": "ludus.trial.named.trainer",
    "evaluate": "ludus.training.api",
    "get_torch_model_weights": "ludus.trial.named.model",
    "init": "ludus.trial.init",
    "merge": "ludus.trial.named.merge",
    "rank": "ludus.trial.named.trainer",
    "register": "ludus.workers.register",
    "resume": "ludus.training.api",
    "run_until_asked_to_stop": "ludus.trial.wait",
    "set_torch_model_weights": "ludus.trial.named.model",
    "should_stop": "ludus.trial.named.trainer",
    "subscribe": "ludus.trial.named.topic",
    "topic": "ludus.trial.named.topic",
    "train": "ludus.training.api",
    "world_size": "ludus.trial.named.trainer",
}
_MODULES = {
    "fake": "ludus.fake",
    "launch": "ludus.launch",
    "league": "ludus.league",
    "name_resolve": "ludus.discovery.name_resolve",
}

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
