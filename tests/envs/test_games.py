"""`Games`: what a spec says, what is wrong with one, and that a configuration holds all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import envs, errors
from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.data.spec import ArraySpec
from ludus.envs.games import Games, read_spec
from ludus.experiment import config as configs

ARRAY = {"shape": [4], "dtype": "float32"}
SPEC = {"obs": ARRAY, "action": {"discrete": 2}}
NAME = "game://127.0.0.1:8000"


def test_a_spec_says_what_is_seen_and_done() -> None:
    spec = Games(port=8000, **SPEC).spec
    assert (spec.name, spec.obs, spec.action) == (NAME, ArraySpec((4,), np.float32), Discrete(2))
    assert spec.agents == ("agent",)


def test_observations_nest_by_key_and_may_have_bounds() -> None:
    image = {"shape": [8, 8, 3], "dtype": "uint8", "low": 0, "high": 255}
    nested = {"image": image, "body": {"speed": {"shape": []}, "limbs": {"shape": [2], "low": [-1, -2], "high": 1}}}
    spec = Games(port=8000, obs=nested, action={"discrete": 2}).spec
    assert spec.obs["image"] == ArraySpec((8, 8, 3), np.uint8, 0, 255)
    assert spec.obs["body"]["speed"] == ArraySpec((), np.float32)
    assert spec.obs["body"]["limbs"] == ArraySpec((2,), np.float32, [-1.0, -2.0], 1.0)


@pytest.mark.parametrize(
    ("plain", "action"),
    [
        ({"discrete": 3}, Discrete(3)),
        ({"multi_discrete": [3, 2]}, MultiDiscrete((3, 2))),
        ({"low": [-2], "high": [2]}, Continuous((-2.0,), (2.0,))),
        ({"low": [None, 0], "high": [1, 5.5]}, Continuous((-np.inf, 0.0), (1.0, 5.5))),
    ],
)
def test_there_are_three_kinds_of_actions_and_they_come_back_as_they_were(plain: Any, action: Any) -> None:
    games = Games(port=8000, obs=ARRAY, action=plain)
    assert games.spec.action == action
    again = Games.parse(NAME, json.loads(json.dumps(games.arguments())))
    assert again.spec == games.spec == Games(port=8000, obs=ArraySpec((4,), np.float32), action=action).spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": 7}, r"obs must be an array such as .*; it is 7"),
        ({"obs": {}}, "obs must be an array"),
        ({"obs": {"image": {"shape": "big"}}}, r"obs/image/shape must be a list of counts, .*; it is 'big'"),
        ({"obs": {"shape": [4, 0]}}, "obs/shape must be a list of counts"),
        ({"obs": {"shape": [4], "dtype": "floaty"}}, "obs/dtype must be the name of a dtype of numbers.*'floaty'"),
        ({"obs": {"shape": [4], "dtype": "U8"}}, "obs/dtype must be"),
        ({"obs": {"shape": [4], "hihg": 2}}, r"obs/hihg is no field of an array. Did you mean 'high'\?"),
        ({"obs": {"shape": [4], "low": [1, 2]}}, r"obs/low must be a number, or numbers in the shape \[4\]"),
        ({"obs": {"shape": [4], "low": 2, "high": 1}}, "obs/low must not be above high"),
        ({"action": {"descrete": 2}}, r"action must be one of \{"),
        ({"action": {"discrete": 0}}, "action/discrete must be the number of choices"),
        ({"action": {"discrete": 2.5}}, "action/discrete must be the number of choices"),
        ({"action": {"multi_discrete": 3}}, "action/multi_discrete must be a list"),
        ({"action": {"low": [0], "high": [0]}}, "action/low must have as many numbers"),
        ({"action": {"low": ["a"], "high": [1]}}, "action/low must be a list of numbers"),
        ({"mask": "yes"}, "mask must be true or false"),
        ({"mask": True, "action": {"low": [0], "high": [1]}}, "mask is for discrete actions"),
        ({"rewards": 1}, "'rewards', which is no field of a spec"),
    ],
)
def test_a_bad_spec_file_is_refused_by_the_field(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    path.write_text(json.dumps({**SPEC, **change}))
    with pytest.raises(errors.ConfigError, match=message) as raised:
        configs.resolve("ppo", NAME, {"spec": str(path)})
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), ("{", "is not JSON"), ("[]", "a JSON object"), ('{"obs": {"shape": [1]}}', "action")],
)
def test_a_file_that_is_no_spec_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(errors.ConfigError, match=message):
        read_spec(str(path))


@pytest.mark.parametrize(
    "name", ["game://", "game://localhost", "game://:8000", "game://a:b", "game://a:1/x", "game://a:0"]
)
def test_an_address_is_a_host_and_a_port(name: str) -> None:
    with pytest.raises(errors.ConfigError, match="game://HOST:PORT"):
        Games.parse(name, SPEC)


def test_a_configuration_holds_all_of_it_and_needs_no_file_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    path.write_text(json.dumps(SPEC))
    config = configs.resolve("ppo", NAME, {"spec": str(path), "env_args": '{"lease_s": 5, "grpc_port": 8001}'})
    path.unlink()
    again = configs.Config.from_json(json.loads(json.dumps(config.to_json())))
    games = again.games
    assert games is not None
    assert (games.spec, games.lease_s, games.grpc_port) == (Games(port=8000, **SPEC).spec, 5, 8001)
    assert envs.spec(again.train.env, **again.env_args) == games.spec
    assert (again.flow, again.num_simulators, again.is_embedded) == ("async", 1, False)


def test_from_python_games_are_given_where_an_environment_is() -> None:
    config = configs.resolve("a2c", Games(port=8001, host="::1", eval_wait_s=2.5, **SPEC), {"trainers": 2})
    assert config.train.env == "game://[::1]:8001"
    assert config.games is not None
    assert (config.games.eval_wait_s, config.games.host) == (2.5, "::1")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flow": "sync"}, "flow=sync .* async"),
        ({"inference": 1}, "inference=1 "),
        ({"simulators": 0}, "simulators=0 "),
        ({"engine": "ray"}, "engine=ray "),
        ({"stop_at_return": 5.0}, "stop_at_return=5.0 "),
        ({"env_args": '{"leese_s": 5}'}, "Did you mean 'lease_s'"),
        ({"env_args": '{"lease_s": 0}'}, "lease_s must be a number above 0"),
        ({"env_args": '{"grpc_port": 0}'}, "grpc_port must be a number from 1 to 65535"),
    ],
)
def test_settings_that_do_not_go_with_games_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        configs.resolve("ppo", Games(port=8000, **SPEC), settings)


def test_a_spec_is_for_games_only_and_games_need_one(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="is for games"):
        configs.resolve("ppo", "CartPole-v1", {"spec": "game.json"})
    with pytest.raises(errors.ConfigError, match=r"--spec game\.json"):
        envs.spec(NAME)
    with pytest.raises(errors.EnvError, match="cannot be stepped"):
        envs.make(NAME, 4, **SPEC)
