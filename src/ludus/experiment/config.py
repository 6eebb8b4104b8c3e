"""The configuration of a training run: what to train, where, how spread; with an algorithm's and a network's settings.

    config = resolve("ppo", "CartPole-v1", {"steps": 100_000, "learning_rate": 1e-3})
    config.train.steps, config.algorithm.learning_rate, config.network.hidden

Settings come, the later over the earlier, from the classes' defaults, from the preset of the environment's family
(`presets.py`) and from the user. A name belongs to one of the three parts; a typo is answered with the nearest.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus import options, spelling
from ludus.data import lookup
from ludus.envs import games as game_specs
from ludus.envs import registry as env_names
from ludus.envs.games import Games
from ludus.errors import ConfigError, DataError
from ludus.experiment import presets
from ludus.learn.algorithms import registry
from ludus.learn.algorithms.algorithm import AlgorithmConfig
from ludus.learn.networks.config import NetworkConfig
from ludus.models.settings import BACKENDS
from ludus.options import option

__all__ = ["MAX_SEED", "Config", "TrainConfig", "parse_env_args", "resolve"]

MAX_SEED = 2**63 - 1
_MAIN = "__main__:"


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What to train, for how long, and how spread."""

    algorithm: str = option(
        "ppo",
        help="ppo, a2c, impala, appo, dqn, apex, r2d2, sac, td3, ippo, mappo, vdn, qmix, bc, iql, alphazero, "
        "or module:Class of your own",
    )
    env: str = option("CartPole-v1", help="the environment's name; see docs/environments.md")
    env_args: str = option("{}", help="further arguments of the environment, as a JSON object")
    spec: str | None = option(None, help="for game://HOST:PORT: a JSON file that says what games see and do")
    dataset: tuple[str, ...] = option((), help="folders of datasets to learn from, made by `ludus dataset`")
    dataset_weights: tuple[float, ...] = option(
        (), help="how much of a batch is from each dataset, as 3,1; none: every step is as likely", minimum=0.0
    )
    dataset_share: float = option(
        0.25,
        help="flow replay: the part of each batch that is from datasets, if there are any",
        minimum=0.0,
        maximum=1.0,
    )
    steps: int = option(
        100_000,
        help="environment steps to train for; one counts once, however many agents act in it. Offline: transitions",
        minimum=1,
    )
    seed: int = option(0, help="random seed", minimum=0, maximum=MAX_SEED)
    project: str = option("trials", help="folder of all trials")
    trial: str | None = option(None, help="name of this trial; none: made from the time")
    checkpoint_seconds: float = option(30.0, help="seconds between checkpoints", minimum=0.0)
    keep_checkpoints: int = option(3, help="how many of the last checkpoints to keep", minimum=1)
    flow: str = option(
        "auto",
        help="sync: collect, train, in turns; async: at once; replay: from what is kept of all that was collected; "
        "offline: from datasets alone",
        choices=("auto", "sync", "async", "replay", "offline"),
    )
    simulators: int | None = option(
        None, help="processes that run environments, or that games call; 0: all in one process", minimum=0
    )
    groups: int | None = option(None, help="groups of environments in a simulator; none: automatic", minimum=1)
    env_threads: int = option(1, help="threads of environments that have their own (ALE, EnvPool)", minimum=1)
    inference: int = option(0, help="inference workers; 0: each simulator runs the policy itself", minimum=0)
    inference_backend: str = option(
        "numpy",
        help="how inference workers run the policy: numpy for small MLPs and torch for others; all but eager are "
        "compared with it first; auto: the fastest",
        choices=BACKENDS,
    )
    trainers: int = option(1, help="ranks that train together, each on its share of the simulators", minimum=1)
    hang_seconds: float = option(
        300.0,
        help="a simulator without progress for so long is replaced, an inference worker after a tenth of it; 0: never",
        minimum=0.0,
    )
    threads: int | None = option(None, help="threads of a trainer; none: automatic, OMP_NUM_THREADS at most", minimum=1)
    device: str = option("cpu", help="where the trainer computes: cpu, cuda, cuda:1")
    engine: str = option("local", help="where workers run", choices=("local", "ray"))
    max_lag: int = option(16, help="async: samples of versions older than this are dropped, and counted", minimum=0)
    queue: int = option(1, help="async: segments that wait for the trainer at most", minimum=1)
    eval_episodes: int = option(100, help="episodes of the evaluation at the end; 0: none", minimum=0)
    eval_max_steps: int | None = option(
        None, help="step limit of an evaluation episode; none: twenty times the longest of training", minimum=1
    )
    eval_env_args: str = option(
        "{}", help="arguments of the environment in evaluations, over env_args, as a JSON object"
    )
    stop_at_return: float | None = option(None, help="end as soon as a greedy evaluation reaches this")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run."""

    train: TrainConfig
    algorithm: AlgorithmConfig
    network: NetworkConfig

    @property
    def env_args(self) -> dict[str, Any]:
        """Those that the user gave, and `agent_ids` where the algorithm wants them."""
        given = parse_env_args(self.train.env_args, setting="env_args")
        wants_ids = getattr(self.algorithm, "agent_ids", False) and not self.is_game
        return {"agent_ids": True, **given} if wants_ids else given

    @property
    def eval_env_args(self) -> dict[str, Any]:
        """Those of evaluations: as in training, without what its adapter has for training only, and as configured."""
        own = parse_env_args(self.train.eval_env_args, setting="eval_env_args")
        return {**env_names.evaluation_args(self.train.env, self.env_args), **own}

    @property
    def games(self) -> Games | None:
        """Where games call, if they are what is trained on."""
        return Games.parse(self.train.env, self.env_args) if self.is_game else None

    @property
    def is_game(self) -> bool:
        return game_specs.is_game(self.train.env)

    @property
    def flow(self) -> str:
        default = registry.algorithm_class(self.train.algorithm).default_flow
        if self.is_offline:  # nothing is played, by games or otherwise
            return "offline"
        if self.is_game:  # they play on, whatever the trainer does
            return "replay" if self.is_replay else "async"
        return default if self.train.flow == "auto" else self.train.flow

    @property
    def is_replay(self) -> bool:
        """Whether the algorithm learns from replay."""
        return registry.algorithm_class(self.train.algorithm).learns_from != "segments"

    @property
    def is_cooperative(self) -> bool:
        """Whether agents learn as a team, so that none of them is anybody's opponent."""
        return registry.algorithm_class(self.train.algorithm).is_cooperative

    @property
    def is_offline(self) -> bool:
        """Whether nothing is collected: datasets are all there is."""
        default = registry.algorithm_class(self.train.algorithm).default_flow
        return (default if self.train.flow == "auto" else self.train.flow) == "offline"

    @property
    def num_simulators(self) -> int:
        """0: the simulator is embedded in the trainer, or there is none. Of games, the processes that they call."""
        if self.train.simulators is not None:
            return self.train.simulators
        if self.is_offline:
            return 0
        if self.is_game:
            return 1
        return max(1, self.train.trainers) if self.flow == "async" or self.train.inference else 0

    @property
    def has_queue(self) -> bool:
        """Whether simulators, or games, push segments by themselves into a queue of their trainer."""
        return self.flow == "async" or (self.flow == "replay" and self.num_simulators > 0)

    @property
    def is_embedded(self) -> bool:
        """One process, no calls: simulator and trainer in the one that runs `train`."""
        train = self.train
        return self.num_simulators == 0 and train.trainers == 1 and train.engine == "local"

    def check(self) -> None:
        """Raise `ConfigError` for settings that do not go together."""
        train = self.train
        self._check_names()
        self.env_args  # noqa: B018 - raises
        parse_env_args(train.eval_env_args, setting="eval_env_args")
        if self.is_game:
            self._check_games()
        elif train.spec is not None:
            raise ConfigError(f"spec={train.spec} is for games, game://HOST:PORT; {train.env} says itself what it is.")
        if self.is_offline:
            self._check_offline()
        elif registry.algorithm_class(train.algorithm).default_flow == "offline":
            raise ConfigError(
                f"flow={self.flow} is not for {train.algorithm}, which learns from datasets alone: use flow=offline."
            )
        if train.inference and registry.algorithm_class(train.algorithm).searches:
            raise ConfigError(
                f"inference={train.inference} is not for {train.algorithm}, whose search asks for many small batches: "
                "its simulators have the network themselves. Set inference=0."
            )
        if self.is_replay != (self.flow in ("replay", "offline")):
            kind, flows = (
                ("learns from replay", "replay") if self.is_replay else ("needs new segments", "sync or async")
            )
            raise ConfigError(f"flow={self.flow} is not for {train.algorithm}, which {kind}: use flow={flows}.")
        if train.dataset and not self.is_replay:
            raise ConfigError(
                f"dataset={','.join(train.dataset)} is for flow=offline and replay; this run has flow={self.flow}."
            )
        if self.is_game and registry.algorithm_class(train.algorithm).group == "env":
            raise ConfigError(
                f"{train.algorithm} learns from all agents of an environment together, and a session of a game is one "
                "agent's. Use ppo or dqn."
            )
        if train.dataset and registry.algorithm_class(train.algorithm).learns_from == "sequences":
            raise ConfigError(
                f"dataset={','.join(train.dataset)} is not for {train.algorithm}: it learns from sequences, and "
                "datasets are drawn step by step. Use dqn."
            )
        if self.flow == "async" and self.num_simulators == 0:
            raise ConfigError(
                "simulators=0 puts all into one process, which takes turns: use flow=sync, or simulators=1."
            )
        if train.inference and self.num_simulators == 0:
            raise ConfigError(
                "inference workers are for simulators in processes of their own: give simulators=1 or more."
            )
        if train.inference_backend != "numpy" and not train.inference:
            raise ConfigError(
                f"inference_backend={train.inference_backend} is for inference workers: give inference=1 or more."
            )
        if self.num_simulators and self.num_simulators % train.trainers and not self.is_game:
            raise ConfigError(
                f"{self.num_simulators} simulators cannot be shared equally by {train.trainers} trainers; "
                f"use a multiple of {train.trainers}."
            )
        if self.algorithm.num_envs < (train.groups or 1):
            raise ConfigError(
                f"{train.groups} groups need as many environments; num_envs is {self.algorithm.num_envs}."
            )

    def _check_names(self) -> None:
        """Workers are other processes: what is named must be found there, too."""
        if self.is_embedded:
            return
        named = {"algorithm": self.train.algorithm, "env": self.train.env, "model": self.network.model}
        for setting, name in named.items():
            if name and name.startswith(_MAIN):
                raise ConfigError(
                    f"{setting}={name} cannot be found by the workers of this run: __main__ is no .py file of yours "
                    "here. In a notebook or with `python -c`, put it into a file and name that: "
                    f"file.py:{name.removeprefix(_MAIN)}. {lookup.GUARD_HINT}"
                )

    def _check_offline(self) -> None:
        train = self.train
        refused = {
            "simulators": (bool(train.simulators), "nothing is collected"),
            "inference": (train.inference > 0, "nothing is collected"),
            "trainers": (train.trainers > 1, "one process learns from datasets"),
            "engine": (train.engine != "local", "one process learns from datasets"),
            "stop_at_return": (train.stop_at_return is not None, "the policy is evaluated at the end only"),
        }
        for name, (is_refused, why) in refused.items():
            if is_refused:
                raise ConfigError(f"{name}={getattr(train, name)} is not for flow=offline: {why}.")

    def _check_games(self) -> None:
        train = self.train
        if self.env_args.keys() & {"obs", "action"}:  # without them a command line is only being explained
            self.games  # noqa: B018 - raises
        refused = {
            "flow": (train.flow == "sync", "games do not wait for a trainer: the flow is async or replay"),
            "simulators": (
                train.simulators == 0 and not self.is_offline,
                "games call a process of its own: give 1 or more",
            ),
            "inference": (train.inference > 0, "the processes that games call run the policy themselves"),
            "engine": (train.engine != "local", "games call processes of this machine"),
            "stop_at_return": (train.stop_at_return is not None, "games are evaluated at the end of a run only"),
        }
        for name, (is_refused, why) in refused.items():
            if is_refused:
                raise ConfigError(f"{name}={getattr(train, name)} is not for {train.env}: {why}.")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Config:
        name = saved["train"]["algorithm"]
        return cls(
            train=options.replace(TrainConfig(), saved["train"]),
            algorithm=options.replace(registry.config_class(name)(), saved["algorithm"]),
            network=options.replace(NetworkConfig(), saved["network"]),
        )


