"""The loop of a league: learners take turns; after each turn their new version is published, and the league advances.

    with LeagueTraining(config, folder, league, pool) as training:
        while not training.is_done:
            training.turn()

What is where when it is killed: a version is in the pool before the league has heard of it, and a checkpoint is
written now and then. A learner that is started again goes on from its last checkpoint, with the steps that the league
has of it. Players come and go in between: a learner that is frozen or removed in the middle of its turn ends it there.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.errors import CheckpointError, ConfigError, DataError, LudusError, RemoteError
from ludus.league.config import LeagueRunConfig
from ludus.league.distant_collectors import DistantCollectors
from ludus.league.oracle import PlaysEvaluations, TrainingPlayer, make_oracle
from ludus.league.pace import Pace
from ludus.league.players import LEARNING, Player, player_of
from ludus.league.psro.exact_oracle import MixtureCalls
from ludus.league.seats import ReadPool

__all__ = ["LeagueTraining", "Pool", "TrainedLeague"]

_LOG = logging.getLogger(__name__)
_FEW_STEPS = 8  # of each env between two looks at what the mixture of PSRO lacks
_KEPT = 4  # versions of a learner that nobody has taken a snapshot of
_LAG_WINDOW = 100  # updates


class Pool(ReadPool, Protocol):
    """A model pool."""

    def put(self, model: str, weights: Mapping[str, NDArray[Any]], *, number: int) -> Any: ...

    def remove(self, model: str, number: int) -> None: ...

    def numbers(self, model: str) -> list[int]: ...


class TrainedLeague(MixtureCalls, Protocol):
    """What a learner asks of a league."""

    def next_learner(self, part: int = 0, num_parts: int = 1) -> Nest: ...

    def advance(self, name: str, step: int, version: int | None = None) -> Nest: ...

    def start_process(self, owner: str) -> int: ...

    def can_evaluate(self) -> bool: ...

    def statistics(self) -> dict[str, Any]: ...


class LeagueTraining:
    """One process that learns: of all learners, those of its `part`. `owner` is its name in the league's books.

    It is done when all learners together have made the steps of the configuration or, if that is sooner, at the
    time `until` (of `time.time`: the same for all processes, also for one that was started again).
    """

    def __init__(
        self,
        config: LeagueRunConfig,
        folder: Path,
        league: TrainedLeague,
        pool: Pool,
        *,
        part: int = 0,
        num_parts: int = 1,
        owner: str = "learner/0",
        evaluates: bool = True,
        until: float | None = None,
        distant: DistantCollectors | None = None,
    ) -> None:
        self._config = config
        self._until = until
        self._league = league
        self._pool = pool
        self._part, self._num_parts = part, num_parts
        num_starts = league.start_process(owner)
        self._oracle = make_oracle(config, folder, league, pool, owner=owner, num_starts=num_starts, distant=distant)
        self._learners: dict[str, TrainingPlayer] = {}
        self._is_psro = config.league.rules == "psro"
        self._evaluates = evaluates and (self._is_psro or config.league.evaluation_share > 0.0)
        self._evaluations: PlaysEvaluations | None = None
        self._num_evaluated = 0  # games, by those before the present one
        self._evaluated_s = 0.0
        self._num_learnt_from = 0  # games of learners that are not here any more
        self._warned: set[str] = set()
        self._checkpointed = time.monotonic()
        self._num_steps_here = 0
        self._seconds = {"publish": 0.0}  # by part of a turn, but for evaluations
        self._pace = Pace()
        self._lags: collections.deque[tuple[float, float]] = collections.deque(maxlen=_LAG_WINDOW)
        self.doing = ""
        self.total_steps = int(league.statistics()["num_steps"])  # of all learners of the league

    @property
    def is_done(self) -> bool:
        return self._is_late or self.total_steps >= self._config.training.train.steps

    @property
    def _is_late(self) -> bool:
        return self._until is not None and time.time() >= self._until

    @property
    def _progress(self) -> float:
        """The part that is over, by steps or, if that is more, of the minutes that this run has."""
        by_steps = self.total_steps / self._config.training.train.steps
        by_time = 0.0
        if self._until is not None and self._config.league.minutes:
            by_time = 1.0 - (self._until - time.time()) / (60.0 * self._config.league.minutes)
        return min(1.0, max(0.0, by_steps, by_time))

    @property
    def mark(self) -> object:
        """It changes as long as something is done. Safe from any thread."""
        return self._num_steps_here, self.num_evaluated

    def turn(self) -> bool:
        """Some updates of the one whose turn it is. False if nobody learns here, at present."""
        found = self._league.next_learner(self._part, self._num_parts)
        if found is None:
            self.total_steps = int(self._league.statistics()["num_steps"])
            self._note_pace()
            return False
        player = player_of(found)
        self.doing = f"train {player.name}"
        try:
            self._train(player)
        except LudusError:
            if self._is_learning(player.name):
                raise
            _LOG.info("%s was frozen or removed, and learns no more", player.name)
            self._drop(player.name)
        self._evaluate()
        self._note_pace()
        if time.monotonic() - self._checkpointed >= self._config.training.train.checkpoint_seconds:
            self.checkpoint()
        self.doing = ""
        return True

    def _train(self, player: Player) -> None:
        learner = self._learner(player)
        before = dict(learner.seconds)
        for _ in range(self._oracle.turn_updates):
            num_steps = learner.update(progress=self._progress)
            self._num_steps_here += num_steps
            if num_steps and learner.lag is not None:
                self._lags.append(learner.lag)
        for part, seconds in learner.seconds.items():
            self._seconds[part] = self._seconds.get(part, 0.0) + seconds - before.get(part, 0.0)
        began = time.perf_counter()
        self._publish(learner, player.model or player.name)
        self._seconds["publish"] += time.perf_counter() - began

    def _is_learning(self, name: str) -> bool:
        return any(each["name"] == name and each["role"] in LEARNING for each in self._league.players())

    def _drop(self, name: str) -> None:
        """It has learnt enough: its envs are closed, its matches aborted."""
        learner = self._learners.pop(name, None)
        if learner is not None:
            self._num_learnt_from += learner.num_games
            learner.abandon()
            learner.close()

    def _learner(self, player: Player) -> TrainingPlayer:
        learner = self._learners.get(player.name)
        if learner is None:
            learner = self._oracle.learner(player.name)
            if not learner.restore():
                self._begin(learner, player)
            learner.num_steps = max(learner.num_steps, player.step)
            self._reset(learner, player.num_resets)  # it may have been killed before it was
            self._learners[player.name] = learner
        return learner

    def _begin(self, learner: TrainingPlayer, player: Player) -> None:
        """Without a checkpoint: from the newest version in the pool, if one is there."""
        model = player.model or player.name
        version = self._pool.latest(model) if player.version is None else player.version
        if version is not None:
            learner.load_weights(self._pool.get(model, version)[1])
            _LOG.info("%s has no checkpoint yet: it goes on from version %d of its model", player.name, version)
        elif player.step:
            _LOG.warning(
                "%s has neither a checkpoint nor a version, though it has learnt %d steps: it begins again, and counts "
                "on from there",
                player.name,
                player.step,
            )

    def _publish(self, learner: TrainingPlayer, model: str) -> None:
        """The new version first, then the league: a snapshot is of a version that is there."""
        version = (self._pool.latest(model) or 0) + 1
        self._pool.put(model, learner.weights(), number=version)
        advance = self._league.advance(learner.name, learner.num_steps, version)
        self.total_steps = int(advance["total_steps"])
        if advance["snapshot"] is not None:
            _LOG.info("%s: snapshot %s at step %d", learner.name, advance["snapshot"]["name"], learner.num_steps)
        self._retain(model)
        self._reset(learner, int(advance["num_resets"]))

    def _reset(self, learner: TrainingPlayer, num_resets: int) -> None:
        """If the league has had it begin again more often than it has."""
        if num_resets > learner.num_resets:
            learner.begin_again(num_resets)
            learner.checkpoint()

    def _retain(self, model: str) -> None:
        """Only the newest versions stay in the pool, and those that are somebody's."""
        numbers = self._pool.numbers(model)[:-_KEPT]
        if not numbers:
            return
        named = {each["version"] for each in self._league.players() if each["model"] == model}
        for number in numbers:
            if number not in named:
                self._pool.remove(model, number)

    def _evaluate(self) -> None:
        """Its share of the games, as far as it is behind. What cannot be evaluated does not stop those that learn."""
        if not self._evaluates:
            return
        if self._is_psro:
            while not self._is_late and self._league.num_missing_evaluations():
                if not self._play_evaluations(_FEW_STEPS):
                    return  # tried again after the next turn
            return
        share = self._config.league.evaluation_share
        played = self._num_learnt_from + sum(learner.num_games for learner in self._learners.values())
        if self.num_evaluated >= share / (1.0 - share) * played or not self._league.can_evaluate():
            return
        self._play_evaluations()

    def _play_evaluations(self, num_steps: int | None = None) -> bool:
        """False if they were broken off."""
        self.doing = "evaluate"
        try:
            if self._evaluations is None:
                self._evaluations = self._oracle.evaluations()
            self._evaluations.play() if num_steps is None else self._evaluations.play(num_steps)
        except (ConfigError, DataError, RemoteError) as error:
            if (said := str(error)) not in self._warned:
                self._warned.add(said)
                _LOG.warning("evaluations were broken off: %s. The league goes on", said)
            self._end_evaluations()
            return False
        return True

    def _end_evaluations(self) -> None:
        """Others begin when they are needed."""
        ended, self._evaluations = self._evaluations, None
        if ended is not None:
            self._num_evaluated += ended.num_games
            self._evaluated_s += ended.seconds
            with contextlib.suppress(LudusError):  # then they are aborted in time
                ended.abandon()
            ended.close()

    @property
    def num_evaluated(self) -> int:
        """Games that were evaluations."""
        return self._num_evaluated + (0 if self._evaluations is None else self._evaluations.num_games)

    # --- what is known

    def _note_pace(self) -> None:
        evaluated_s = self._evaluated_s + (0.0 if self._evaluations is None else self._evaluations.seconds)
        self._pace.note({**self._seconds, "evaluate": evaluated_s, "steps_per_second": float(self._num_steps_here)})

    def metrics(self) -> dict[str, float]:
        """By learner what was measured last; of all together, where time goes and how old what they learn from is."""
        values: dict[str, float] = {}
        for name, learner in list(self._learners.items()):
            values |= {f"train/{metric}/{name}": value for metric, value in learner.metrics.items()}
            values[f"league/steps/{name}"] = float(learner.num_steps)
            values[f"league/games/{name}"] = float(learner.num_games)
            if (mean := learner.mean_return) is not None:
                values[f"episode/return/{name}"] = mean
                values[f"episode/length/{name}"] = float(learner.mean_length or 0.0)
        values |= {f"time/{name}": rate for name, rate in self._pace.rates().items()}
        if lags := list(self._lags):
            values["lag/mean"] = sum(mean for mean, _ in lags) / len(lags)
            values["lag/max"] = max(most for _, most in lags)
        values["league/evaluation_games"] = float(self.num_evaluated)
        return values

    # --- checkpoints

    def checkpoint(self) -> None:
        """Of all that learn here. One that cannot be written does not end the run."""
        self.doing = "checkpoint"
        learning = {each["name"] for each in self._league.players() if each["role"] in LEARNING}
        for name in [name for name in self._learners if name not in learning]:
            self._drop(name)
        for learner in self._learners.values():
            try:
                learner.checkpoint()
            except CheckpointError as error:
                _LOG.warning("%s The league goes on.", error)
        self._checkpointed = time.monotonic()

    def close(self) -> None:
        for learner in self._learners.values():
            learner.close()
        if self._evaluations is not None:
            self._evaluations.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
