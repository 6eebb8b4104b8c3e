"""A training run in one process: turns of a flow, with metrics, checkpoints and an evaluation at the end.

with Training(config, folder, flow, learner) as training:
    training.restore()                  # the newest valid checkpoint, if there is one
    while not training.is_done:
        training.turn()
    result = training.finish()
"""

from __future__ import annotations

import collections
import logging
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from ludus import errors, files
from ludus.data import nest as nests
from ludus.data.digest import digest
from ludus.data.nest import Nest
from ludus.envs.registry import clips_rewards
from ludus.experiment import ranked
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.config import Config
from ludus.experiment.evaluation import longest_episode
from ludus.experiment.final_evaluation import NOT_EVALUATED, EarlierPolicy, final_evaluation
from ludus.experiment.flows.report import Report
from ludus.experiment.game_evaluation import GameEvaluation
from ludus.experiment.goal import Goal
from ludus.experiment.saved_config import write_trial
from ludus.learn.algorithms.replay_learner import AnyLearner
from ludus.telemetry.metrics_file import MetricsWriter

__all__ = ["Flow", "LoopWriter", "Training"]

_LOG = logging.getLogger(__name__)
_METRICS_EVERY_S = 0.5
_WINDOW = 100  # episodes in the mean that is shown
_MOST_BARREN = 100


class Flow(Protocol):
    doing: str  # the part of a turn that is under way, for status lines

    def turn(self, progress: float) -> Report | None:
        """One update; `None` if there was nothing to learn from yet."""
        ...

    def save(self) -> Nest: ...

    def restore(self, saved: Nest) -> bool: ...

    def close(self) -> None: ...


