"""Stacked MLPs give what plain layers give, and so do their gradients, by torch's graph and without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ludus.learn.networks.stack_passes import StackMemory, StackPasses
from ludus.learn.networks.stacked import SingleMLP, StackedMLP

torch.set_num_threads(1)

SHAPES = [(1, 1), (1, 3), (2, 1), (3, 2)]  # towers and outputs


def make(
    num_towers: int, num_outputs: int, *, activation: str = "relu", hidden: tuple[int, ...] = (7, 6)
) -> StackedMLP:
    torch.manual_seed(3)
    stack = StackedMLP(num_towers, 4, num_outputs, hidden, activation)
    with torch.no_grad():
        for bias in stack.biases:
            bias.normal_()
    return stack


def plain(stack: StackedMLP, x: torch.Tensor) -> torch.Tensor:
    """By torch's own layers, one tower after the other."""
    activate = torch.relu if stack.activation == "relu" else torch.tanh
    outputs = []
    for tower in range(stack.num_towers):
        h = x if x.dim() == 2 else x[tower]
        *layers, (last, last_bias) = zip(stack.weights, stack.biases, strict=True)
        for weight, bias in layers:
            h = activate(h @ weight[tower] + bias[tower])
        outputs.append(h @ last[tower].T + last_bias[tower].T)
    return torch.stack(outputs)


@pytest.mark.parametrize(("num_towers", "num_outputs"), SHAPES)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("is_stacked", [False, True])
@pytest.mark.parametrize("hidden", [(7, 6), (5,), ()])
def test_outputs_and_gradients_are_those_of_plain_layers(
    num_towers: int, num_outputs: int, activation: str, is_stacked: bool, hidden: tuple[int, ...]
) -> None:
    stack = make(num_towers, num_outputs, activation=activation, hidden=hidden).double()
    x = torch.randn(num_towers, 9, 4) if is_stacked else torch.randn(9, 4)
    x = x.double().requires_grad_()
    weighed = torch.randn(num_towers, 9, num_outputs).double()
    outputs, expected = stack(x), plain(stack, x)
    torch.testing.assert_close(outputs, expected)
    inputs = [x, *stack.parameters()]
    gradients = torch.autograd.grad((outputs * weighed).sum(), inputs)
    for ours, theirs in zip(gradients, torch.autograd.grad((expected * weighed).sum(), inputs), strict=True):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        torch.testing.assert_close(stack(x), expected)


@pytest.mark.parametrize(("num_towers", "num_outputs"), SHAPES)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("is_stacked", [False, True])
def test_a_frozen_stack_hands_gradients_to_its_inputs_alone(
    num_towers: int, num_outputs: int, activation: str, is_stacked: bool
) -> None:
    stack = make(num_towers, num_outputs, activation=activation).double()
    x = (torch.randn(num_towers, 9, 4) if is_stacked else torch.randn(9, 4)).double().requires_grad_()
    weighed = torch.randn(num_towers, 9, num_outputs).double()
    weighed[torch.rand(num_towers, 9) < 0.5] = 0.0  # rows that are left out
    weighed[0] = 0.0  # and a whole tower
    (stack(x, is_frozen=True) * weighed).sum().backward()
    assert all(parameter.grad is None for parameter in stack.parameters())
    (expected,) = torch.autograd.grad((plain(stack, x) * weighed).sum(), x)
    torch.testing.assert_close(x.grad, expected)


def test_the_first_towers_alone_are_as_among_all() -> None:
    stack, x = make(3, 1), torch.randn(5, 4)
    torch.testing.assert_close(stack(x, num_towers=2), stack(x)[:2])


