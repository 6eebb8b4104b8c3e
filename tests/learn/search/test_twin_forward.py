"""The forward pass of a search says what the network says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.learn.networks.twin import TwinMLP
from ludus.learn.search.twin_forward import TwinForward


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("rows", [1, 7])
def test_it_says_what_the_network_says_of_any_observations_and_each_tower_alone_does(
    activation: str, rows: int
) -> None:
    torch.manual_seed(0)
    model = TwinMLP(5, 3, (8, 6, 4), activation)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    forward = TwinForward(model, max_rows=7)
    obs = np.random.default_rng(0).normal(size=(rows, 5)).astype(np.float32)
    obs[0, 2] = 0.0
    with torch.no_grad():
        expected_logits, expected_value = (each.numpy() for each in model(torch.from_numpy(obs)))
    logits, value = forward(obs)
    np.testing.assert_allclose(logits, expected_logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value, expected_value.reshape(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(forward.logits(obs), expected_logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(forward.value(obs), expected_value.reshape(-1), rtol=1e-4, atol=1e-5)
