"""The processes of a league that is spread: those that learn, and simulators that play evaluations."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus import envs
from ludus.data.nest import Nest
from ludus.errors import LudusError, RemoteError
from ludus.experiment import wiring
from ludus.league.calls import LeagueCaller
from ludus.league.collector import Collector
from ludus.league.config import LeagueRunConfig
from ludus.league.distant_collectors import DistantCollectors
from ludus.league.evaluations import Evaluations
from ludus.league.learning_parts import LearningParts
from ludus.league.oracle import make_seats
from ludus.league.pace import Pace
from ludus.league.pools import open_pool
from ludus.league.training import LeagueTraining
from ludus.learn.policies.policy import Policy
from ludus.workers.register import register
from ludus.workers.remote import Remote
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["LearnerWorker", "MatchWorker"]


class LearnerWorker(Worker):
    """Replica `i` of `n`: the `i`-th part of the learners take turns in it."""

    idle_s = 0.2

    def __init__(
        self,
        server: WorkerServer,
        config: LeagueRunConfig,
        folder: Path,
        league: Remote,
        num_parts: int,
        until: float | None,
        simulators: Remote | None = None,
    ) -> None:
        super().__init__(server)
        self._config = config
        self._folder = folder
        self._league = LeagueCaller(league)
        self._part = int(server.worker_name.rpartition("/")[2])
        self._num_parts = num_parts
        self._until = until
        self._simulators = simulators
        self._training: LeagueTraining | None = None
        self._num_turns = 0

    def _start(self) -> None:
        wiring.use_threads(self._config.training)
        self._training = LeagueTraining(
            self._config,
            self._folder,
            self._league,
            open_pool(self._config, self._folder),
            part=self._part,
            num_parts=self._num_parts,
            owner=self.server.worker_name,
            evaluates=self._config.league.simulators == 0,
            until=self._until,
            distant=None
            if self._simulators is None
            else DistantCollectors(self._simulators, num=self._config.league.simulators),
        )

    def _poll(self) -> int:
        assert self._training is not None
        if self._training.is_done:
            self._training.checkpoint()
            self.finish({"steps": self._training.total_steps})
            return 1
        is_busy = self._training.turn()
        self._num_turns += is_busy
        return int(is_busy)

    def activity(self, method: str) -> str:
        return self._training.doing if method == "poll" and self._training is not None else method

    def progress_mark(self) -> object:
        return super().progress_mark(), self._training.mark if self._training is not None else None

    def has_worked(self, *, is_busy: bool) -> bool:
        return self._num_turns > 0

    def report(self) -> Mapping[str, float]:
        if self._training is None:
            return {}
        return {"step": float(self._training.total_steps), **self._training.metrics()}

    def _exit(self) -> None:
        if self._training is not None:
            self._training.checkpoint()
            self._training.close()


class MatchWorker(Worker):
    """A simulator: it plays for learners, when they ask for it, and in between matches from which nobody learns, up to
    their share of the games, as long as there are players that can meet.
    """

    idle_s = 0.2

    def __init__(self, server: WorkerServer, config: LeagueRunConfig, folder: Path, league: Remote) -> None:
        super().__init__(server)
        self._config = config
        self._folder = folder
        self._league = LeagueCaller(league)
        self._evaluations: Evaluations | None = None
        self._can_play = False
        self._num_evaluated = 0  # games, by evaluations before the present ones
        self._collectors: dict[str, tuple[Policy, Collector]] = {}
        self._num_collected = 0  # games
        self._num_seeds = 0
        self._num_steps = 0  # that learners are given
        self._seconds = {"play": 0.0, "evaluate": 0.0}
        self._pace = Pace()
        server.register_service(self)

    def _start(self) -> None:
        wiring.use_threads(self._config.training)
        training = self._config.training
        self._parts = LearningParts(
            config=training,
            env=envs.spec(training.train.env, **training.env_args),
            league=self._league,
            seats=make_seats(self._config, open_pool(self._config, self._folder)),
            folder=self._folder,
            owner=self.server.worker_name,
            num_starts=self._league.start_process(self.server.worker_name),
            games_per_match=self._config.league.games_per_match,
            search=self._config.league.search,
        )
        self._evaluations = self._new_evaluations()

    def _new_evaluations(self) -> Evaluations:
        return Evaluations(self._parts, seed=self._next_seed())

    def _next_seed(self) -> int:
        self._num_seeds += 1
        return self._parts.seed(self._num_seeds)

    @register
    def collect(self, name: str, weights: Nest, version: int) -> Nest:
        """A `Collected` of this learner, by these weights."""
        began = time.perf_counter()
        found = self._collectors.get(name)
        if found is None:
            policy = Policy(wiring.make_policy_spec(self._config.training, self._parts.env))
            found = policy, Collector(name, policy, self._parts, seed=self._next_seed())
            self._collectors[name] = found
        policy, collector = found
        try:
            policy.load_weights(weights)
            collected = collector.collect(version)
        except LudusError:  # as when it was frozen or removed; a segment that was broken off cannot be gone on with
            del self._collectors[name]
            collector.close()
            raise
        self._num_collected += collected.num_games
        self._num_steps += collected.segment.num_active
        answer = collected.to_nest()
        self._seconds["play"] += time.perf_counter() - began
        self._note_pace()
        return answer

    def _note_pace(self) -> None:
        games = self._num_collected + self._num_evaluations
        self._pace.note({**self._seconds, "steps_per_second": self._num_steps, "games_per_second": games})

    @property
    def _num_evaluations(self) -> int:
        """Games."""
        return self._num_evaluated + (0 if self._evaluations is None else self._evaluations.num_games)

    def _is_enough(self) -> bool:
        """Whether evaluations have had their share of what was played here; of PSRO, whether its mixture lacks none."""
        if self._config.league.rules == "psro":
            return not self._league.num_missing_evaluations()
        if not self._num_collected:
            return False
        share = self._config.league.evaluation_share
        return self._num_evaluations >= share / (1.0 - share) * self._num_collected

    def _poll(self) -> int:
        assert self._evaluations is not None
        self._note_pace()  # also when there is nothing to do
        if self._is_enough():
            return 0
        if not self._can_play:
            self._can_play = self._league.can_evaluate()
            return 0
        began = time.perf_counter()
        try:
            self._evaluations.play()
        except RemoteError:
            self._can_play = self._league.can_evaluate()
            if self._can_play:
                raise
            self._num_evaluated += self._evaluations.num_games
            self._evaluations.close()
            self._evaluations = self._new_evaluations()
        self._seconds["evaluate"] += time.perf_counter() - began
        return 1

    def activity(self, method: str) -> str:
        return "play" if method == "poll" else method

    def has_worked(self, *, is_busy: bool) -> bool:
        is_idle = not self._can_play
        return self._evaluations is not None and (self._evaluations.num_games + self._num_collected > 0 or is_idle)

    def report(self) -> Mapping[str, float]:
        rates = self._pace.rates()
        if not rates:
            return {}
        shares = {f"time/{part}": rates.pop(part) for part in self._seconds}
        idle = max(0.0, 1.0 - sum(shares.values()))
        return {**rates, **shares, "time/idle": idle, "league/evaluation_games": float(self._num_evaluations)}

    def _stats(self) -> Mapping[str, Any]:
        return dict(self.report())

    def _exit(self) -> None:
        if self._evaluations is not None:
            self._evaluations.close()
        for _, collector in self._collectors.values():
            collector.close()
