"""A league that runs: in one process with its trial, or as a program of learners and simulators.

In both its service is worker `league/0` of the trial, which commands and pages call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus import envs, errors, files
from ludus.data.nest import Nest
from ludus.experiment import status, wiring
from ludus.experiment.results import RESULT_FILE
from ludus.launch import Phase
from ludus.league import code_bots, league_stats
from ludus.league.config import LeagueRunConfig
from ludus.league.folder import FOLDER
from ludus.league.imported_networks import ImportedNetworks
from ludus.league.live import champion_of
from ludus.league.match_port import MatchPort
from ludus.league.players import LEARNING, Player, player_of, player_to_nest
from ludus.league.pools import open_pool
from ludus.league.service import LeagueService
from ludus.league.training import LeagueTraining
from ludus.league.workers import LearnerWorker, MatchWorker
from ludus.program.program import Program, Resources, RestartPolicy
from ludus.trial import interrupts
from ludus.trial.counting import Service
from ludus.trial.driver import Stage
from ludus.trial.metrics import LoopMetrics, TrialMetrics
from ludus.trial.trial import EXPERIMENT, Trial
from ludus.workers.register import register

__all__ = ["LEAGUE", "OnProgress", "OnServed", "OnStatus", "TrialLeague", "make_service", "run"]

_LOG = logging.getLogger(__name__)
LEAGUE = FOLDER  # the node
_WORKER = f"{LEAGUE}/0"
_EVALUATED = "league/evaluation_games"
_METRICS_EVERY_S = 1.0
_LOOK_EVERY_S = 0.5
_HANG_S = 300.0
_TERMINATED = "SIGTERM"
_RESTARTS = RestartPolicy(max_restarts=None, backoff_s=0.1, max_backoff_s=2.0)

OnProgress = Callable[[int, dict[str, float]], None]
OnStatus = Callable[[str], None]
OnServed = Callable[[str], None]


def run(
    config: LeagueRunConfig,
    trial: Trial,
    written: TrialMetrics,
    *,
    on_progress: OnProgress | None = None,
    on_status: OnStatus | None = None,
    port: MatchPort | None = None,
    on_served: OnServed | None = None,
) -> dict[str, Any]:
    """Come back with the result, the trial closed. Interrupted, all that learn write a checkpoint first.

    `port`: where games play matches; `on_served` is given its url once it is open.
    """
    one_or_many = _in_one_process if config.league.is_embedded else _in_many
    serve = functools.partial(_serve, port, trial, on_served)
    with trial:
        result = one_or_many(config, trial, _Progress(trial.folder, written, on_progress), on_status, serve)
        files.replace_json(trial.folder / RESULT_FILE, result)
    return result


class _Progress:
    """Metrics, about once a second. A disk that is full does not end a league."""

    def __init__(self, folder: Path, written: TrialMetrics, on_progress: OnProgress | None) -> None:
        self._last = time.monotonic()
        self._written = written
        self._folder = folder
        self._metrics: LoopMetrics | None = None
        self._on_progress = on_progress

    def report(self, step: int, values: Callable[[], Mapping[str, float]]) -> None:
        if time.monotonic() - self._last < _METRICS_EVERY_S:
            return
        self._last = time.monotonic()
        metrics = dict(values())
        if self._metrics is None:  # a league that goes on has steps already, and keeps its lines up to there
            self._metrics = LoopMetrics(self._written, self._folder, resume_step=step, raises=False)
        self._metrics.write(step, metrics)
        if self._on_progress is not None:
            self._on_progress(step, metrics)


def _in_one_process(
    config: LeagueRunConfig,
    trial: Trial,
    progress: _Progress,
    on_status: OnStatus | None,
    serve: Callable[[], None],
) -> dict[str, Any]:
    wiring.use_threads(config.training)
    driver = trial.driver
    service = make_service(config, trial.folder)
    counted = Service(prefix=LEAGUE, worker=_WORKER, counts=league_stats.counts, stats=service.stats)
    driver.host(service, LEAGUE, counted=counted)
    serve()
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(contextlib.closing(open_pool(config, trial.folder)))
        training = stack.enter_context(LeagueTraining(config, trial.folder, service, pool, until=_until(config)))
        if on_status is not None:
            stack.enter_context(status.StatusReporter(lambda: (training.total_steps, training.doing), on_status))
        with (
            interrupts.deferred_to(lambda: driver.ask_stop("interrupted")),
            interrupts.deferred_to(lambda: driver.ask_stop(_TERMINATED), signal.SIGTERM),
        ):
            while not training.is_done and not driver.stop_asked.is_set():
                if not training.turn():
                    _LOG.warning("nobody in this league learns: `ludus league add` a player, or end it with Ctrl-C")
                    while not training.turn() and not training.is_done and not driver.stop_asked.wait(_LOOK_EVERY_S):
                        pass
                progress.report(training.total_steps, training.metrics)
            training.checkpoint()
        if driver.stop_asked.is_set():
            raise SystemExit(128 + signal.SIGTERM) if driver.stop_reason == _TERMINATED else KeyboardInterrupt
        return _result(config, trial.folder, service.standings(), service.champion())


def _in_many(
    config: LeagueRunConfig,
    trial: Trial,
    progress: _Progress,
    on_status: OnStatus | None,
    serve: Callable[[], None],
) -> dict[str, Any]:
    driver = trial.driver
    driver.interrupts.install()
    counted = [Service(prefix=LEAGUE, worker=_WORKER, counts=league_stats.counts)]
    running = trial.run(_program(config, trial.folder), stage=Stage.TRAINERS, counted=counted)
    league = trial.remote(LEAGUE)
    serve()
    step = 0
    while not running.wait(_LOOK_EVERY_S):
        records = {record.name: record for record in running.workers()}
        learners = [record for name, record in records.items() if name.startswith("learner/")]
        step = max([step, *(int(record.report.get("step", 0)) for record in learners)])
        reports = [record.report for record in learners]
        simulators = [record.report for name, record in records.items() if name.startswith("simulator/")]
        if any("step" in report for report in reports):  # before that nobody has said how far the league is
            progress.report(step, functools.partial(metrics_of, reports, simulators))
        busy = next((record for record in learners if record.busy_s >= status.BUSY_AFTER_S), None)
        if busy is not None and on_status is not None:
            on_status(f"{busy.name} {busy.activity}")
        if all(record.status is Phase.DONE for record in learners):
            break  # simulators do not end by themselves
        if driver.stop_asked.is_set():
            raise KeyboardInterrupt
    return _result(config, trial.folder, league.standings(), league.champion())


def _until(config: LeagueRunConfig) -> float | None:
    """When it is over, by `time.time`."""
    minutes = config.league.minutes
    return None if minutes is None else time.time() + 60.0 * minutes


def _serve(port: MatchPort | None, trial: Trial, on_served: OnServed | None) -> None:
    """A port where games play matches, if the league is to have one."""
    if port is None:
        return
    from ludus.league.match_actor import MatchActor
    from ludus.trial.named.actor import RemoteActor  # brings what only gateways need

    actor = RemoteActor(**port.arguments())
    actor.serve(MatchActor, str(trial.folder))
    if on_served is not None:
        on_served(actor.url)


def _program(config: LeagueRunConfig, folder: Path) -> Program:
    num_learners = max(1, config.league.learners)
    program = Program(EXPERIMENT)
    league = program.add(LEAGUE, TrialLeague, config, folder, restarts=_RESTARTS)
    cpus = Resources(cpus=config.training.train.threads or 1)
    simulators = []
    if config.league.simulators:
        simulators.append(
            program.add(
                "simulator",
                MatchWorker,
                config,
                folder,
                league,
                replicas=config.league.simulators,
                restarts=RestartPolicy(max_restarts=None, backoff_s=0.1, max_backoff_s=2.0, max_busy_s=_HANG_S),
            )
        )
    program.add(
        "learner",
        LearnerWorker,
        config,
        folder,
        league,
        num_learners,
        _until(config),
        *simulators,
        replicas=num_learners,
        resources=cpus,
        restarts=RestartPolicy(max_restarts=30, window_s=600.0, backoff_s=0.1, max_backoff_s=2.0, max_busy_s=_HANG_S),
    )
    return program


class TrialLeague(LeagueService):
    """The league of a trial, as a worker of it: its players are checked against its game and its pool.

    Of a league that goes on, those that its configuration names and that never were in it join it.
    """

    def __init__(self, config: LeagueRunConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        env = envs.spec(config.game, **config.training.env_args)
        super().__init__(
            folder / FOLDER,
            config.settings(len(env.agents)),
            config.players(),
            seed=config.training.train.seed,
            game=config.game,
        )
        for player in config.players():
            if not self.league.has_had(player.name):
                self._add(player)

    @register
    def add_player(self, player: Nest) -> None:
        """`LeagueService.add_player` of one that can play here. A learner's model is its own: by default, its name."""
        new = player_of(player)
        if new.role == "bot" and new.model is not None:
            code_bots.allow(self._folder / FOLDER, new.model)
        self._add(new)

    def _add(self, new: Player) -> None:
        if self.league.has_had(new.name):
            super().add_player(player_to_nest(new))  # which refuses it
        if new.is_learning:
            new = dataclasses.replace(new, model=new.model or new.name)
            owner = next((each["name"] for each in self.players() if each["model"] == new.model), None)
            if owner is not None:
                raise errors.ConfigError(
                    f"the model {new.model!r} of {new.name!r} is that of {owner!r} already: a learner has a model of "
                    "its own, and begins from the newest version of it if there is one. Nothing was added"
                )
            if str(new.model) in ImportedNetworks(self._folder):
                raise errors.ConfigError(
                    f"the model {new.model!r} of {new.name!r} was imported from another trial, and may have another "
                    "network than those that learn here. Give it another with --model NAME; nothing was added"
                )
        if new.role != "human":
            self._expect_playable(new)
        super().add_player(player_to_nest(new))

    @register
    def snapshot(self, name: str, version: int | None = None) -> Nest:
        """`LeagueService.snapshot`, of a version that is there."""
        if version is not None:
            found = player_of(next((each for each in self.players() if each["name"] == name), {"name": name}))
            self._expect_playable(dataclasses.replace(found, version=version))
        return super().snapshot(name, version)

    def _expect_playable(self, player: Player) -> None:
        """Raises `ConfigError` or `DataError`: a player that cannot play would end matches when they begin."""
        from ludus.league.oracle import make_seats  # brings torch

        with contextlib.closing(open_pool(self._config, self._folder)) as pool:
            is_newest = player.role in ("snapshot", "frozen") and player.model is not None and player.version is None
            if is_newest and pool.latest(str(player.model)) is None:
                raise errors.DataError(
                    f"the model {player.model!r} of {player.name!r} has no version here; nothing was added"
                )
            make_seats(self._config, pool).open(player)


