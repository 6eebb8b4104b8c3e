"""Which parts a run is made of, and how they are joined within one process: all of an embedded run, or a trainer's.

Which service answers for each is not known here: see `trial/services.py`.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import clock as clocks
from ludus import envs, errors
from ludus import secret as secrets
from ludus.core import EnvSpec, VectorEnv
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.discovery import names as naming
from ludus.envs import registry as envs_by_name
from ludus.experiment.config import Config
from ludus.experiment.flows.async_ import AsyncFlow
from ludus.experiment.flows.remote_source import RemoteSource
from ludus.experiment.flows.replay import QueueFeed, ReplayFlow, SourceFeed
from ludus.experiment.flows.sync import EmbeddedSource, Source, SyncFlow
from ludus.experiment.game_evaluation import GameEvaluation
from ludus.experiment.offline_training import make_dataset_replay, offline_training, with_datasets
from ludus.experiment.replay import check_capacity, make_replay
from ludus.experiment.sent_metrics import SentMetrics
from ludus.experiment.training import Flow, LoopWriter, Training
from ludus.learn.algorithms import registry
from ludus.learn.algorithms.algorithm import Algorithm, SegmentConfig
from ludus.learn.algorithms.learner import Learner
from ludus.learn.algorithms.replay_algorithm import ReplayAlgorithm
from ludus.learn.algorithms.replay_learner import AnyLearner, ReplayLearner
from ludus.learn.algorithms.trained_networks import Ranks
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.learn.search.settings import SearchSettings
from ludus.models.versions.store import VersionStore
from ludus.services.buffer.nest_buffer import NestBuffer
from ludus.services.simulator.chooser import Chooser, InlineChooser
from ludus.services.simulator.search_chooser import SearchChooser
from ludus.services.simulator.simulator import Simulator
from ludus.services.trainer import freed_memory
from ludus.services.trainer.ranks import TorchRanks
from ludus.services.trainer.service_host import HostedService, ServiceHost
from ludus.telemetry.metrics_file import MetricsWriter
from ludus.workers import context
from ludus.workers.remote import Remote
from ludus.workers.server import WorkerServer

if TYPE_CHECKING:
    from ludus.gateway.gateway import GatewayOptions

__all__ = [
    "GATEWAY",
    "MODEL",
    "Buffer",
    "TrainerFactory",
    "Weights",
    "check_device",
    "check_replay",
    "check_search",
    "embedded",
    "exponents",
    "gateway_options",
    "make_chooser",
    "make_evaluation_env",
    "make_groups",
    "make_learner",
    "make_policy_spec",
    "make_simulator",
    "search_factory",
    "segment_steps",
    "trainer_threads",
    "use_threads",
]

MODEL = "policy"
GATEWAY = "gateway"
_LOG = logging.getLogger(__name__)
_PUBLISH_RETRY_S = 0.5
_PUBLISH_WARN_S = 60.0
_EVALUATE_TIMEOUT_S = 10.0
_PUSHED_STEPS = 128
_SEGMENT_TIMEOUT_S = 3600.0  # slow envs may take their time; a lost simulator is noticed by its connection


def make_policy_spec(config: Config, env: EnvSpec) -> PolicySpec:
    return make_algorithm(config, len(env.agents)).policy_spec(env, config.network)


def make_algorithm(config: Config, num_agents: int, global_state: Nest = None) -> Algorithm[Any]:
    """`global_state`: the spec of the env's, where the algorithm is to learn."""
    made = registry.algorithm_class(config.train.algorithm)
    team = {"global_state": global_state} if made.group == "env" else {}
    return made(config.algorithm, num_agents=num_agents, **team)


def make_groups(config: Config, *, is_remote: bool = False) -> list[VectorEnv]:
    """The envs of one simulator: one group, or two where the one can step while the other is chosen for."""
    has_threads = envs_by_name.adapter_of(config.train.env) in ("ale", "envpool")
    num_envs = config.algorithm.num_envs
    num_groups = config.train.groups or (2 if (is_remote or has_threads) and num_envs > 1 else 1)
    sizes = [len(part) for part in np.array_split(np.arange(num_envs), num_groups)]
    threads = config.train.env_threads
    return [envs.make(config.train.env, size, num_threads=threads, **config.env_args) for size in sizes]


