"""Settings: where they come from, what goes over what, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ludus import options
from ludus.errors import ConfigError
from ludus.experiment import presets
from ludus.experiment.config import Config, TrainConfig, resolve
from ludus.learn.algorithms import registry
from ludus.learn.networks.config import NetworkConfig


def test_presets_go_over_defaults_and_the_user_over_presets() -> None:
    preset = presets.find("ppo", "CartPole-v1")
    plain = resolve("ppo", "Nothing-v0").algorithm
    config = resolve("ppo", "CartPole-v1", {"gamma": 0.5})
    assert preset
    assert plain == registry.config_class("ppo")()
    assert config.algorithm.gamma == 0.5
    for name, value in preset.items():
        if name not in ("gamma",):
            found = next(getattr(part, name) for part in (config.train, config.algorithm, config.network) if
                         hasattr(part, name))  # fmt: skip
            assert found == value


def test_every_preset_is_of_settings_that_exist() -> None:
    for algorithm, table in presets._PRESETS.items():
        for pattern, _ in table:
            resolve(algorithm, pattern.replace("*", ""), {})


def test_no_preset_scales_rewards() -> None:
    """Values are learnt in units of the returns, whatever the rewards are."""
    scaled = [
        (algorithm, pattern)
        for algorithm, table in presets._PRESETS.items()
        for pattern, settings in table
        if "reward_scale" in settings
    ]
    assert scaled == []


@pytest.mark.parametrize("algorithm", registry.NAMES)
def test_pendulum_is_learnt_by_the_defaults(algorithm: str) -> None:
    """`pendulum-own`, `pendulum-appo` and `pendulum-impala` of docs/learning_results.md."""
    assert resolve(algorithm, "Pendulum-v1").algorithm == registry.config_class(algorithm)()


def test_a_recurrent_network_brings_no_settings_of_its_own() -> None:
    without, with_gru = (resolve("ppo", "my-env", {"recurrent": kind}) for kind in ("none", "gru"))
    assert without.algorithm == with_gru.algorithm


def test_settings_are_parsed_from_text() -> None:
    config = resolve("ppo", "CartPole-v1", {"hidden": "32,16", "steps": "1e5", "anneal": "no", "simulators": "none"})
    assert config.network.hidden == (32, 16)
    assert config.train.steps == 100_000
    assert config.algorithm.anneal is False
    assert config.train.simulators is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rat": 1e-3}, "Did you mean learning_rate"),
        ({"stpes": 5}, "Did you mean steps"),
        ({"hiden": (8,)}, "Did you mean hidden"),
        ({"xyzzy": 1}, "ludus train --help"),
        ({"steps": "many"}, "steps='many' is not a whole number"),
        ({"steps": 0}, "steps=0 is less than 1"),
        ({"steps": "1e999"}, "steps='1e999' is not a whole number"),
        ({"gamma": 1.5}, "gamma=1.5 is more than 1"),
        ({"gamma": "nan"}, "gamma=nan is not a number"),
        ({"learning_rate": float("nan")}, "learning_rate=nan is not a number"),
        ({"stop_at_return": "NaN"}, "stop_at_return=nan is not a number"),
        ({"seed": 99999999999999999999999}, "seed=99999999999999999999999 is more than"),
        ({"flow": "asink"}, "Did you mean 'async'"),
        ({"recurrent": "lstn"}, "Did you mean 'lstm'"),
        ({"env_args": "[1]"}, "a JSON object"),
        ({"env_args": "{"}, "not JSON"),
        ({"flow": "async", "simulators": 0}, "use flow=sync, or simulators=1"),
        ({"inference": 1, "simulators": 0}, "give simulators=1 or more"),
        ({"inference_backend": "onnx"}, "give inference=1 or more"),
        ({"inference": 1, "inference_backend": "onxx"}, "Did you mean 'onnx'"),
        ({"trainers": 2, "simulators": 3}, "a multiple of 2"),
        ({"groups": 4, "num_envs": 2}, "4 groups need as many environments"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_nearest_or_a_way_out(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("ppo", "CartPole-v1", settings)
    assert message in str(caught.value)


def make_my_env() -> None:
    """Never called."""


def test_an_object_in_the_place_of_a_name_is_answered_with_how_to_name_it() -> None:
    wrong: Any = Config
    with pytest.raises(ConfigError, match=r"algorithm must be a name, and is an object of type type\."):
        resolve(wrong, "CartPole-v1")
    wrong = object()
    with pytest.raises(ConfigError, match=r"env must be a name, .* type object\..*'CartPole-v1'.*'file\.py:make'"):
        resolve("dqn", wrong)
    for wrong in (make_my_env, lambda: None):
        name = "make_my_env" if wrong is make_my_env else "make"
        with pytest.raises(ConfigError, match=f"type function.*'__main__:{name}'"):
            resolve("dqn", wrong)


def test_paths_are_as_good_as_texts(tmp_path: Path) -> None:
    one = resolve("bc", "CartPole-v1", {"dataset": tmp_path / "a", "project": tmp_path}).train
    assert (one.dataset, one.project) == ((str(tmp_path / "a"),), str(tmp_path))
    assert resolve("bc", "CartPole-v1", {"dataset": [tmp_path / "a", "/b"]}).train.dataset[1] == "/b"


def test_an_unknown_algorithm_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'impala'"):
        resolve("impalla", "CartPole-v1")


@pytest.mark.parametrize(
    ("algorithm", "settings", "flow", "num_simulators", "is_embedded"),
    [
        ("ppo", {}, "sync", 0, True),
        ("ppo", {"simulators": 2}, "sync", 2, False),
        ("ppo", {"inference": 1}, "sync", 1, False),
        ("ppo", {"trainers": 2}, "sync", 0, False),
        ("ppo", {"engine": "ray"}, "sync", 0, False),
        ("ppo", {"flow": "async"}, "async", 1, False),
        ("appo", {}, "async", 1, False),
        ("appo", {"trainers": 2}, "async", 2, False),
        ("impala", {"flow": "sync"}, "sync", 0, True),
        ("a2c", {}, "sync", 0, True),
    ],
)
def test_where_a_run_lives_follows_from_its_settings(
    algorithm: str, settings: dict[str, Any], flow: str, num_simulators: int, is_embedded: bool
) -> None:
    config = resolve(algorithm, "CartPole-v1", settings)
    assert (config.flow, config.num_simulators, config.is_embedded) == (flow, num_simulators, is_embedded)


@pytest.mark.parametrize("algorithm", registry.NAMES)
def test_settings_without_effect_are_inherited_ones(algorithm: str) -> None:
    found = registry.algorithm_class(algorithm)
    assert found.unused <= {field.name for field in dataclasses.fields(found.Config)}
    assert resolve(algorithm, "Pendulum-v1")


@pytest.mark.parametrize("algorithm", registry.NAMES)
def test_every_setting_has_help(algorithm: str) -> None:
    for part in (TrainConfig, registry.config_class(algorithm), NetworkConfig):
        for option in options.describe(part):
            assert len(option.help) > 5, option.name


@pytest.mark.parametrize("algorithm", registry.NAMES)
def test_no_name_is_in_two_parts(algorithm: str) -> None:
    parts = (TrainConfig, registry.config_class(algorithm), NetworkConfig)
    names = [field.name for part in parts for field in dataclasses.fields(part)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("algorithm", registry.NAMES)
def test_written_as_json_and_read_it_is_the_same(algorithm: str) -> None:
    config = resolve(algorithm, "CartPole-v1", {"hidden": (8, 4), "seed": 7, "threads": 1})
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_files_of_ones_own_are_named_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("from ludus.learn.algorithms.ppo import PPO as Mine\n")
    monkeypatch.chdir(tmp_path)
    config = resolve("mine.py:Mine", "games/mine.py:make", {"model": "./mine.py:build"})
    assert config.train.algorithm == f"{tmp_path}/mine.py:Mine"
    assert config.train.env == f"{tmp_path}/games/mine.py:make"
    assert config.network.model == f"{tmp_path}/mine.py:build"
    other = resolve("ppo", "my_package.games:make", {"model": "my_package:build"})
    assert (other.train.env, other.network.model) == ("my_package.games:make", "my_package:build")


# --- the env arguments of evaluations


@pytest.mark.parametrize(
    ("env", "env_args", "expected"),
    [
        ("CartPole-v1", {"max_episode_steps": 9}, {"max_episode_steps": 9}),
        ("ALE/Pong-v5", {}, {"reward_clipping": False}),
        ("ALE/Pong-v5", {"episodic_life": True, "noop_max": 4},
         {"reward_clipping": False, "episodic_life": False, "noop_max": 4}),
        ("ALE/Pong-v5", {"reward_clipping": False}, {"reward_clipping": False}),
        ("envpool:Pong-v5", {}, {}),
        ("envpool:Pong-v5", {"reward_clip": True}, {"reward_clip": False}),
        ("envpool:CartPole-v1", {}, {}),
    ],
)  # fmt: skip
def test_evaluations_leave_out_what_an_adapter_has_for_training_only(
    env: str, env_args: dict[str, Any], expected: dict[str, Any]
) -> None:
    config = resolve("ppo", env, {"env_args": json.dumps(env_args)})
    assert config.env_args == env_args
    assert config.eval_env_args == expected


def test_env_args_of_evaluations_go_over_all_others() -> None:
    given = {"env_args": '{"noop_max": 4}', "eval_env_args": '{"noop_max": 1, "reward_clipping": true}'}
    config = resolve("ppo", "ALE/Pong-v5", given)
    assert config.eval_env_args == {"noop_max": 1, "reward_clipping": True}
    with pytest.raises(ConfigError, match="eval_env_args is not JSON"):
        resolve("ppo", "CartPole-v1", {"eval_env_args": "{"})
