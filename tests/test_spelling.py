from __future__ import annotations

import pytest

from ludus import options
from ludus.errors import ConfigError
from ludus.experiment import config
from ludus.spelling import _OURS, OTHER_ALGORITHMS, nearest, suggest

KNOWN = {
    option.name
    for algorithm in ("ppo", "impala", "dqn", "r2d2")
    for part in (config.resolve(algorithm, "CartPole-v1"),)
    for owner in (part.train, part.algorithm, part.network)
    for option in options.describe(owner)
}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    {
        "lr": "learning_rate",
        "total_timesteps": "steps",
        "n_envs": "num_envs",
        "num_workers": "simulators",
        "n_steps": "num_steps",
        "batch_size": "minibatch_size",
        "ent_coef": "entropy_coef",
        "vf_coef": "value_coef",
        "gae_lambda": "lam",
        "clip_range": "clip",
        "n_epochs": "num_epochs",
        "num_env_runners": "simulators",
        "update-epochs": "num_epochs",
        "buffer_size": "capacity",
        "learning_starts": "min_size",
        "train_freq": "updates_per_step",
        "polyak": "tau",
        "exploration_fraction": "epsilon_fraction",
        "exploration_final_eps": "epsilon_end",
        "target_network_frequency": "target_every",
    }.items(),
)
def test_usual_names_of_settings_are_known(theirs: str, ours: str) -> None:
    assert suggest(theirs, KNOWN, num=2) == [ours]
    assert suggest(f"--{theirs.replace('_', '-')}", [f"--{name.replace('_', '-')}" for name in KNOWN]) == [
        f"--{ours.replace('_', '-')}"
    ]


def test_every_name_of_the_table_leads_to_a_setting_there_is_and_is_none_itself() -> None:
    assert set(_OURS.values()) <= KNOWN
    assert _OURS.keys() & KNOWN == {"batch_size"}, "that of replay; of ppo, minibatch_size is meant by it"


def test_a_setting_without_a_counterpart_is_reported_as_such() -> None:
    with pytest.raises(ConfigError, match=r"no setting 'ent_coef' for sac .* temperature of sac is alpha\.$"):
        config.resolve("sac", "Pendulum-v1", {"ent_coef": 0.01})
    with pytest.raises(ConfigError, match=r"no setting 'target_kl' .* clip and num_epochs bound it\.$"):
        config.resolve("ppo", "CartPole-v1", {"target_kl": 0.01})


def test_a_setting_of_replay_has_its_counterpart_where_there_is_replay() -> None:
    for name in ("tau", "train_freq", "exploration_final_eps"):
        with pytest.raises(ConfigError, match=rf"no setting '{name}' .* learn from replay, such as dqn\.$"):
            config.resolve("ppo", "CartPole-v1", {name: 0.01})
    with pytest.raises(ConfigError, match=r"no setting 'train_freq' .* Did you mean updates_per_step\?$"):
        config.resolve("dqn", "CartPole-v1", {"train_freq": 4})
    with pytest.raises(ConfigError, match=r"Did you mean minibatch_size\?$"):
        config.resolve("ppo", "CartPole-v1", {"batch_size": 4})
    with pytest.raises(ConfigError, match=r"Did you mean batch_size"):
        config.resolve("dqn", "CartPole-v1", {"minibatch_size": 4})


def test_a_synonym_of_what_is_not_there_is_not_forced_upon_it() -> None:
    assert nearest("lr", ["left", "right"]) == "There are: left, right."
    assert nearest("polcy", ["policy"]) == "Did you mean 'policy'?"


@pytest.mark.parametrize("name", ["trpo", "dreamer", "MuZero", "COMA", "MADDPG"])
def test_an_algorithm_that_is_not_there_yet_is_not_taken_for_another(name: str) -> None:
    with pytest.raises(ConfigError, match=r"not available yet\. There are ppo, a2c, impala, appo, dqn") as caught:
        config.resolve(name, "CartPole-v1")
    assert "Did you mean" not in str(caught.value)
    assert name.lower().replace("-", "_") in OTHER_ALGORITHMS


@pytest.mark.parametrize(
    ("name", "ours"),
    {"Double-DQN": "dqn, which is double", "c51": "--distribution c51", "ape-x": "apex", "DRQN": "r2d2"}.items(),
)
def test_a_variant_is_answered_with_how_to_have_it(name: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=f"what is meant is .*{ours}"):
        config.resolve(name, "CartPole-v1")