def test_half_precision_is_not_used() -> None:
    stack, x = make(2, 1), torch.randn(5, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(stack(x), stack(x.clone()))
        assert stack(x).dtype == torch.float32


def test_a_single_one_shows_its_layers_as_arrays() -> None:
    torch.manual_seed(1)
    mlp = SingleMLP(4, 3, (6, 5), "relu")
    x = torch.randn(8, 4)
    h = x.numpy()
    (layers,) = mlp.layers()
    for number, (weight, bias) in enumerate(layers):
        h = h @ weight + bias
        h = np.maximum(h, 0.0) if number < 2 else h
    outputs, value = mlp(x)
    np.testing.assert_allclose(outputs.detach().numpy(), h, atol=1e-6)
    assert not value.any()


# --- without torch's graph


def with_gradients(stack: StackedMLP) -> StackedMLP:
    for parameter in stack.parameters():
        parameter.grad = torch.full_like(parameter, 9.0)  # to be overwritten
    return stack


@pytest.mark.parametrize(("num_towers", "num_outputs"), SHAPES)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", [(7, 6), (6, 6, 6), (5,)])
def test_passes_give_what_the_graph_gives(
    num_towers: int, num_outputs: int, activation: str, hidden: tuple[int, ...]
) -> None:
    stack = with_gradients(make(num_towers, num_outputs, activation=activation, hidden=hidden))
    passes = StackPasses(stack)
    for num_rows in (9, 4, 9):
        x = torch.randn(num_rows, 4)
        weighed = torch.randn(num_towers, num_outputs, num_rows)
        expected = plain(stack, x)
        of_parameters = torch.autograd.grad((expected.transpose(1, 2) * weighed).sum(), list(stack.parameters()))
        with torch.no_grad():
            outputs = passes.forward(x[:, :3].numpy(), x[:, 3:].numpy())
            np.testing.assert_allclose(outputs, expected.detach().transpose(1, 2).numpy(), atol=1e-5)
            passes.backward(weighed.numpy())
        for parameter, theirs in zip(stack.parameters(), of_parameters, strict=True):
            torch.testing.assert_close(parameter.grad, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [[0, 2, 3], [1], list(range(9))], ids=str)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_passes_give_the_gradient_of_some_inputs_by_some_rows(rows: list[int], activation: str) -> None:
    stack, x = make(2, 1, activation=activation), torch.randn(9, 4, requires_grad=True)
    passes = StackPasses(stack)
    weighed = torch.randn(9)
    for tower in range(2):
        (expected,) = torch.autograd.grad((plain(stack, x)[tower, :, 0] * weighed)[rows].sum(), x)
        with torch.no_grad():
            passes.forward(x.detach().numpy())
            found = passes.input_gradient(weighed[rows][None].numpy(), tower, np.array(rows), slice(2, None))
        np.testing.assert_allclose(found, expected[rows, 2:].numpy(), atol=1e-5)


def test_passes_follow_parameters_that_are_moved() -> None:
    stack, x = with_gradients(make(2, 1)), torch.randn(9, 4)
    passes = StackPasses(stack)
    with torch.no_grad():
        passes.forward(x.numpy())
        passes.backward(np.ones((2, 1, 9), np.float32))
        for parameter in stack.parameters():
            parameter.data = parameter.data * 2.0
            parameter.grad = torch.zeros_like(parameter)
        np.testing.assert_allclose(passes.forward(x.numpy())[:, 0], plain(stack, x)[..., 0].numpy(), atol=1e-4)
        passes.backward(np.ones((2, 1, 9), np.float32))
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in stack.parameters())


def test_stacks_may_work_in_the_same_memory() -> None:
    memory = StackMemory()
    stacks = [with_gradients(make(2, 1)) for _ in range(2)]
    with torch.no_grad():
        stacks[1].weights[0].mul_(2.0)
    passes: list[Any] = [StackPasses(stack, memory) for stack in stacks]
    x = torch.randn(9, 4)
    with torch.no_grad():
        for stack, each in zip(stacks, passes, strict=True):
            np.testing.assert_allclose(each.forward(x.numpy())[:, 0], plain(stack, x)[..., 0].numpy(), atol=1e-5)