def resolve(algorithm: str, env: str | Games, settings: Mapping[str, Any] | None = None) -> Config:
    """All settings of a run, from what its user gave. Raises `ConfigError`.

    Files of the user's own are found from here on wherever the trial is gone on with: their paths are made absolute,
    `__main__` becomes the script's file, and what a game's `spec`, or else its dataset, says of what games see and do
    becomes a part of `env_args`.
    """
    given = dict(settings or {})
    _check_is_name("algorithm", algorithm, "dqn")
    if isinstance(env, Games):
        given["env_args"] = _joined_args(env.arguments(), given)
        env = env.name
    _check_is_name("env", env, "CartPole-v1")
    if given.get("spec") is not None and game_specs.is_game(env):
        given["env_args"] = _joined_args(game_specs.read_spec(given.pop("spec")), given)
    elif given.get("dataset") and game_specs.is_game(env):
        given["env_args"] = _joined_args(_spec_of_dataset(given["dataset"]), given)
    parts: dict[str, Any] = {
        "train": TrainConfig(algorithm=algorithm, env=env),
        "algorithm": registry.config_class(algorithm)(),
        "network": NetworkConfig(),
    }
    homes = {field.name: part for part, config in parts.items() for field in dataclasses.fields(config)}
    unused = registry.algorithm_class(algorithm).unused
    for layer in (presets.find(algorithm, env), given):
        shares: dict[str, dict[str, Any]] = {part: {} for part in parts}
        for name, value in layer.items():
            if name not in homes:
                near = spelling.suggest(name, homes, num=2)
                hint = f"Did you mean {' or '.join(near)}?" if near else "`ludus train --help` lists all."
                hint = spelling.absence(name, homes) or hint
                raise ConfigError(f"there is no setting {name!r} for {algorithm} on {env}. {hint}")
            if name in unused:
                raise ConfigError(f"{name} has no effect on {algorithm}, and is no setting of it. Leave it out.")
            shares[homes[name]][name] = value
        parts = {part: options.replace(config, shares[part]) for part, config in parts.items()}
    train, network = parts["train"], parts["network"]
    datasets = tuple(str(Path(folder).absolute()) for folder in train.dataset)
    parts["train"] = dataclasses.replace(
        train, algorithm=_absolute(train.algorithm), env=_absolute(train.env), dataset=datasets
    )
    parts["network"] = dataclasses.replace(network, model=network.model and _absolute(network.model))
    config = Config(**parts)
    config.check()
    return config