def make_service(config: LeagueRunConfig, folder: Path) -> LeagueService:
    """The league of a trial, new or as it was. Only one process keeps it."""
    return TrialLeague(config, folder)


def metrics_of(
    learners: Sequence[Mapping[str, float]], simulators: Sequence[Mapping[str, float]] = ()
) -> dict[str, float]:
    """Of the reports of all processes that learn, and of those that play for them."""
    values = _joined(learners)
    values.pop("step", None)
    played = _joined(simulators)
    if _EVALUATED in values:
        values[_EVALUATED] += played.get(_EVALUATED, 0.0)
    played.pop(_EVALUATED, None)
    return values | {f"simulator/{name}": value for name, value in played.items()}


def _joined(reports: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Rates and games are added, shares of time and lags are means; what is a learner's own is in one report."""
    by_name: dict[str, list[float]] = {}
    for report in reports:
        for name, value in report.items():
            by_name.setdefault(name, []).append(value)
    return {name: _join(name, values) for name, values in by_name.items()}


def _join(name: str, values: list[float]) -> float:
    if name == _EVALUATED or name.endswith("_per_second"):
        return sum(values)
    if name == "lag/max":
        return max(values)
    return sum(values) / len(values) if name.startswith(("time/", "lag/")) else values[-1]


def _result(config: LeagueRunConfig, folder: Path, standings: list[Any], promoted: str | None) -> dict[str, Any]:
    """What a league comes back with: the strongest first."""
    champion = champion_of(standings, promoted)
    found = [
        {**each["player"], "mean": each["mean"], "std": each["std"], "win_rate": each["win_rate"]} for each in standings
    ]
    return {
        "trial": str(folder),
        "game": config.game,
        "algorithm": config.training.train.algorithm,
        "steps": sum(each["step"] for each in found if each["role"] in (*LEARNING, "frozen")),
        "standings": found,
        "champion": None if champion is None else champion["name"],
    }
