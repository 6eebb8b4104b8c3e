"""Defaults learn what nobody tuned them for: images, bytes, large rewards, wide actions. In seconds each.

`benchmarks/learn.py` has the long form. Bars are far from what random play gets, and from what is reached on any seed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import ludus

ENVS = Path(__file__).parent / "small_envs.py"


def greedy_return(algorithm: str, env: str, steps: int, folder: Path, **settings: object) -> float:
    run = ludus.train(
        algorithm, f"{ENVS}:{env}", steps=steps, seed=1, threads=1, project=str(folder), eval_episodes=30, **settings
    )
    return float(run.result["eval_return_mean"])


@pytest.mark.parametrize("algorithm", ["ppo", "appo"])
def test_a_game_of_images_is_learnt(algorithm: str, tmp_path: Path) -> None:
    settings = {} if algorithm == "ppo" else {"flow": "sync", "simulators": 0}
    assert greedy_return(algorithm, "Catch", 15_000, tmp_path, **settings) > 0.7  # random: -0.67


@pytest.mark.parametrize("algorithm", ["ppo", "impala", "appo"])
def test_bytes_are_seen_at_the_scale_of_their_space(algorithm: str, tmp_path: Path) -> None:
    settings = {} if algorithm == "ppo" else {"flow": "sync", "simulators": 0}
    assert greedy_return(algorithm, "Planes", 10_000, tmp_path, **settings) > 0.8  # random: 0.25


@pytest.mark.parametrize("size", [1e-6, 1e3])
def test_wide_actions_and_rewards_of_any_size_are_learnt(size: float, tmp_path: Path) -> None:
    found = greedy_return("ppo", "Aim", 20_000, tmp_path, env_args=f'{{"size": {size}}}')
    assert found > -2000.0 * size  # random: -3333 * size