class LoopWriter(Protocol):
    """Where the metrics of a loop go. Made with the folder, `resume_step` and `age_s`, as `MetricsWriter` is."""

    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Training:
    """Owns its flow and closes it. `began` is when the run was asked for, by `time.time`.

    With `ranks`, each of them has one; what only time can tell, the first decides for all. `agents` are those of each
    env; their rows are side by side. Games are evaluated in turns, when all steps are done: they may keep a run
    waiting, and it can be stopped during that. `open_metrics`: where metrics go. `on_close`: called by `close`.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        flow: Flow,
        learner: AnyLearner,
        *,
        began: float | None = None,
        on_progress: Callable[[int, dict[str, float]], None] | None = None,
        ranks: Any = None,
        agents: tuple[str, ...] = ("agent",),
        game_evaluation: GameEvaluation | None = None,
        open_metrics: Callable[..., LoopWriter] = MetricsWriter,
        on_close: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.config = config
        self.folder = folder
        self.learner = learner
        self.flow = flow
        self.num_steps = 0
        self._on_progress = on_progress
        self._began = time.time() if began is None else began
        self._ranks = ranks
        self._is_first = ranks is None or ranks.rank == 0  # of several ranks, the one that keeps the books
        name = "checkpoints" if self._is_first else f"checkpoints-{ranks.rank}"
        # killed while they write, some ranks have the newest and some only the one before: that must still be there
        keep = config.train.keep_checkpoints if ranks is None else max(2, config.train.keep_checkpoints)
        self._store = CheckpointStore(folder / name, keep=keep)
        self.shown: tuple[int, dict[str, float]] = (0, {})
        self._open_metrics = open_metrics
        self._on_close = on_close
        self._metrics: LoopWriter | None = None
        self._agents = agents
        self._episodes: collections.deque[tuple[float, int, int]] = collections.deque(maxlen=_WINDOW)  # … and the agent
        self._num_episodes = 0
        self._seconds_before = 0.0  # of earlier runs of this trial
        self._started = time.perf_counter()
        self._first_update_s: float | None = None
        self._steady: tuple[float, int] | None = None
        self._last: tuple[float, int] = (self._started, 0)
        self._last_checkpoint = self._started
        self._last_metrics = self._started
        self._parts: collections.Counter[str] = collections.Counter()
        self._parts_total: collections.Counter[str] = collections.Counter()
        self._is_good_enough = False
        self._to_return_s: float | None = None
        self._is_asked_to_stop = False
        self.is_stopped = False  # before its end, with a checkpoint to go on from
        self._num_barren = 0  # segments in a row that brought no step
        wanted = config.train.stop_at_return
        self._goal = Goal(wanted, config) if wanted is not None and self._is_first else None
        self._earlier = EarlierPolicy(0, learner.policy.weights()) if self._is_first and len(agents) > 1 else None
        self._steps_reported = 0
        self._resumed_at: int | None = None
        self._has_config = (folder / "config.json").exists()  # from here on, unless somebody deletes the folder
        self._save_errors: list[str] = []
        self._is_last_kept = False
        self._game_evaluation = game_evaluation
        self._evaluated: dict[str, Any] | None = None  # on games
        self._learnt_s: float | None = None  # seconds until then; games may keep the evaluation waiting
        self._metrics_failing = self._checkpoints_failing = False
        self._doing = ""  # what is not a part of a turn: a checkpoint, the evaluation

    # --- the loop

    @property
    def doing(self) -> str:
        """What is under way, for status lines; safe from any thread."""
        return self._doing or self.flow.doing

    @property
    def is_done(self) -> bool:
        return self._has_learnt and (self._game_evaluation is None or self._evaluated is not None)

    @property
    def _has_learnt(self) -> bool:
        return self._is_good_enough or self.num_steps >= self.config.train.steps

    def turn(self) -> bool:
        """One update, and what is due after it; false if there was nothing to learn from yet."""
        if self._has_learnt and self._game_evaluation is not None:
            return self._evaluate_games(self._game_evaluation)
        report = self.flow.turn(self.num_steps / self.config.train.steps)
        if report is None:
            is_asked = self._is_asked_to_stop
            if self._ranks is not None:  # on games, ranks wait together
                is_asked = self.config.is_game and bool(self._ranks.sum_numbers([is_asked])[0])
            if is_asked:
                self._keep_and_stop()
            return False
        self._expect_steps(report)
        now = time.perf_counter()
        if not report.metrics:
            pass  # nothing was learnt in this turn: replay is being filled
        elif self._first_update_s is None:
            self._first_update_s = time.time() - self._began
        elif self._steady is None:
            self._steady = (now, self.num_steps + report.num_steps)
        halfway = self.config.train.steps / 2
        if self._earlier is not None and self.num_steps < halfway <= self.num_steps + report.num_steps:
            self._earlier = EarlierPolicy(self.num_steps + report.num_steps, self.learner.policy.weights())
        self.num_steps += report.num_steps
        self._last = (now, self.num_steps)
        num_agents = len(self._agents)
        self._episodes.extend((one.total, one.length, one.row % num_agents) for one in report.episodes)
        self._num_episodes += len(report.episodes)
        self._parts.update(report.seconds)
        if now - self._last_metrics >= _METRICS_EVERY_S or self._has_learnt:
            self._tell(report, now)
        is_good = self._goal is not None and self._ask(self._goal)
        is_due = self._is_first and now - self._last_checkpoint >= self.config.train.checkpoint_seconds
        is_asked = self._is_asked_to_stop
        if self._ranks is not None:
            is_good, is_due, is_asked = map(bool, self._ranks.sum_numbers([is_good, is_due, is_asked]))
        if is_good and not self._is_good_enough:
            self._is_good_enough = True
            self._to_return_s = time.time() - self._began
        if is_asked and not self._has_learnt:
            self._keep_and_stop()
        elif is_due and not self._has_learnt:
            self._try_to_checkpoint()
        return True

    def _evaluate_games(self, evaluation: GameEvaluation) -> bool:
        """One look at what they play. The last checkpoint is written first: from here on nothing is learnt."""
        if not self._is_last_kept:
            self.keep_last()
            self._learnt_s = self._seconds()
        self._doing = evaluation.doing
        if self._is_asked_to_stop:
            self.is_stopped = True
        if not self.is_stopped:
            lengths = [length for _, length, _ in self._episodes]
            self._evaluated = evaluation.turn(longest_episode(self.config, lengths))
        return True

    def _ask(self, goal: Goal) -> bool:
        self._doing = "evaluate"
        try:
            return goal.is_reached(
                self.learner.policy,
                [total for total, _, _ in self._episodes],
                [length for _, length, _ in self._episodes],
                self.num_steps,
                seed=self.learner.version,
            )
        finally:
            self._doing = ""

    def ask_stop(self) -> None:
        """Write a checkpoint after the present turn, on all ranks, and be stopped. Safe in a signal handler."""
        self._is_asked_to_stop = True

    def _keep_and_stop(self) -> None:
        if self.num_steps > (self._resumed_at or 0):
            self.checkpoint()
        self.is_stopped = True

    def _expect_steps(self, report: Report) -> None:
        if not report.is_collected:
            return
        self._num_barren = 0 if report.num_steps else self._num_barren + 1
        if self._num_barren >= _MOST_BARREN:
            raise errors.TrainingError(
                f"the last {_MOST_BARREN} segments had nothing to learn from: the envs raise in each of them, and "
                f"what they did is void. The logs in {self.folder} say what they raise."
            )

    def _tell(self, report: Report, now: float) -> None:
        elapsed = max(now - self._last_metrics, 1e-9)
        values = {f"train/{name}": value for name, value in report.metrics.items()}
        values |= {f"count/{name}": float(value) for name, value in report.counts.items()}
        total = sum(self._parts.values()) or 1.0
        values |= {f"time/{name}": seconds / total for name, seconds in self._parts.items()}
        values["time/steps_per_second"] = (self.num_steps - self._steps_reported) / elapsed
        values["train/version"] = self.learner.version
        values["lag/mean"] = report.lag
        values["lag/max"] = report.max_lag
        if self._episodes:
            values["episode/return"] = float(np.mean([total for total, _, _ in self._episodes]))
            values["episode/length"] = float(np.mean([length for _, length, _ in self._episodes]))
            values |= {f"episode/return/{agent}": value for agent, value in self._returns_by_agent().items()}
            values["episode/count"] = self._num_episodes
        self.shown = (self.num_steps, values)
        self._try_to_write(values)
        if self._on_progress is not None:
            self._on_progress(self.num_steps, values)
        self._parts_total.update(self._parts)
        self._parts.clear()
        self._last_metrics = now
        self._steps_reported = self.num_steps

    def _write(self, values: dict[str, float]) -> None:
        if not self._is_first:
            return
        if self._metrics is None:
            self._metrics = self._open_metrics(
                self.folder, resume_step=self._resumed_at, age_s=time.perf_counter() - self._started
            )
        self._metrics.write(self.num_steps, values)

    def _try_to_write(self, values: dict[str, float]) -> None:
        """Metrics that cannot be written, because the disk is full, do not end a run: the next ones may be."""
        try:
            self._write(values)
        except OSError as error:
            if not self._metrics_failing:
                _LOG.warning(
                    "metrics of step %d could not be written to %s: %s. Training goes on; metrics are missing until "
                    "they can be written again.",
                    self.num_steps,
                    self.folder,
                    error,
                )
            self._metrics_failing = True
            return
        if self._metrics_failing:
            _LOG.warning("metrics are written again, from step %d on", self.num_steps)
        self._metrics_failing = False

    # --- checkpoints

    def _try_to_checkpoint(self) -> None:
        """A checkpoint that cannot be written does not end a run: the next is tried after the usual time."""
        self._doing = "checkpoint"
        try:
            self.checkpoint()
        except errors.CheckpointError as error:
            self._last_checkpoint = time.perf_counter()
            if not self._checkpoints_failing:
                _LOG.warning(
                    "%s Training goes on; the next one is tried in %g s.", error, self.config.train.checkpoint_seconds
                )
            self._checkpoints_failing = True
            return
        finally:
            self._doing = ""
        if self._checkpoints_failing:
            _LOG.warning("checkpoints are written again, from step %d on", self.num_steps)
        self._checkpoints_failing = False

    def checkpoint(self) -> Path:
        """Write everything that is needed to go on from here. Raises `TrainingError` if the weights are not finite."""
        self._expect_folder()
        learner = self.learner.save()
        self._expect_finite(learner["weights"])
        content = {
            "weights": learner.pop("weights"),
            "learner": learner,
            "flow": self.flow.save(),
            "num_steps": self.num_steps,
            "num_episodes": self._num_episodes,
            "episodes": [list(episode) for episode in self._episodes],
            "seconds": self._seconds(),
            "goal": self._goal.save() if self._goal is not None else None,
            "earlier": None
            if self._earlier is None
            else {"step": self._earlier.step, "weights": dict(self._earlier.weights)},
        }
        path = self._store.save(self.num_steps, content)
        self._last_checkpoint = time.perf_counter()
        return path

    def _expect_folder(self) -> None:
        """If the trial's folder was deleted, begin it again: without its config no checkpoint in it is of use."""
        if not self._is_first or not self._has_config or (self.folder / "config.json").exists():
            return
        error = (
            f"{self.folder} was deleted while it trained. What it had before step {self.num_steps} (metrics, logs, "
            "earlier checkpoints) is lost; what comes from here on is written there again."
        )
        self._save_errors.append(error)
        _LOG.error("%s", error)
        if self._metrics is not None:  # it writes to a file that has no name any more
            self._metrics.close()
            self._metrics = None
        try:
            files.make_folder(self.folder)
            write_trial(self.folder, self.config)
        except OSError as failed:
            raise errors.CheckpointError(f"{self.folder} was deleted and cannot be made again: {failed}.") from failed

    def _expect_finite(self, weights: Nest) -> None:
        """A gradient that is not finite is noticed by the loss of the next update only."""
        if all(bool(np.isfinite(leaf).all()) for leaf in nests.leaves(weights)):
            return
        raise errors.TrainingError(
            f"weights are not finite after update {self.learner.version}: training has diverged, and no checkpoint was "
            "written. A smaller learning_rate or max_grad_norm, or a reward_scale below 1, may help; the last "
            "checkpoint is valid."
        )

    def restore(self) -> bool:
        """Go on from the newest valid checkpoint, of several ranks the newest that all have; false if there is none.

        Raises `CheckpointError` if there are checkpoints and none can be used: a run never starts again over them.
        """
        if self._ranks is not None:
            found = ranked.load_together(self._store, self._ranks)
        else:
            found = None if self._store.is_empty else self._store.load()
        if found is None:
            return False
        step, content = found
        self.learner.restore({**content["learner"], "weights": content["weights"]})
        exact = self.flow.restore(content["flow"])
        self.num_steps = content["num_steps"]
        self._num_episodes = content["num_episodes"]
        # before returns were kept by agent, an episode had two numbers
        self._episodes.extend(
            (total, length, *agent) if agent else (total, length, 0) for total, length, *agent in content["episodes"]
        )
        self._seconds_before = content["seconds"]
        if self._goal is not None and content.get("goal") is not None:
            self._goal.restore(content["goal"])
        if self._earlier is not None and content.get("earlier") is not None:
            self._earlier = EarlierPolicy(content["earlier"]["step"], content["earlier"]["weights"])
        self._steps_reported = self.num_steps
        self._resumed_at = step
        if not exact:
            _LOG.warning(
                "%s goes on from step %d with new episodes: its envs cannot be put back where they were. "
                "The result will differ from that of a run that was not stopped.",
                self.folder.name,
                step,
            )
        return True

    def stop(self) -> None:
        """The run is stopped before its end. One rank alone can write a checkpoint; several have their last one."""
        if self._ranks is None and self.num_steps > (self._resumed_at or 0):
            self.checkpoint()

    # --- the end

    def keep_last(self) -> None:
        """Write the last checkpoint. A run that was asked to stop by then is stopped: `finish` is left to a resume.

        One that cannot be written does not cost the result: `save_error` in it will say so.
        """
        self._is_last_kept = True
        try:
            self.checkpoint()
        except errors.CheckpointError as error:
            if not self._is_first:
                raise
            _LOG.error("%s The run ends without it.", error)
            self._save_errors.append(str(error))
            return
        self.is_stopped = self._is_asked_to_stop

    def finish(self) -> dict[str, Any]:
        """The last checkpoint if `keep_last` was not called, the evaluation, and what `result.json` says.

        What cannot be written does not cost the result: `save_error` in it says what is missing.
        """
        if not self._is_last_kept:
            self.keep_last()
        if not self._is_first:
            return {}
        seconds = self._seconds() if self._learnt_s is None else self._learnt_s
        train = self.config.train
        result: dict[str, Any] = {
            "algorithm": train.algorithm,
            "env": train.env,
            "seed": train.seed,
            "steps": self.num_steps,
            "seconds": seconds,
            "steps_per_second": self.num_steps / max(seconds, 1e-9),
            "train_steps_per_second": self._steady_rate(),
            "seconds_to_first_update": self._first_update_s,
            "seconds_to_return": self._to_return_s,
            **self._training_return(),
            **NOT_EVALUATED,
            "explores": self.learner.policy.exploration is not None,
            "weights_hash": digest(self.learner.policy.weights()),
            "trial": str(self.folder),
        }
        if train.eval_episodes:
            result |= self._evaluate()
        total = sum(self._parts_total.values()) or 1.0
        result["time"] = {name: round(part / total, 4) for name, part in self._parts_total.items()}
        if self._save_errors:
            result["save_error"] = " ".join(self._save_errors)
        try:
            files.replace_json(self.folder / "result.json", result)
        except OSError as error:
            result["save_error"] = " ".join([*self._save_errors, f"result.json could not be written: {error}."])
        return result

    def _evaluate(self) -> dict[str, Any]:
        self._doing = "evaluate"
        lengths = [length for _, length, _ in self._episodes]
        found = self._evaluated
        if found is None:
            found = final_evaluation(self.learner.policy, self.config, lengths=lengths, earlier=self._earlier)
        values = {
            "eval/return": found["eval_return_mean"],
            "eval/return_std": found["eval_return_std"],
            "eval/cut_off": found["eval_cut_off"],
            "eval/sampled_return": found["eval_sampled_return_mean"],
            "eval/vs_random": found.get("eval_vs_random"),
            "eval/vs_earlier": found.get("eval_vs_earlier"),
        }
        if found["eval_episodes"]:
            try:
                self._write({name: value for name, value in values.items() if value is not None})
            except OSError as error:
                self._save_errors.append(f"the metrics of the evaluation could not be written: {error}.")
        return found

    def _training_return(self) -> dict[str, Any]:
        """Of the last episodes of training, as its envs reward them: sampled, and on ALE clipped."""
        returns = [total for total, _, _ in self._episodes]
        return {
            "return_mean": float(np.mean(returns)) if returns else None,
            "return_std": float(np.std(returns)) if returns else None,
            **{f"return_mean/{agent}": value for agent, value in self._returns_by_agent().items()},
            "return_clipped": clips_rewards(self.config.train.env, self.config.env_args),
            "episodes": self._num_episodes,
        }

    def _returns_by_agent(self) -> dict[str, float]:
        """Of envs with several agents: the mean return of each that ended an episode lately."""
        if len(self._agents) == 1:
            return {}
        totals: collections.defaultdict[str, list[float]] = collections.defaultdict(list)
        for total, _, agent in self._episodes:
            totals[self._agents[agent]].append(total)
        return {agent: float(np.mean(totals[agent])) for agent in self._agents if agent in totals}

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started

    def _steady_rate(self) -> float | None:
        """Steps/s from the end of the second update to the last: without what is paid once."""
        if self._steady is None or self._last[0] <= self._steady[0]:
            return None
        return (self._last[1] - self._steady[1]) / (self._last[0] - self._steady[0])

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        self.flow.close()
        for callback in self._on_close:
            callback()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()
