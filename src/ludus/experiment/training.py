"""A training run in one process: turns of a flow, with metrics, checkpoints and an evaluation at the end.

with Training(config, folder, flow, learner) as training:
    training.restore()                  # the newest sound checkpoint, if there is one
    while not training.is_done:
        training.turn()
    result = training.finish()
"""

from __future__ import annotations

import collections
import json
import logging
import platform
import time
import types
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from ludus import errors, files
from ludus.data import nest as nests
from ludus.data.digest import digest
from ludus.data.nest import Nest
from ludus.experiment import ranked
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.config import Config
from ludus.experiment.evaluation import evaluate, longest_episode
from ludus.experiment.flows.report import Report
from ludus.experiment.goal import Goal
from ludus.experiment.metrics import MetricsWriter
from ludus.learn.algorithms.learner import Learner
from ludus.program import trust

__all__ = ["Flow", "Training", "load_config", "trust_config", "write_trial"]

_LOG = logging.getLogger(__name__)
_METRICS_EVERY_S = 0.5
_WINDOW = 100  # episodes in the mean that is shown
_MOST_BARREN = 100
_SEAL_FILE = "config.seal"


class Flow(Protocol):
    def turn(self, progress: float) -> Report | None:
        """One update; `None` if there was nothing to learn from yet."""
        ...

    def save(self) -> Nest: ...

    def restore(self, saved: Nest) -> bool: ...

    def close(self) -> None: ...


