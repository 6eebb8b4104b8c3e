"""Where the time of a training run goes, and which stage holds up the others.

    stages = stages_of(values)             # of the last lines of metrics.jsonl
    simulator_stages(values)               # of a league's simulators, likewise
    find_bottleneck(values, stages)        # the slowest one, and why

A loop says how it shares its time (`time/…`). In one process its stages take turns, so the slowest is the one that
takes most; a stage's own pace is what the loop would do if it did nothing else. Spread over processes, the loop is the
trainer's: what it waits for is slower than it is. In rounds (`time/wait`) it waits while simulators step and act, too.
A league's learners never wait for simulators: while no segment of theirs has come, learners play by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ludus.page.spell import spell_count

__all__ = ["Bottleneck", "Stage", "find_bottleneck", "simulator_stages", "stages_of"]

RATE = "time/steps_per_second"
_SIMULATORS = "simulator/"
_WAITS = ("wait", "idle")
_NAMES = {
    "step_envs": "Env steps",
    "act": "Inference (choosing actions)",
    "wait": "Waiting for simulators",
    "idle": "Waiting for experience",
    "take": "Taking from the buffer",
    "play": "Playing matches",
    "read": "Reading datasets",
    "draw": "Drawing samples",
    "train": "Learning (trainer)",
    "publish": "Publishing weights",
    "evaluate": "Evaluating",
    "other": "Everything else",
}
_SIMULATOR_NAMES = {"play": "Playing for learners", "evaluate": "Evaluating", "idle": "Waiting for learners"}
_ADVICE = {
    "step_envs": "Faster or more envs per process help, or more simulators on other cores.",
    "act": "A smaller network, more envs in one batch, or inference in processes of its own help.",
    "play": "Matches take longer than learning from them: more learner processes help.",
    "read": "The disk or the decoding is slow: datasets in memory help.",
    "draw": "Smaller batches or fewer samples per insert help.",
    "train": "Fewer epochs, larger minibatches, a smaller network or more trainers help (of a league: learners).",
    "publish": "Weights are written too often for their size.",
    "evaluate": "Fewer matches for evaluation help.",
    "take": "The buffer's process is slow.",
    "other": "It is none of the usual stages: replay tables, checkpoints, the loop itself.",
}
_WAITS_MUCH = 0.25
_MODEL_BUSY = 0.75


@dataclass(frozen=True)
class Stage:
    """`share` of the loop's time, from 0 to 1; `pace`: steps per second if the loop did nothing else."""

    key: str
    name: str
    share: float
    pace: float | None


@dataclass(frozen=True)
class Bottleneck:
    name: str
    reason: str


def stages_of(values: Mapping[str, float]) -> list[Stage]:
    """Of the loop that trains; none before it has said anything."""
    return _stages({name: value for name, value in values.items() if name != RATE}, "time/", _NAMES, values.get(RATE))


def simulator_stages(values: Mapping[str, float]) -> list[Stage]:
    """Of a league's simulators, in the mean; none if it has none. Their pace is all simulators' together."""
    rate = values.get(f"{_SIMULATORS}steps_per_second")
    found = _stages(values, f"{_SIMULATORS}time/", _SIMULATOR_NAMES, rate)
    return [stage if stage.key == "play" else replace(stage, pace=None) for stage in found]  # steps are for learners


def _stages(values: Mapping[str, float], prefix: str, names: Mapping[str, str], rate: float | None) -> list[Stage]:
    found = []
    for name, share in values.items():
        key = name.removeprefix(prefix)
        if key == name or not 0.0 <= share <= 1.0:
            continue
        is_work = key not in _WAITS and share > 0.005
        found.append(Stage(key, names.get(key, key), share, rate / share if rate and is_work else None))
    return sorted(found, key=lambda stage: -stage.share)


def find_bottleneck(values: Mapping[str, float], stages: Sequence[Stage]) -> Bottleneck | None:
    """`None` before a loop has said where its time goes."""
    if not stages:
        return None
    shares = {stage.key: stage.share for stage in stages}
    waits, most = _waits_of(shares)
    if waits >= most:
        return _behind_the_trainer(values, shares, waits)
    slowest = max((stage for stage in stages if stage.key not in _WAITS), key=lambda stage: stage.share, default=None)
    if slowest is None:
        return None
    simulators = {stage.key: stage.share for stage in simulator_stages(values)}
    if simulators and slowest.key == "play":
        return Bottleneck(
            "Simulators",
            f"learners play {slowest.share:.0%} of their time themselves, because no segment of a simulator has come. "
            "More simulators help.",
        )
    pace = f" Alone it would do {spell_count(slowest.pace)} steps/s." if slowest.pace else ""
    queued = values.get("count/segments_queued", 0.0) if slowest.key == "train" else 0.0
    more = f", and {queued:.0f} segments wait for it" if queued >= 1 else ""
    if slowest.key == "train" and simulators.get("idle", 0.0) >= _WAITS_MUCH:
        more = f", and simulators wait {simulators['idle']:.0%} of theirs"
    reason = f"it takes {slowest.share:.0%} of the loop's time{more}."
    return Bottleneck(slowest.name, f"{reason}{pace} {_ADVICE.get(slowest.key, '')}".strip())


def _waits_of(shares: Mapping[str, float]) -> tuple[float, float]:
    """For how much of its time the trainer waits, and how much is too much."""
    if "wait" not in shares:
        return shares.get("idle", 0.0), _WAITS_MUCH
    simulators = {"wait", "step_envs", "act"}  # in rounds: simulators and the trainer take turns
    others = max((share for key, share in shares.items() if key not in simulators), default=0.0)
    return sum(shares.get(key, 0.0) for key in simulators), others


def _behind_the_trainer(values: Mapping[str, float], shares: Mapping[str, float], waits: float) -> Bottleneck:
    """The trainer waits: for simulators, for the inference that they wait for, or for games."""
    waiting = f"the trainer waits {waits:.0%} of the time"
    busy, model = max(
        ((value, name.split("/")[1]) for name, value in values.items() if _is_busy(name)), default=(0.0, "")
    )
    if busy >= _MODEL_BUSY:
        return Bottleneck(
            "Inference",
            f"{waiting}, and the workers of model {model!r} are busy {busy:.0%} of it. More --inference workers, a "
            "smaller network or larger batches help.",
        )
    if values.get("gateway/sessions"):
        return Bottleneck("Games", f"{waiting} for what games send. More games, or faster ones, help.")
    inside = {key: shares[key] for key in ("step_envs", "act") if shares.get(key)}
    most = max(inside, key=lambda key: inside[key], default=None)
    detail = f", and they spend most of theirs on: {_NAMES[most].lower()}" if most is not None else ""
    return Bottleneck("Simulators", f"{waiting} for them{detail}. More simulators, or faster envs, help.")


def _is_busy(name: str) -> bool:
    return name.startswith("model/") and name.endswith("/busy")
