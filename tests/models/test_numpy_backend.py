"""A policy's own networks in NumPy give what eager torch gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ludus.data import nest as nests
from ludus.data.actions import Continuous, Discrete
from ludus.data.spec import ArraySpec
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import PolicySpec
from ludus.learn.policies.served import ServedPolicy
from ludus.models import verify
from ludus.models.backends import BackendUnavailable, Source, prepare
from ludus.models.backends.numpy import NumpyBackend
from ludus.models.definition import Definition
from ludus.models.torch_weights import as_arrays

torch.set_num_threads(1)
VECTOR = ArraySpec((4,), np.float32)
SPECS = {
    "tanh": {"obs": VECTOR, "action": Discrete(3)},
    "normalised": {"obs": VECTOR, "action": Discrete(3), "normalise_obs": True, "normalise_returns": True},
    "continuous": {"obs": VECTOR, "action": Continuous((-1.0,), (1.0,)), "network": NetworkConfig(activation="relu")},
    "recurrent": {
        "obs": VECTOR,
        "action": Discrete(3),
        "network": NetworkConfig(hidden=(8,), recurrent="gru", recurrent_size=4),
    },
    "images": {"obs": ArraySpec((4, 84, 84), np.uint8), "action": Discrete(3)},
}


def definition(kind: str, **options: Any) -> Definition:
    policy = ServedPolicy(PolicySpec(**SPECS[kind]), seed=3, **options)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    if policy.value_scale is not None:
        policy.value_scale.mean.fill_(5.0)
        policy.value_scale.std.fill_(3.0)
    if policy.normaliser is not None:
        policy.normaliser.update(torch.randn((50, 4), generator=generator) * 3 + 1)
    return Definition(module=policy, forward_args=policy.example())


@pytest.mark.parametrize("has_value", [True, False])
@pytest.mark.parametrize("kind", SPECS)
def test_it_gives_what_eager_gives_and_is_verified(kind: str, has_value: bool) -> None:
    source = definition(kind, has_value=has_value).source()
    weights = as_arrays(source.module)
    backend, found = verify.choose("numpy", source, weights, tolerance=1e-5, num_threads=1)
    assert (found.chosen, backend.owns_outputs) == ("numpy", kind in ("tanh", "normalised", "continuous"))
    eager = prepare("eager", source)
    args, kwargs = verify.example_calls(source.args or (), {})[2]
    wanted = eager.run(eager.load(weights), args, kwargs)
    given = backend.run(backend.load(weights), args, kwargs)
    assert nests.paths(wanted) == nests.paths(given)
    assert ("value" in given) is has_value
    for one, other in zip(nests.leaves(wanted), nests.leaves(given), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
        assert one.dtype == other.dtype


def test_versions_do_not_change_each_other_or_the_module() -> None:
    source = definition("normalised").source()
    own = {name: array.copy() for name, array in as_arrays(source.module).items()}
    backend, rows = NumpyBackend(source), np.ones((3, 4), np.float32)
    handle = backend.load(own)
    before = backend.run(handle, (rows,), {})
    other = backend.load({name: np.asarray(array * 2) for name, array in own.items()})
    assert not np.allclose(backend.run(other, (rows,), {})["params"], before["params"])
    np.testing.assert_array_equal(backend.run(handle, (rows,), {})["params"], before["params"])
    assert all(np.array_equal(array, own[name]) for name, array in as_arrays(source.module).items())


def test_many_rows_are_run_by_torch() -> None:
    source = definition("tanh").source()
    backend, rows = NumpyBackend(source), np.random.default_rng(0).standard_normal((600, 4)).astype(np.float32)
    handle = backend.load(as_arrays(source.module))
    whole = backend.run(handle, (rows,), {})
    few = backend.run(handle, (), {"obs": rows[:9]})
    np.testing.assert_allclose(whole["params"][:9], few["params"], atol=1e-5)
    np.testing.assert_allclose(whole["value"][:9], few["value"], atol=1e-5)


def test_a_module_that_is_no_policy_is_left_to_eager() -> None:
    with pytest.raises(BackendUnavailable, match="numpy is for policies, and the model is a Linear"):
        NumpyBackend(Source(module=torch.nn.Linear(2, 2)))
