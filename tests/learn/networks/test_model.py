"""Models: what is built for which observations, and that it keeps the contract."""

from typing import Any

import numpy as np
import pytest
import torch

from ludus.data import nest as nests
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.encoder import Encoder
from ludus.learn.networks.model import ActorCritic, RecurrentActorCritic, build_model
from ludus.learn.networks.twin import TwinMLP

torch.set_num_threads(1)

VECTOR = ArraySpec((5,), np.float32)
IMAGE = ArraySpec((36, 36, 3), np.uint8, 0, 255)
OBSERVATIONS = {
    "vector": VECTOR,
    "doubles": ArraySpec((2, 3), np.float64),
    "image": IMAGE,
    "grey image": ArraySpec((40, 40), np.uint8),
    "small image": ArraySpec((7, 7, 3), np.uint8),
    "bytes": ArraySpec((128,), np.uint8, 0, 255),
    "choice": ArraySpec((), np.int64, 0, 15),
    "choice of many": ArraySpec((), np.int64, 0, 4999),
    "choices from 1": ArraySpec((3,), np.int64, 1, (2, 5, 3)),
    "bits": ArraySpec((4,), np.int8, 0, 1),
    "dict": {"view": IMAGE, "speed": VECTOR, "gear": ArraySpec((), np.int64, 0, 4)},
    "tuple": (VECTOR, {"gear": ArraySpec((), np.int64, 0, 4)}),
}


def some_obs(spec, *leading, seed=0):
    rng = np.random.default_rng(seed)

    def draw(leaf):
        shape = (*leading, *leaf.shape)
        if leaf.dtype.kind == "f":
            return torch.from_numpy(rng.standard_normal(shape).astype(leaf.dtype))
        low = 0 if leaf.minimum is None else np.asarray(leaf.minimum)
        high = 255 if leaf.maximum is None else np.asarray(leaf.maximum)
        return torch.from_numpy(rng.integers(low, high, shape, endpoint=True).astype(leaf.dtype))

    return nests.map(draw, spec)


def assert_learns(model, outputs, value):
    (outputs.square().sum() + value.square().sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("name", OBSERVATIONS)
@pytest.mark.parametrize("shared", [None, True, False])
def test_there_is_a_model_for_any_observation(name, shared):
    spec = OBSERVATIONS[name]
    model = build_model(spec, 3, NetworkConfig(shared=shared, hidden=(16,)))
    for num_rows in (1, 4):
        outputs, value = model(some_obs(spec, num_rows))
        assert outputs.shape == (num_rows, 3)
        assert value.shape == (num_rows,)
        assert outputs.dtype == value.dtype == torch.float32
    assert_learns(model, outputs, value)


@pytest.mark.parametrize("name", ["vector", "image", "dict", "tuple", "choice"])
@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_a_recurrent_model_runs_over_time(name, recurrent):
    spec = OBSERVATIONS[name]
    model = build_model(spec, 3, NetworkConfig(recurrent=recurrent, recurrent_size=8, hidden=(16,)))
    assert isinstance(model, RecurrentActorCritic)
    obs, first = some_obs(spec, 4, 2), torch.zeros(4, 2, dtype=torch.bool)
    first[2, 1] = True
    state = nests.map(lambda leaf: torch.zeros(2, *leaf.shape), model.state_spec)
    outputs, value, after = model(obs, state, first)
    assert outputs.shape == (4, 2, 3)
    assert value.shape == (4, 2)
    for t in range(4):
        now = nests.map(lambda leaf, t=t: leaf[t : t + 1], obs)
        step_outputs, step_value, state = model(now, state, first[t : t + 1])
        torch.testing.assert_close(step_outputs[0], outputs[t], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(step_value[0], value[t], rtol=1e-4, atol=1e-6)
    nests.map(lambda a, b: torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6), state, after)
    assert_learns(model, outputs, value)


def test_vectors_have_two_towers_and_images_share_one_body():
    assert isinstance(build_model(VECTOR, 2, NetworkConfig()), TwinMLP)
    assert build_model(IMAGE, 2, NetworkConfig()).value_encoder is None
    assert build_model(VECTOR, 2, NetworkConfig(shared=True)).value_encoder is None
    assert build_model(IMAGE, 2, NetworkConfig(encoder="mlp")).value_encoder is not None
    assert isinstance(build_model(VECTOR, 2, NetworkConfig(hidden=())), ActorCritic)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("num_inputs", "width"), [(64, 64), (65, 256)])