def make_evaluation_env(config: Config, num_envs: int) -> VectorEnv:
    """One group, with the arguments of evaluations."""
    return envs.make(config.train.env, num_envs, num_threads=config.train.env_threads, **config.eval_env_args)


def segment_steps(config: Config) -> int:
    """Steps of each env in a segment that is pushed: a call is worth some work, however often replay is learnt from."""
    num_steps, num_envs = config.algorithm.num_steps, config.algorithm.num_envs
    return max(num_steps, -(-_PUSHED_STEPS // num_envs)) if config.flow == "replay" and config.has_queue else num_steps


def make_chooser(config: Config, policy: Policy, env: EnvSpec) -> Chooser:
    """What picks the actions where the policy itself is at hand."""
    make_search = search_factory(config, env)
    return InlineChooser(policy, exponents(config, env)) if make_search is None else make_search(policy)


def search_factory(config: Config, env: EnvSpec) -> Callable[[Policy], Chooser] | None:
    """What makes a chooser that looks ahead, if the algorithm has one."""
    settings = make_algorithm(config, len(env.agents)).search()
    if settings is None:
        return None
    return functools.partial(_search_chooser, settings, config.train.algorithm, config.train.env, config.env_args)


def _search_chooser(
    settings: SearchSettings, algorithm: str, game: str, game_args: dict[str, Any], policy: Policy
) -> Chooser:
    rules = envs.rules(game, **game_args)
    if rules is None:
        raise errors.ConfigError(
            f"{algorithm} looks ahead by the rules of a game, and {envs.without_rules(game)}. Use ppo here."
        )
    return SearchChooser(policy, rules, settings)


def check_search(config: Config, env: EnvSpec, policy: PolicySpec) -> None:
    """Raise `ConfigError` if the algorithm looks ahead, and cannot in this env or with this policy."""
    make_search = search_factory(config, env)
    if make_search is not None:
        make_search(Policy(policy))


def make_simulator(config: Config, groups: list[VectorEnv], policy: Policy, *, seed: int) -> Simulator:
    return Simulator(
        groups,
        make_chooser(config, policy, groups[0].spec),
        num_steps=config.algorithm.num_steps,
        seed=seed,
        state_spec=policy.state_spec,
    )


def exponents(config: Config, env: EnvSpec) -> NDArray[np.float32] | None:
    """How much each row of all simulators explores, if an algorithm has them explore differently."""
    algorithm = make_algorithm(config, len(env.agents))
    if not isinstance(algorithm, ReplayAlgorithm):
        return None
    return algorithm.exploration_exponents(max(1, config.num_simulators) * config.algorithm.num_envs * len(env.agents))


def make_learner(
    config: Config, policy: Policy, *, num_agents: int = 1, global_state: Nest = None, ranks: Ranks | None = None
) -> AnyLearner:
    """`num_agents` and the spec of the `global_state`: of each env."""
    check_device(config.train.device)
    algorithm = make_algorithm(config, num_agents, global_state)
    settings: dict[str, Any] = {"seed": config.train.seed, "ranks": ranks, "device": config.train.device}
    if isinstance(algorithm, ReplayAlgorithm):
        return ReplayLearner(algorithm, policy, **settings)
    return Learner(algorithm, policy, **settings)


def check_device(name: str) -> None:
    """Raise `ConfigError` unless torch can compute there, in this process."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise errors.ConfigError(f"device={name!r} is none that torch knows; use cpu, cuda or, say, cuda:1.") from None
    if device.type == "cuda":  # counting them does not wake them up
        there = torch.cuda.device_count()
        if (device.index or 0) >= there:
            raise errors.ConfigError(
                f"device={name} is not there: torch {torch.__version__} sees {there} GPUs here. Use cpu, or a torch "
                "that was built for this machine's GPUs."
            )
        return
    try:
        torch.zeros(1, device=device).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise errors.ConfigError(f"device={name} cannot be computed on here ({reason}). Use cpu or cuda.") from None


def check_replay(config: Config, env: EnvSpec) -> None:
    """Raise `ConfigError` if what is collected does not fit its table, or a dataset does not fit the env."""
    algorithm = make_algorithm(config, len(env.agents))
    if isinstance(algorithm, ReplayAlgorithm):
        check_capacity(config, env, algorithm.items(), segment_steps=segment_steps(config))
        if config.train.dataset:
            make_dataset_replay(config, env)


def embedded(
    config: Config,
    folder: Path,
    *,
    began: float | None = None,
    on_progress: Callable[[int, dict[str, float]], None] | None = None,
    open_metrics: Callable[..., LoopWriter] = MetricsWriter,
) -> Training:
    """All in this process: a simulator whose policy is the learner's own. No calls, no copies of weights."""
    freed_memory.keep()
    if config.is_offline:
        spec = envs.spec(config.train.env, **config.env_args)
        torch.set_num_threads(config.train.threads or _embedded_threads(spec))
        policy = Policy(make_policy_spec(config, spec), seed=config.train.seed)
        learner = make_learner(config, policy, num_agents=len(spec.agents))
        return offline_training(
            config, folder, spec, learner, began=began, on_progress=on_progress, open_metrics=open_metrics
        )
    groups = make_groups(config)
    torch.set_num_threads(config.train.threads or _embedded_threads(groups[0].spec))
    policy = Policy(make_policy_spec(config, groups[0].spec), seed=config.train.seed)
    agents = groups[0].spec.agents
    learner = make_learner(config, policy, num_agents=len(agents), global_state=groups[0].spec.global_state)
    simulator = make_simulator(config, groups, policy, seed=config.train.seed)
    flow: Flow
    if isinstance(learner, ReplayLearner):
        replay = make_replay(config, groups[0].spec, learner, segment_steps=segment_steps(config))
        mixed = with_datasets(config, groups[0].spec, replay)
        flow = ReplayFlow(SourceFeed(EmbeddedSource(simulator)), mixed, learner, num_agents=len(agents))
    else:
        flow = SyncFlow(EmbeddedSource(simulator), learner, num_agents=len(agents))
    return Training(
        config,
        folder,
        flow,
        learner,
        began=began,
        on_progress=on_progress,
        agents=agents,
        open_metrics=open_metrics,
    )


def use_threads(config: Config) -> None:
    """Set how many threads torch has in a process that plays and learns."""
    env = envs.spec(config.train.env, **config.env_args)
    torch.set_num_threads(config.train.threads or _embedded_threads(env))


def _embedded_threads(env: EnvSpec) -> int:
    """Images are worth all cores. Other networks have one: a second makes SAC with 256 units 1.3 times as fast, but as
    threads wait for each other by spinning, half as fast or worse beside anything else that runs on the machine."""
    is_image = any(len(leaf.shape) == 3 for leaf in nests.leaves(env.obs))
    return _allowed_threads(min(8, len(os.sched_getaffinity(0)))) if is_image else 1


def _allowed_threads(number: int) -> int:
    """No more than `OMP_NUM_THREADS`, by which users share a machine out."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # the rest is of nested threads
    return min(number, int(said)) if said.isdecimal() and int(said) else number


# --- spread over processes; `trial/services.py` makes the program


def gateway_options(config: Config, folder: Path) -> GatewayOptions:
    """Where games call. Raises `ConfigError`, and `Unauthorised` if others could call and no secret was given."""
    for library in ("httptools", "uvloop"):
        if importlib.util.find_spec(library) is None:
            raise errors.MissingExtra(library, extra="serve")
    from ludus.gateway.gateway import GatewayOptions  # it brings what only gateways need
    from ludus.gateway.session_core import SessionLimits

    games = config.games
    assert games is not None
    return GatewayOptions(
        host=games.host,
        port=games.port,
        grpc_port=games.grpc_port,
        token=secrets.find("token", None, games.token_file),
        secret=secrets.find("secret", None, games.secret_file),
        tls_cert=games.tls_cert,
        tls_key=games.tls_key,
        folder=folder / "gateway",
        sessions=SessionLimits(lease_s=games.lease_s, max_sessions=int(games.max_sessions)),
    )


class Weights(HostedService, Protocol):
    """The versions of a trainer's policy, which others read by calls."""

    store: VersionStore

    def publish(self, model: str, weights: Mapping[str, NDArray[Any]], number: int) -> object: ...


class Buffer(HostedService, Protocol):
    """The segments that others push by calls, for a trainer to take."""

    buffer: NestBuffer


@dataclass(frozen=True, kw_only=True)
class TrainerFactory:
    """Builds a trainer's job in its own process. Of several ranks, the first evaluates and keeps the books.

    The job hosts its weights and its buffer: it takes segments and writes versions by memory, while others call. The
    services that answer these calls are given by the composition root: `make_weights(folder)`, `make_buffer(capacity)`.
    """

    config: Config
    folder: Path
    policy: PolicySpec
    env: EnvSpec
    began: float
    make_weights: Callable[[Path], Weights]
    make_buffer: Callable[[int], Buffer]

    @property
    def agents(self) -> tuple[str, ...]:
        return self.env.agents

    def __call__(self, server: WorkerServer) -> Training:
        config, size = self.config, self.config.train.trainers
        rank = int(server.worker_name.rpartition("/")[2])
        freed_memory.keep()
        torch.set_num_threads(trainer_threads(config))
        ranks = _join(rank, size, server, config) if size > 1 else None
        policy = Policy(self.policy, seed=config.train.seed)
        learner = make_learner(
            config, policy, num_agents=len(self.agents), global_state=self.env.global_state, ranks=ranks
        )
        is_publisher = rank == 0 and config.num_simulators
        weights = self.make_weights(self.folder) if is_publisher else None
        publish = _publisher(weights) if weights is not None else None
        host = ServiceHost(weights, "weights/0", beside=server) if weights is not None else None
        if host is not None and config.flow == "sync":
            host.start()  # simulators need it before they can be put back where they were
        hosts = [host] if host is not None else []
        flow = self._flow(rank, policy, learner, publish, ranks, server, hosts)
        training = Training(
            config,
            self.folder,
            flow,
            learner,
            began=self.began,
            ranks=ranks,
            agents=self.agents,
            game_evaluation=_game_evaluation(config) if rank == 0 else None,
            open_metrics=SentMetrics,
            on_close=[*(each.close for each in hosts), *([ranks.close] if ranks is not None else [])],
        )
        training.restore()
        number = learner.version if weights is None else _rewind(weights.store, learner.version)
        if weights is not None:  # before ranks meet: the simulators of the others ask for it, too
            weights.publish(MODEL, policy.weights(), number=number)
        skipped = number - learner.version  # numbers up to that of a version that stays, tagged or held
        learner.version += skipped if ranks is None else int(ranks.sum_numbers([skipped])[0])
        for each in hosts:
            each.start()
        return training

    def _flow(
        self,
        rank: int,
        policy: Policy,
        learner: AnyLearner,
        publish: Callable[[AnyLearner], None] | None,
        ranks: TorchRanks | None,
        server: WorkerServer,
        hosts: list[ServiceHost],
    ) -> Flow:
        """What this rank does in turns; the buffer that others push to, if there is one, is added to `hosts`."""
        config, num_agents, games = self.config, len(self.agents), self.config.games
        waits_for = "segments" if games is None else f"games on {games.address}"
        queue: NestBuffer | None = None
        # A session is one row; a segment of a simulator has those of all its environments.
        rows = 1 if games is None else config.algorithm.num_envs
        if config.has_queue:
            batch = config.algorithm.batch_segments if isinstance(config.algorithm, SegmentConfig) else 1
            buffer = self.make_buffer(max(config.train.queue, batch) * rows)
            hosts.append(ServiceHost(buffer, f"buffer/{rank}", beside=server))
            queue = buffer.buffer
        if isinstance(learner, ReplayLearner):
            feed = (
                SourceFeed(self._source(rank, policy, publish))
                if queue is None
                else QueueFeed(queue, waits_for=waits_for)
            )
            replay = make_replay(config, self.env, learner, segment_steps=segment_steps(config), rank=rank)
            mixed = with_datasets(config, self.env, replay, rank=rank)
            return ReplayFlow(feed, mixed, learner, publish=publish, ranks=ranks, num_agents=num_agents)
        if queue is None:
            source = self._source(rank, policy, publish)
            return SyncFlow(source, learner, publish=publish, ranks=ranks, num_agents=num_agents)
        assert isinstance(config.algorithm, SegmentConfig)
        return AsyncFlow(
            queue,
            learner,
            publish=publish or _publish_nothing,
            batch_segments=config.algorithm.batch_segments * rows,
            max_lag=config.train.max_lag,
            ranks=ranks,
            num_agents=num_agents,
            waits_for=waits_for,
            waits_together=games is not None,
        )

    def _source(self, rank: int, policy: Policy, publish: Callable[[AnyLearner], None] | None) -> Source:
        config = self.config
        if config.num_simulators:
            indices = [index for index in range(config.num_simulators) if index % config.train.trainers == rank]
            return RemoteSource(Remote("simulator", timeout_s=_SEGMENT_TIMEOUT_S), indices, publish=publish)
        groups = make_groups(config)
        seed = int(np.random.SeedSequence([config.train.seed, rank]).generate_state(1)[0])
        return EmbeddedSource(make_simulator(config, groups, policy, seed=seed))


def _game_evaluation(config: Config) -> GameEvaluation | None:
    games, episodes = config.games, config.train.eval_episodes
    if games is None or not episodes:
        return None
    gateway = Remote(GATEWAY, timeout_s=_EVALUATE_TIMEOUT_S)
    workers = [gateway.replica(index) for index in range(config.num_simulators)]
    return GameEvaluation(workers, episodes=episodes, wait_s=games.eval_wait_s, address=games.address)


def _join(rank: int, size: int, server: WorkerServer, config: Config) -> TorchRanks:
    here = context.current()
    key = naming.key(here.experiment, here.trial, "rendezvous", "trainer")
    return TorchRanks(rank, size, names=here.names, key=key, device=config.train.device)


def _publisher(weights: Weights, *, clock: clocks.Clock = clocks.SYSTEM) -> Callable[[AnyLearner], None]:
    def publish(learner: AnyLearner) -> None:
        began = clock.now()
        warn_at = began
        while True:
            try:
                weights.publish(MODEL, learner.policy.weights(), number=learner.version)
                return
            except errors.DataError as error:
                raise errors.TrainingError(
                    f"another process has published version {learner.version} of {MODEL!r} while this run trains, and "
                    f"only the run may ({error}). Stop that process, then resume the run."
                ) from error
            except OSError as error:  # a full disk, perhaps: simulators cannot go on without it, so wait for room
                if clock.now() >= warn_at:
                    _LOG.warning(
                        "version %d could not be written to %s for %.0f s: %s. Training waits until it can: make room.",
                        learner.version,
                        weights.store.folder,
                        clock.now() - began,
                        error,
                    )
                    warn_at += _PUBLISH_WARN_S
            clock.wait(threading.Event(), _PUBLISH_RETRY_S)

    return publish


def _rewind(store: VersionStore, number: int) -> int:
    """Remove what a killed run published after its last checkpoint; the number to go on with."""
    known = [version.number for version in store.versions(MODEL)]
    return max(number, store.rewind(MODEL, number if number in known else None))


def _publish_nothing(learner: AnyLearner) -> None:
    """Rank 0 has the same weights, and publishes them."""


def trainer_threads(config: Config) -> int:
    """The cores that simulators and inference leave, shared by the trainers; at least one each."""
    if config.train.threads is not None:
        return config.train.threads
    cores = len(os.sched_getaffinity(0)) - config.num_simulators - config.train.inference
    return _allowed_threads(max(1, min(8, cores // config.train.trainers)))