def _check_is_name(setting: str, name: object, example: str) -> None:
    """Objects cannot be given: a run is gone on with, and workers are started, by what its config says."""
    if isinstance(name, str):
        return
    made = getattr(name, "__qualname__", "make")
    made = made if made.isidentifier() else "make"
    raise ConfigError(
        f"{setting} must be a name, and is an object of type {type(name).__name__}. Workers and `ludus resume` find it "
        f"by that name: give {setting}={example!r}, or one of your own as 'file.py:{made}', or "
        f"'__main__:{made}' if it is in this script."
    )


def parse_env_args(text: str, *, setting: str) -> dict[str, Any]:
    """The arguments of an environment from their JSON. Raises `ConfigError` that names the setting."""
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{setting} is not JSON: {error}.") from None
    if not isinstance(arguments, dict):
        raise ConfigError(f'{setting} is {text}: it must be a JSON object such as {{"size": 8}}.')
    return arguments


def _spec_of_dataset(folders: Any) -> dict[str, Any]:
    """What games see and do, by the first of the datasets that are learnt from."""
    from ludus.experiment.datasets.dataset import Dataset  # here: a command's options are shown without it

    names: tuple[str, ...] = options.parse("dataset", tuple[str, ...], folders)
    try:
        return dict(Dataset.open(names[0]).summary["spec"]) if names else {}
    except DataError as error:
        raise ConfigError(f"{error}.") from None


def _joined_args(arguments: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """With those that the user gave in `env_args` over them."""
    return json.dumps({**arguments, **parse_env_args(given.get("env_args", "{}"), setting="env_args")})


def _absolute(name: str) -> str:
    """`file.py:name` with the whole path of the file, `__main__:name` with the script's; any other name as it is."""
    where, _, attribute = name.rpartition(":")
    if where == "__main__":
        return f"{lookup.main_name() or where}:{attribute}"
    return f"{Path(where).absolute()}:{attribute}" if where.endswith(".py") else name
