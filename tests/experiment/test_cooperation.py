"""Teams learn what they are known to learn, and what they are known not to; in one process and in several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus import envs
from ludus.errors import ConfigError
from ludus.experiment import config as configs
from ludus.telemetry.metrics_file import read_metrics


def greedy_return(algorithm: str, game: str, folder: Path, **settings: Any) -> float:
    """Of each player, by presets. A run is a second of one core, and has one result."""
    run = ludus.train(algorithm, game, seed=1, threads=1, project=str(folder), eval_episodes=2, **settings)
    return float(run.result["eval_return_mean"])


def test_qmix_finds_the_8_of_the_two_step_game_and_vdn_stays_at_7(tmp_path: Path) -> None:
    assert greedy_return("qmix", "matrix:two_step", tmp_path) == 8.0
    assert greedy_return("vdn", "matrix:two_step", tmp_path) == 7.0


def test_qmix_that_is_optimistic_climbs_to_11(tmp_path: Path) -> None:
    assert greedy_return("qmix", "matrix:climbing", tmp_path) == 11.0


@pytest.mark.parametrize("algorithm", ["qmix", "mappo"])
def test_a_simulator_of_its_own_plays_for_a_team(algorithm: str, tmp_path: Path) -> None:
    own: dict[str, Any] = {"num_steps": 8, "num_envs": 4}
    if algorithm == "qmix":
        own |= {"sequence_length": 4, "min_size": 64, "batch_size": 8, "capacity": 1_000, "recurrent_size": 8}
    env_args = '{"max_cycles": 5}'
    run = ludus.train(
        algorithm, "mpe2:simple_spread_v3", steps=300, seed=1, simulators=1, threads=1, project=str(tmp_path),
        trial="t", eval_episodes=2, hidden="8", env_args=env_args, **own,
    )  # fmt: skip
    assert run.result["steps"] >= 300
    assert "eval_vs_random" not in run.result, "members of a team are no opponents, however different their returns"
    metrics = read_metrics(tmp_path / "t")
    assert any(f"train/{'mixer' if algorithm == 'qmix' else 'critic'}_gradient_norm" in line for line in metrics)


def test_agents_see_which_one_they_are_wherever_their_policy_plays() -> None:
    for algorithm, num_ids in (("qmix", 3), ("mappo", 3), ("ippo", 3), ("vdn", 3), ("ppo", 0)):
        config = configs.resolve(algorithm, "mpe2:simple_spread_v3")
        for arguments in (config.env_args, config.eval_env_args):
            assert envs.spec(config.train.env, **arguments).obs.shape == (18 + num_ids,)
    config = configs.resolve("qmix", "mpe2:simple_spread_v3", {"agent_ids": False})
    assert envs.spec(config.train.env, **config.env_args).obs.shape == (18,)


@pytest.mark.parametrize("algorithm", ["qmix", "mappo"])
def test_sessions_of_a_game_are_no_team(algorithm: str) -> None:
    with pytest.raises(ConfigError, match=f"{algorithm} learns from all agents of an environment together"):
        configs.resolve(algorithm, "game://127.0.0.1:0")