class Training:
    """Owns its flow and closes it. `began` is when the run was asked for, by `time.time`.

    With `ranks`, each of them has one; what only time can tell, the first decides for all.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        flow: Flow,
        learner: Learner,
        *,
        began: float | None = None,
        on_progress: Callable[[int, dict[str, float]], None] | None = None,
        ranks: Any = None,
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
        self._metrics: MetricsWriter | None = None
        self._episodes: collections.deque[tuple[float, int]] = collections.deque(maxlen=_WINDOW)
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
        self._num_barren = 0  # turns in a row that brought no step
        wanted = config.train.stop_at_return
        self._goal = Goal(wanted, config) if wanted is not None and self._is_first else None
        self._steps_told = 0
        self._resumed_at: int | None = None
        self._has_config = (folder / "config.json").exists()  # from here on, unless somebody deletes the folder
        self._save_errors: list[str] = []

    # --- the loop

    @property
    def is_done(self) -> bool:
        return self._is_good_enough or self.num_steps >= self.config.train.steps

    def turn(self) -> bool:
        """One update, and what is due after it; false if there was nothing to learn from yet."""
        report = self.flow.turn(self.num_steps / self.config.train.steps)
        if report is None:
            if self._is_asked_to_stop and self._ranks is None:
                self._keep_and_stop()
            return False
        self._expect_steps(report)
        now = time.perf_counter()
        if self._first_update_s is None:
            self._first_update_s = time.time() - self._began
        elif self._steady is None:
            self._steady = (now, self.num_steps + report.num_steps)
        self.num_steps += report.num_steps
        self._last = (now, self.num_steps)
        self._episodes.extend((episode.total, episode.length) for episode in report.episodes)
        self._num_episodes += len(report.episodes)
        self._parts.update(report.seconds)
        if now - self._last_metrics >= _METRICS_EVERY_S or self.is_done:
            self._tell(report, now)
        is_good = self._goal is not None and self._goal.is_reached(
            self.learner.policy,
            [total for total, _ in self._episodes],
            self.num_steps,
            seed=self.learner.version,
            max_steps=self._longest_episode(),
        )
        is_due = self._is_first and now - self._last_checkpoint >= self.config.train.checkpoint_seconds
        is_asked = self._is_asked_to_stop
        if self._ranks is not None:
            is_good, is_due, is_asked = map(bool, self._ranks.sum_numbers([is_good, is_due, is_asked]))
        if is_good and not self._is_good_enough:
            self._is_good_enough = True
            self._to_return_s = time.time() - self._began
        if is_asked and not self.is_done:
            self._keep_and_stop()
        elif is_due and not self.is_done:
            self.checkpoint()
        return True

    def ask_stop(self) -> None:
        """Write a checkpoint after the present turn, on all ranks, and be stopped. Safe in a signal handler."""
        self._is_asked_to_stop = True

    def _keep_and_stop(self) -> None:
        if self.num_steps > (self._resumed_at or 0):
            self.checkpoint()
        self.is_stopped = True

    def _expect_steps(self, report: Report) -> None:
        self._num_barren = 0 if report.num_steps else self._num_barren + 1
        if self._num_barren >= _MOST_BARREN:
            raise errors.TrainingError(
                f"the last {_MOST_BARREN} segments had nothing to learn from: the worlds raise in each of them, and "
                f"what they did is void. The logs in {self.folder} say what they raise."
            )

    def _tell(self, report: Report, now: float) -> None:
        elapsed = max(now - self._last_metrics, 1e-9)
        values = {f"train/{name}": value for name, value in report.figures.items()}
        values |= {f"count/{name}": float(value) for name, value in report.counts.items()}
        total = sum(self._parts.values()) or 1.0
        values |= {f"time/{name}": seconds / total for name, seconds in self._parts.items()}
        values["time/steps_per_second"] = (self.num_steps - self._steps_told) / elapsed
        values["train/version"] = self.learner.version
        values["lag/mean"] = report.lag
        values["lag/max"] = report.max_lag
        if self._episodes:
            values["episode/return"] = float(np.mean([total for total, _ in self._episodes]))
            values["episode/length"] = float(np.mean([length for _, length in self._episodes]))
            values["episode/count"] = self._num_episodes
        self.shown = (self.num_steps, values)
        self._write(values)
        if self._on_progress is not None:
            self._on_progress(self.num_steps, values)
        self._parts_total.update(self._parts)
        self._parts.clear()
        self._last_metrics = now
        self._steps_told = self.num_steps

    def _write(self, values: dict[str, float]) -> None:
        if not self._is_first:
            return
        if self._metrics is None:
            self._metrics = MetricsWriter(
                self.folder, resume_step=self._resumed_at, age_s=time.perf_counter() - self._started
            )
        self._metrics.write(self.num_steps, values)

    # --- checkpoints

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
            self.folder.mkdir(parents=True, exist_ok=True)
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
            "checkpoint is sound."
        )

    def restore(self) -> bool:
        """Go on from the newest sound checkpoint, of several ranks the newest that all have; false if there is none.

        Raises `CheckpointError` if there are checkpoints and none can be used: a run never begins anew over them.
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
        self._episodes.extend((total, length) for total, length in content["episodes"])
        self._seconds_before = content["seconds"]
        if self._goal is not None and content.get("goal") is not None:
            self._goal.restore(content["goal"])
        self._steps_told = self.num_steps
        self._resumed_at = step
        if not exact:
            _LOG.warning(
                "%s goes on from step %d with new episodes: its worlds cannot be put back where they were. "
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

    def finish(self) -> dict[str, Any]:
        """The last checkpoint, the evaluation, and what `result.json` says.

        What cannot be written does not cost the result: `save_error` in it says what is missing.
        """
        try:
            self.checkpoint()
        except errors.CheckpointError as error:
            if not self._is_first:
                raise
            _LOG.error("%s The run ends without it.", error)
            self._save_errors.append(str(error))
        if not self._is_first:
            return {}
        seconds = self._seconds()
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
            "eval_return_mean": None,
            "eval_return_std": None,
            "eval_episodes": 0,
            "eval_cut_off": 0,
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
            files.replace(self.folder / "result.json", [_json(result)])
        except OSError as error:
            result["save_error"] = " ".join([*self._save_errors, f"result.json could not be written: {error}."])
        return result

    def _evaluate(self) -> dict[str, Any]:
        """An evaluation that fails is told in its place: what was trained stands without it."""
        train = self.config.train
        try:
            told = evaluate(
                self.learner.policy,
                self.config,
                episodes=train.eval_episodes,
                seed=train.seed + 104_729,
                max_steps=self._longest_episode(),
            )
        except Exception as error:
            _LOG.exception("the evaluation failed; the run has ended without it. `ludus evaluate` plays another.")
            return {"eval_error": f"{type(error).__name__}: {error}"}
        try:
            self._write({"eval/return": told.mean, "eval/return_std": told.std, "eval/cut_off": told.num_cut_off})
        except OSError as error:
            self._save_errors.append(f"the metrics of the evaluation could not be written: {error}.")
        return {
            "eval_return_mean": told.mean,
            "eval_return_std": told.std,
            "eval_episodes": told.num_episodes,
            "eval_cut_off": told.num_cut_off,
        }

    def _longest_episode(self) -> int:
        return longest_episode(self.config, (length for _, length in self._episodes))

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()


def write_trial(folder: Path, config: Config) -> None:
    """What is known at the start: `config.json` and `versions.json`; if it names files of code, a seal of it, too."""
    files.replace(folder / "config.json", [_json(config.to_json())])
    if _files_of_code(config):
        trust_config(folder)
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("ludus", "torch", "numpy", "gymnasium", "ale-py", "envpool", "pettingzoo", "mpe2"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    files.replace(folder / "versions.json", [_json(versions)])


def load_config(folder: Path) -> Config:
    """What `config.json` of a trial says.

    Raises `ConfigError`, also if it names files of code and was not made by this user on this machine: its
    callers go on to run them.
    """
    path = folder / "config.json"
    try:
        content = path.read_bytes()
        saved = json.loads(content)
        if (named := _named_files(saved)) and not _is_own(folder, content):
            raise errors.ConfigError(
                f"{path} says to run code of {' and '.join(named)}, and it was not made by this user on this machine; "
                "nothing was run. If you trust its author: `ludus serve … --trust` or `ludus resume … --trust`, "
                "once."
            )
        return Config.from_json(saved)
    except FileNotFoundError:
        raise errors.ConfigError(f"{folder} is not the folder of a training run: it has no config.json.") from None
    except errors.ConfigError:
        raise
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise errors.ConfigError(f"{path} cannot be read: {error!r}.") from None


def trust_config(folder: Path) -> None:
    """The user agrees to run the files of code that `config.json` names, as it is now."""
    content = (folder / "config.json").read_bytes()
    files.replace(folder / _SEAL_FILE, [trust.seal(content).hex().encode()])


def _is_own(folder: Path, content: bytes) -> bool:
    try:
        return trust.is_own(content, bytes.fromhex((folder / _SEAL_FILE).read_text()))
    except (FileNotFoundError, ValueError):
        return False


def _named_files(saved: Any) -> list[str]:
    named = (saved["train"]["env"], saved["train"]["algorithm"], saved["network"].get("model"))
    return [name for name in named if name and str(name).rpartition(":")[0].endswith(".py")]


def _files_of_code(config: Config) -> list[str]:
    return _named_files(config.to_json())


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
