"""The services of a trial: which class answers for a named thing, and how its workers are started.

The driver asks here; nothing else in a trial knows a service's class.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ludus.program.program import Program, Resources, RestartPolicy
from ludus.services.buffer.service import BufferService
from ludus.services.trainer.service_host import HostedService

__all__ = ["EXPERIMENT", "buffer", "model_program"]

EXPERIMENT = "ludus"
"""The experiment under which all workers of a named trial are found."""

_MODEL_RESTARTS = RestartPolicy(max_restarts=None, backoff_s=0.1, max_backoff_s=2.0)


def buffer(capacity: int) -> HostedService:
    """A buffer of nests, hosted by the driver."""
    return BufferService(capacity, of="nest")


def model_program(
    folder: Path, name: str, *, num_workers: int, max_batch: int, num_threads: int, max_busy_s: float
) -> Program:
    """Workers `model-NAME/0` and so on. `folder` is the trial's."""
    from ludus.models.service import ModelService  # when it is needed: it may load much

    program = Program(EXPERIMENT)
    program.add(
        f"model-{name}",
        ModelService,
        folder,
        name,
        max_batch=max_batch,
        num_threads=num_threads,
        replicas=num_workers,
        resources=Resources(cpus=max(1, num_threads)),
        restarts=replace(_MODEL_RESTARTS, max_busy_s=max_busy_s or None),
    )
    return program