def test_a_network_that_reads_many_numbers_is_wider_unless_it_is_said_how_wide(num_inputs, width, shared):
    spec = ArraySpec((num_inputs,), np.float32)

    def widths(config):
        model = build_model(spec, 2, config)
        return (
            model.hidden if isinstance(model, TwinMLP) else tuple(len(layer.bias) for layer in model.encoder.mlp.layers)
        )

    assert widths(NetworkConfig(shared=shared)) == (width, width)
    assert Encoder(ArraySpec((), np.int64, 0, 499), NetworkConfig()).mlp.num_features == 64, "one number, not 500"
    assert Encoder(ArraySpec((5,), np.int64, 0, 19), NetworkConfig()).mlp.num_features == 256, "of five choices"
    assert widths(NetworkConfig(shared=shared, hidden=(8,))) == (8,)


@pytest.mark.parametrize("encoder", ["auto", "small", "nature", "impala", "mlp"])
def test_each_encoder_reads_images(encoder):
    outputs, value = build_model(IMAGE, 2, NetworkConfig(encoder=encoder))(some_obs(IMAGE, 2))
    assert outputs.shape == (2, 2)
    assert value.shape == (2,)


def test_the_order_of_keys_does_not_matter():
    spec = OBSERVATIONS["dict"]
    model, obs = build_model(spec, 2, NetworkConfig()), some_obs(spec, 3)
    torch.testing.assert_close(model(dict(reversed(obs.items()))), model(obs))


def test_choices_are_read_as_choices_not_as_numbers():
    spec = OBSERVATIONS["choices from 1"]
    (reader,) = build_model(spec, 2, NetworkConfig()).encoder.readers
    assert reader(torch.tensor([[1, 5, 2], [2, 1, 3]])).tolist() == [
        [1, 0, 0, 0, 0, 0, 1, 0, 1, 0],
        [0, 1, 1, 0, 0, 0, 0, 0, 0, 1],
    ]


@pytest.mark.parametrize("config", [NetworkConfig(), NetworkConfig(shared=True), NetworkConfig(recurrent="lstm")])
def test_the_seed_decides_the_weights(config):
    weights = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        weights.append(torch.cat([p.detach().flatten() for p in build_model(VECTOR, 2, config).parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("config", [NetworkConfig(), NetworkConfig(shared=True), NetworkConfig(activation="relu")])
def test_the_first_actions_are_all_but_uniform(config):
    outputs, value = build_model(VECTOR, 4, config)(some_obs(VECTOR, 100))
    assert outputs.abs().max() < 0.1
    assert value.std() > 0.1


@pytest.mark.parametrize(
    ("spec", "config", "said"),
    [
        (VECTOR, NetworkConfig(encoder="nature"), "no observation is one"),
        (OBSERVATIONS["small image"], NetworkConfig(encoder="nature"), "too small"),
        (VECTOR, NetworkConfig(recurrent="lstm", shared=False), "shared"),
        (VECTOR, NetworkConfig(recurrent="rnn"), "recurrent"),
        ({"a": None}, NetworkConfig(), "ArraySpec"),
        (ArraySpec((0,), np.float64), NetworkConfig(), "no numbers"),
    ],
)
def test_what_does_not_fit_is_refused(spec, config, said):
    with pytest.raises(ConfigError, match=said):
        build_model(spec, 2, config)


@pytest.mark.parametrize(
    ("spec", "seen"),
    [
        (ArraySpec((3,), np.uint8, 0, 1), [0.0, 1.0]),
        (ArraySpec((7, 7, 3), np.uint8, 0, 10), [0.0, 0.1]),  # a grid of codes
        (ArraySpec((3,), np.uint8), [0.0, 1 / 255]),
        (ArraySpec((2, 3), np.int64, -50, 50), [0.5, 0.51]),
        (ArraySpec((2,), np.uint8, 0, [1, 255]), [[0.0, 0.0], [1.0, 1 / 255]]),  # each entry by its own bounds
        (ArraySpec((2, 2), np.int64, 0, [[1, 100_000]]), [[0.0] * 4, [1.0, 1e-5, 1.0, 1e-5]]),
        (ArraySpec((2,), np.int32, -(2**31), 2**31 - 1), [0.0, 1.0]),  # bounds of the dtype are none
        (ArraySpec((2, 3), np.int64), [0.0, 1.0]),  # without bounds: as it is
        (ArraySpec((3,), np.float32, 0, 10), [0.0, 1.0]),  # floats are for the normaliser
    ],
)
def test_integers_reach_the_network_scaled_by_the_bounds_of_their_spec(spec: ArraySpec, seen: list[Any]) -> None:
    encoder = Encoder(spec, NetworkConfig(hidden=()))
    for number, expected in enumerate(seen):
        x = torch.full((1, *spec.shape), number, dtype=torch.from_numpy(np.zeros(0, spec.dtype)).dtype)
        wanted = np.broadcast_to(expected, (1, np.prod(spec.shape)))
        np.testing.assert_allclose(encoder(x).numpy(), wanted, rtol=1e-5)
