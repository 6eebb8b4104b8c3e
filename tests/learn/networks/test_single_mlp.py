"""The MLP of policies without values, forward and backward, against torch's layers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from ludus.learn.algorithms.optimiser import FlatParameters
from ludus.learn.networks.stacked import SingleMLP


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_outputs_and_gradients_are_those_of_torchs_layers(activation: str) -> None:
    torch.manual_seed(0)
    mlp, obs = SingleMLP(5, 3, (7, 6), activation), torch.randn(9, 5)
    kept = copy.deepcopy(mlp)
    FlatParameters(mlp)  # moves parameters and gradients
    layers: list[nn.Module] = []
    for weight, bias in kept.layers()[0]:
        linear = nn.Linear(*weight.shape)
        linear.weight.data, linear.bias.data = torch.tensor(weight.T), torch.tensor(bias)
        layers += [linear, nn.ReLU() if activation == "relu" else nn.Tanh()]
    plain = nn.Sequential(*layers[:-1])
    outputs, value = mlp(obs)
    expected = plain(obs)
    torch.testing.assert_close(outputs, expected)
    assert value.tolist() == [0.0] * 9
    with torch.no_grad():
        torch.testing.assert_close(mlp(obs)[0], expected)
    upstream = torch.randn(9, 3)
    for each in (outputs, expected):
        each.backward(upstream)
    tower, plainly = mlp.tower, layers[::2]
    *hidden, (last_weight, last_bias) = zip(tower.weights, tower.biases, strict=True)
    for (weight, bias), linear in zip(hidden, plainly[:-1], strict=True):
        torch.testing.assert_close(weight.grad[0], linear.weight.grad.t())
        torch.testing.assert_close(bias.grad[0, 0], linear.bias.grad)
    torch.testing.assert_close(last_weight.grad[0], plainly[-1].weight.grad)
    torch.testing.assert_close(last_bias.grad[0, :, 0], plainly[-1].bias.grad)
    h = obs.numpy()
    for number, (weight_, bias_) in enumerate(mlp.layers()[0]):
        h = h @ weight_ + bias_
        if number < 2:
            h = np.maximum(h, 0.0) if activation == "relu" else np.tanh(h)
    np.testing.assert_allclose(h, outputs.detach().numpy(), atol=1e-5)
