"""Gymnasium's spaces in our form."""

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces as gym_spaces

from ludus import envs
from ludus.data import ArraySpec, Continuous, Discrete, MultiDiscrete
from ludus.envs import spaces
from ludus.errors import EnvError

GAMES = Path(__file__).parent / "games.py"


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (gym_spaces.Box(-1.0, 1.0, (2,), np.float64), ArraySpec((2,), np.float32, -1.0, 1.0)),
        (gym_spaces.Box(0, 255, (2, 2), np.uint8), ArraySpec((2, 2), np.uint8, 0, 255)),
        (gym_spaces.Discrete(3, start=-1), ArraySpec((), np.int64, -1, 1)),
        (gym_spaces.MultiBinary(4), ArraySpec((4,), np.int8, 0, 1)),
        (gym_spaces.MultiDiscrete([2, 3]), ArraySpec((2,), np.int64, 0, [1, 2])),
        (gym_spaces.Tuple((gym_spaces.Discrete(2),)), (ArraySpec((), np.int64, 0, 1),)),
        (gym_spaces.Dict(a=gym_spaces.Discrete(2)), {"a": ArraySpec((), np.int64, 0, 1)}),
    ],
)
def test_what_is_seen_becomes_array_specs(space, spec):
    assert spaces.obs_spec(space) == spec


@pytest.mark.parametrize(
    ("space", "spec", "action", "meant"),
    [
        (gym_spaces.Discrete(3, start=5), Discrete(3), 2, 7),
        (gym_spaces.MultiDiscrete([2, 3]), MultiDiscrete((2, 3)), [1, 2], [1, 2]),
        (gym_spaces.MultiDiscrete([[2, 3]], start=[[1, 1]]), MultiDiscrete((2, 3)), [1, 2], [[2, 3]]),
        (gym_spaces.MultiBinary((2, 1)), MultiDiscrete((2, 2)), [1, 0], [[1], [0]]),
        (gym_spaces.Box(-1, 2, (1, 2), np.float64), Continuous((-1.0, -1.0), (2.0, 2.0)), [-9.0, 1.5], [[-1.0, 1.5]]),
    ],
)
def test_what_is_done_is_translated_one_by_one_and_in_batches(space, spec, action, meant):
    assert spaces.action_spec(space) == spec
    ours = np.asarray(action, spec.array.dtype)
    one = spaces.one_to_env(space)(ours)
    np.testing.assert_array_equal(one, meant)
    assert space.contains(one)
    np.testing.assert_array_equal(spaces.many_to_env(space, 3)(np.stack([ours] * 3)), np.stack([np.asarray(meant)] * 3))


def test_spaces_without_an_array_form_are_named():
    with pytest.raises(EnvError, match="Text"):
        spaces.obs_spec(gym_spaces.Text(5))
    with pytest.raises(EnvError, match="Tuple"):
        spaces.action_spec(gym_spaces.Tuple((gym_spaces.Discrete(2),)))
    with pytest.raises(EnvError, match="there must be room"):
        spaces.action_spec(gym_spaces.Box(1.0, 1.0, (2,)))


def test_nested_observations_arrive_in_their_places():
    vector_env = envs.make(f"{GAMES}:many_spaces", 2)
    vector_env.reset(seed=1)
    now = vector_env.step(np.array([0, 1]))
    assert now.obs["place"].tolist() == [3, 3]
    assert now.obs["pair"][0].shape == (2, 2, 2)
    assert now.obs["pair"][1].dtype == np.float32
