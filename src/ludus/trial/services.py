"""The composition root: which class answers for each thing of a trial, and how its workers are started.

It alone knows the classes of services: those of named things, which a script declares, and those of a training run.
All else calls workers by their names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus import envs, options
from ludus.models.versions.service import WeightsService
from ludus.program.program import Program, Resources, RestartPolicy
from ludus.services.buffer import buffer_stats, column_folder
from ludus.services.buffer.buffer_settings import BufferSettings
from ludus.services.buffer.service import BufferService
from ludus.services.trainer.service_host import Hosted
from ludus.trial.counting import Service, services_of
from ludus.trial.trial import EXPERIMENT

if TYPE_CHECKING:
    from ludus.core import EnvSpec
    from ludus.experiment.config import Config
    from ludus.gateway.actor import ActorLike
    from ludus.gateway.gateway import GatewayOptions
    from ludus.gateway.session_core import Observer
    from ludus.learn.policies.policy import PolicySpec

__all__ = [
    "NamedBuffer",
    "buffer",
    "buffer_settings",
    "gateway_program",
    "model_program",
    "remove_abandoned",
    "training_program",
]

# An env that ends its process now and then is lived with; one that does in every life reaches this limit.
_SIMULATOR_RESTARTS = RestartPolicy(max_restarts=30, window_s=600.0, backoff_s=0.1, max_backoff_s=2.0)
_MODEL_RESTARTS = RestartPolicy(max_restarts=None, backoff_s=0.1, max_backoff_s=2.0)
_GATEWAY_RESTARTS = RestartPolicy(max_restarts=None, backoff_s=0.05, max_backoff_s=1.0)


# --- named things


NamedBuffer = BufferService


def buffer_settings(given: Mapping[str, Any]) -> tuple[BufferSettings, bool]:
    """What a script declared, and whether it persists. Raises `ConfigError` for what cannot be."""
    given = dict(given)
    persist = options.parse("persist", bool, given.pop("persist", False))
    return options.replace(BufferSettings(), given), bool(persist)


def buffer(settings: BufferSettings, folder: Path | None) -> NamedBuffer:
    """A buffer of nests, hosted by the driver; with a folder, one that survives it."""
    return NamedBuffer(settings, of="nest", folder=folder)


def remove_abandoned() -> None:
    """What services that were killed have left in this host's shared memory."""
    column_folder.remove_abandoned()


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


# --- a training run


def training_program(config: Config, folder: Path, *, began: float) -> tuple[Program, list[Service]]:
    """Trainers, and simulators with inference workers or the workers that games call, as nodes; and who counts of them.

    Trainer 0 also has the weights; each has its own buffer.
    """
    from ludus.experiment import wiring  # brings torch
    from ludus.services.trainer.service import TrainerService

    program = Program(EXPERIMENT)
    train = config.train
    if train.engine == "local":  # elsewhere its process has other devices than this one
        wiring.check_device(train.device)
    env = envs.spec(train.env, **config.env_args)
    policy = wiring.make_policy_spec(config, env)
    wiring.check_replay(config, env)
    wiring.check_search(config, env, policy)
    if config.is_game:
        _add_game_workers(program, config, folder, policy, has_mask=env.has_mask)
    elif config.num_simulators:
        _add_simulators(program, config, policy, env)
    program.add(
        "trainer",
        TrainerService,
        wiring.TrainerFactory(
            config=config,
            folder=folder,
            policy=policy,
            env=env,
            began=began,
            make_weights=_training_weights,
            make_buffer=BufferService,
        ),
        replicas=train.trainers,
        resources=Resources(cpus=wiring.trainer_threads(config), gpus=float(train.device.startswith("cuda"))),
        restarts=RestartPolicy(max_restarts=0),
    )
    buffers = [
        Service(
            prefix=f"buffer/{wiring.MODEL}",
            worker=f"buffer/{rank}",
            beside=f"trainer/{rank}",
            counts=buffer_stats.counts,
        )
        for rank in range(train.trainers if config.has_queue else 0)
    ]
    prefixes = {"inference": f"model/{wiring.MODEL}", wiring.GATEWAY: "gateway"}
    return program, [*buffers, *services_of(program.nodes, prefixes=prefixes)]


def _training_weights(folder: Path) -> WeightsService:
    """Not durable: after a power cut a checkpoint is the truth."""
    return WeightsService(folder / "models", durable=False)


def _add_simulators(program: Program, config: Config, policy: PolicySpec, env: EnvSpec) -> None:
    from ludus.experiment import wiring
    from ludus.services.simulator.service import SimulatorService, SimulatorSettings

    train, is_async = config.train, config.has_queue
    arguments: dict[str, Any] = {"weights": Hosted("weights", 0)}
    if train.inference:
        from ludus.models.service import ModelService  # when it is needed: backends take time to import

        arguments["inference"] = program.add(
            "inference",
            ModelService,
            Hosted("weights", 0),
            wiring.MODEL,
            policy=policy,
            backend=train.inference_backend,
            # sync: each call by itself. Which calls meet in a batch is chance, and other batches round differently.
            max_batch=1024 if is_async else 1,
            keep_versions=4,
            replicas=train.inference,
            # A forward pass is short, but for the first: the heartbeat gives that ten times as long.
            restarts=replace(_MODEL_RESTARTS, max_busy_s=train.hang_seconds / 10 or None, is_expendable=True),
        )
    settings = SimulatorSettings(
        make_groups=functools.partial(wiring.make_groups, config, is_remote=bool(train.inference)),
        policy=policy,
        num_steps=wiring.segment_steps(config),
        seed=train.seed,
        num_trainers=train.trainers,
        is_async=is_async,
        model=wiring.MODEL,
        make_search=wiring.search_factory(config, env),
        exponents=wiring.exponents(config, env),
    )
    program.add(
        "simulator",
        SimulatorService,
        settings,
        replicas=config.num_simulators,
        resources=Resources(cpus=max(1, train.env_threads)),
        restarts=replace(
            _SIMULATOR_RESTARTS,
            max_busy_s=train.hang_seconds or None,
            is_expendable=is_async and train.trainers == 1,  # else a trainer cannot do without it
        ),
        **arguments,
    )


def _add_game_workers(program: Program, config: Config, folder: Path, policy: PolicySpec, *, has_mask: bool) -> None:
    from ludus.experiment import wiring
    from ludus.experiment.game_worker import GameSettings, GameWorker  # when it is needed: most runs have no games

    settings = GameSettings(
        policy=policy,
        has_mask=has_mask,
        num_steps=wiring.segment_steps(config),
        seed=config.train.seed,
        num_trainers=config.train.trainers,
        model=wiring.MODEL,
    )
    program.add(
        wiring.GATEWAY,
        GameWorker,
        wiring.gateway_options(config, folder),
        settings,
        Hosted("weights", 0),
        size=config.num_simulators,
        replicas=config.num_simulators,
        resources=Resources(cpus=1),
        restarts=_GATEWAY_RESTARTS,
    )
