"""The services of a trial: which class answers for a named thing, and how its workers are started.

The driver asks here; nothing else in a trial knows a service's class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.program.program import Program, Resources, RestartPolicy
from ludus.services.buffer.service import BufferService
from ludus.services.trainer.service_host import HostedService
from ludus.trial.trial import EXPERIMENT

if TYPE_CHECKING:
    from ludus.gateway.actor import ActorLike
    from ludus.gateway.gateway import GatewayOptions
    from ludus.gateway.session_core import Observer

__all__ = ["buffer", "gateway_program", "model_program"]

_MODEL_RESTARTS = RestartPolicy(max_restarts=None, backoff_s=0.1, max_backoff_s=2.0)
_GATEWAY_RESTARTS = RestartPolicy(max_restarts=None, backoff_s=0.05, max_backoff_s=1.0)


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


def gateway_program(
    node: str,
    options: GatewayOptions,
    actor: Callable[..., ActorLike],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    num_workers: int,
    make_observer: Callable[[int], Observer] | None,
) -> Program:
    """Workers `NODE/0` and so on, which share a port; each session has an `actor(*args, **kwargs)`."""
    from ludus.gateway.service import GatewayService  # when it is needed: it brings the event loop

    program = Program(EXPERIMENT)
    program.add(
        node,
        GatewayService,
        options,
        actor,
        args,
        kwargs,
        size=num_workers,
        make_observer=make_observer,
        replicas=num_workers,
        resources=Resources(cpus=1),
        restarts=_GATEWAY_RESTARTS,
    )
    return program
