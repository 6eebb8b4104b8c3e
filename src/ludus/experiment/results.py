"""What a trial's folder tells of it: what it was asked, how far it came, how it ended. Reads files only.

summarise(Path("trials/monday")).status
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ludus import errors, files
from ludus.program.process import is_alive
from ludus.telemetry.metrics_file import read_last_metrics
from ludus.telemetry.progress import spell_return

__all__ = [
    "CONFIG_FILE",
    "RESULT_FILE",
    "TrialSummary",
    "differs_by_sampling",
    "read_config",
    "read_result",
    "spell_return",
    "summarise",
]

CONFIG_FILE = "config.json"
RESULT_FILE = "result.json"
_RESULT_KEYS = {"algorithm", "env", "seed", "steps", "seconds", "steps_per_second", "weights_hash", "trial"}
_LARGEST = 1 << 63  # nothing that is counted is larger
_FEWEST_COMPARED = 10  # episodes: the spread of fewer says little

Status = Literal["running", "ended", "stopped", "lost"]


@dataclass(frozen=True, kw_only=True)
class TrialSummary:
    """One trial, as a table shows it.

    `status`: running; ended, having done its steps; stopped, and can be resumed; lost, having stopped before its first
    checkpoint.
    """

    name: str
    algorithm: str
    env: str
    seed: int | None
    steps: int
    total_steps: int | None
    saved_step: int | None  # of the newest checkpoint
    greedy_return: float | None  # of the evaluation at its end, as is the next
    sampled_return: float | None
    training_return: float | None  # the last that training reported
    is_clipped: bool  # training's rewards are, and so is its return
    vs_random: float | None  # where agents compete: the share of games won against random play
    status: Status
    age_s: float


def read_config(folder: Path) -> dict[str, Any]:
    """What `config.json` says: its parts `train`, `algorithm`, `network`."""
    path = folder / CONFIG_FILE
    try:
        config = files.read_json(path)
        if isinstance(config["train"], dict):
            return dict(config)
    except FileNotFoundError:
        raise errors.TrainingError(
            f"{folder} is not the folder of a training trial: it has no {CONFIG_FILE}."
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise errors.TrainingError(f"{path} cannot be read: {error!r}.") from None
    raise errors.TrainingError(f"{path} does not say how the trial was trained.")


def read_result(folder: Path) -> dict[str, Any] | None:
    """How a run ended; `None` if it has not, or if the file is damaged. Raises `OSError` if it cannot be read now."""
    try:
        result = files.read_json(folder / RESULT_FILE)
    except (FileNotFoundError, ValueError):
        return None
    return result if isinstance(result, dict) and result.keys() >= _RESULT_KEYS else None


def summarise(folder: Path, *, now: float | None = None) -> TrialSummary:
    """Look at a trial; what a file does not tell, or a torn file, is left out."""
    try:
        train = read_config(folder)["train"]
    except errors.TrainingError:
        train = {}
    result = _read_json(folder / RESULT_FILE)
    lines = read_last_metrics(folder)
    saved = [_whole(record["step"]) or 0 for record in _checkpoints(folder)]
    steps = max([_whole(result.get("steps")) or 0, *saved, *(_whole(line["step"]) or 0 for line in lines[-1:])])
    began = (folder / CONFIG_FILE).stat().st_mtime
    return TrialSummary(
        name=folder.name,
        algorithm=str(train.get("algorithm", "?")),
        env=str(train.get("env", "?")),
        seed=_whole(train.get("seed")),
        steps=steps,
        total_steps=_whole(train.get("steps")),
        saved_step=max(saved, default=None),
        greedy_return=_number(result.get("eval_return_mean")),
        sampled_return=_number(result.get("eval_sampled_return_mean")),
        training_return=_training_return(result, lines),
        is_clipped=_is_clipped(train, result),
        vs_random=_number(result.get("eval_vs_random")),
        status=_status(folder, is_ended=bool(result), is_saved=bool(saved)),
        age_s=max(0.0, (time.time() if now is None else now) - began),
    )


def _training_return(result: dict[str, Any], lines: list[dict[str, Any]]) -> float | None:
    seen = [line["episode/return"] for line in lines if line.get("episode/return") is not None]
    return _number(result.get("return_mean", seen[-1] if seen else None))


def _is_clipped(train: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    if "return_clipped" in result:
        return bool(result["return_clipped"])
    from ludus.envs.registry import clips_rewards  # these bring NumPy
    from ludus.experiment.config import parse_env_args

    try:
        env_args = parse_env_args(str(train.get("env_args", "{}")), setting="env_args")
        return clips_rewards(str(train.get("env", "?")), env_args)
    except errors.LudusError:  # a config that is not ours
        return False


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < _LARGEST else None


def differs_by_sampling(result: Mapping[str, Any]) -> bool:
    """Whether greedy and sampled returns are further apart than a quarter of the larger one, and than chance has it.

    Of a policy that explores on purpose, sampled play is no other opinion of what was learnt.
    """
    greedy, sampled = result.get("eval_return_mean"), result.get("eval_sampled_return_mean")
    if greedy is None or sampled is None or result.get("explores"):
        return False
    if min(result["eval_episodes"], result["eval_sampled_episodes"]) < _FEWEST_COMPARED:
        return False
    std_errors = [
        result[f"{name}_return_std"] / math.sqrt(result[f"{name}_episodes"]) for name in ("eval", "eval_sampled")
    ]
    apart = abs(greedy - sampled)
    return bool(apart > 0.25 * max(abs(greedy), abs(sampled)) and apart > 3.0 * math.hypot(*std_errors))


def _status(folder: Path, *, is_ended: bool, is_saved: bool) -> Status:
    if _is_driven(folder):
        return "running"
    if is_ended:
        return "ended"
    return "stopped" if is_saved else "lost"


def _is_driven(folder: Path) -> bool:
    """Whether the process that `trial.json` names still runs, as far as this host can see."""
    trial = _read_json(folder / "trial.json")
    if not trial or trial.get("ended") is not None:
        return False
    if trial.get("driver_host") != os.uname().nodename:
        return True
    try:
        return is_alive(int(trial["driver_pid"]), trial.get("driver_start"))
    except (KeyError, ValueError, TypeError):
        return False


def _checkpoints(folder: Path) -> list[dict[str, Any]]:
    listed = _read_json(folder / "checkpoints" / "checkpoints.json").get("checkpoints", [])
    return [record for record in listed if isinstance(record, dict) and "step" in record]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = files.read_json(path)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
