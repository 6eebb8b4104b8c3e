"""Which stage of a training run is the slowest, by its metrics."""

from __future__ import annotations

import pytest

from ludus.page.stages import Bottleneck, find_bottleneck, simulator_stages, stages_of


def bottleneck(**values: float) -> Bottleneck:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    found = find_bottleneck(named, stages_of(named))
    assert found is not None
    return found


def test_a_run_that_has_said_nothing_has_no_stages() -> None:
    assert stages_of({"train/loss": 1.0, "time/steps_per_second": 5.0}) == []
    assert find_bottleneck({}, []) is None


def test_a_stage_alone_would_be_as_fast_as_its_share_is_small() -> None:
    stages = stages_of({"time/train": 0.8, "time/step_envs": 0.2, "time/idle": 0.0, "time/steps_per_second": 1000.0})
    assert [(stage.key, stage.pace) for stage in stages] == [("train", 1250.0), ("step_envs", 5000.0), ("idle", None)]


def test_simulators_of_a_league_have_stages_of_their_own() -> None:
    values = {
        "time/train": 1.0,
        "simulator/time/play": 0.5,
        "simulator/time/evaluate": 0.1,
        "simulator/time/idle": 0.4,
        "simulator/steps_per_second": 1000.0,
        "simulator/games_per_second": 50.0,
    }
    found = [(stage.key, stage.share, stage.pace) for stage in simulator_stages(values)]
    assert found == [("play", 0.5, 2000.0), ("idle", 0.4, None), ("evaluate", 0.1, None)]
    assert [stage.key for stage in stages_of(values)] == ["train"]
    assert simulator_stages({"time/play": 0.5}) == []


@pytest.mark.parametrize(
    ("values", "name", "part"),
    [
        # one process: they take turns
        ({"time__train": 0.89, "time__step_envs": 0.06, "time__act": 0.05}, "Learning (trainer)", "89% of the loop's"),
        ({"time__train": 0.2, "time__step_envs": 0.7, "time__act": 0.1}, "Env steps", "Faster or more envs"),
        ({"time__train": 0.2, "time__step_envs": 0.1, "time__act": 0.7}, "Inference (choosing actions)", "network"),
        # spread, in rounds
        ({"time__train": 0.2, "time__wait": 0.4, "time__step_envs": 0.1, "time__act": 0.3}, "Simulators", "inference"),
        ({"time__train": 0.4, "time__wait": 0.1, "time__step_envs": 0.1, "time__act": 0.4}, "Simulators", "60%"),
        ({"time__train": 0.54, "time__wait": 0.01, "time__act": 0.45}, "Learning (trainer)", "takes 54% of the loop's"),
        # spread, by itself
        ({"time__train": 0.3, "time__idle": 0.6, "time__take": 0.1}, "Simulators", "waits 60% of the time"),
        ({"time__train": 0.3, "time__idle": 0.6, "model__policy__busy": 0.95}, "Inference", "'policy' are busy 95%"),
        ({"time__train": 0.3, "time__idle": 0.7, "gateway__sessions": 3.0}, "Games", "what games send"),
        ({"time__train": 0.9, "time__idle": 0.1, "count__segments_queued": 7.0}, "Learning (trainer)", "7 segments"),
        # datasets, leagues
        ({"time__read": 0.1, "time__draw": 0.6, "time__train": 0.3}, "Drawing samples", "60%"),
        ({"time__play": 0.7, "time__train": 0.2, "time__evaluate": 0.1}, "Playing matches", "70%"),
        # leagues with simulators
        ({"time__play": 0.6, "time__train": 0.4, "simulator__time__play": 0.9}, "Simulators", "60% of their time"),
        ({"time__train": 0.8, "time__play": 0.2, "simulator__time__idle": 0.4}, "Learning (trainer)", "wait 40% of"),
        ({"time__train": 0.8, "time__play": 0.2, "simulator__time__idle": 0.1}, "Learning (trainer)", "loop's time. F"),
    ],
)
def test_the_bottleneck_is_named_with_its_reason(values: dict[str, float], name: str, part: str) -> None:
    found = bottleneck(**values)
    assert found.name == name
    assert part in found.reason
