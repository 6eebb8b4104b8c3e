"""Target networks follow their source."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from ludus.learn.networks.follow import follow


def networks() -> tuple[nn.Module, nn.Module]:
    source = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    target = copy.deepcopy(source).requires_grad_(False)
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.normal_()
    source[1].num_batches_tracked.fill_(7)
    source[1].running_mean.fill_(4.0)
    return target, source


@pytest.mark.parametrize("tau", [0.0, 0.25, 1.0])
def test_it_moves_by_the_fraction_of_the_way(tau: float) -> None:
    target, source = networks()
    before = copy.deepcopy(target.state_dict())
    follow(target, source, tau)
    for name, tensor in target.state_dict().items():
        theirs = source.state_dict()[name]
        expected = theirs if not tensor.is_floating_point() else (1.0 - tau) * before[name] + tau * theirs
        torch.testing.assert_close(tensor, expected)


def test_parameters_may_be_moved_to_other_memory_between_steps() -> None:
    target, source = networks()
    follow(target, source, 1.0)
    for network in (target, source):
        for parameter in network.parameters():
            parameter.data = parameter.data + 1.0
    with torch.no_grad():
        source[0].weight.fill_(3.0)
    follow(target, source, 1.0)
    assert torch.equal(target[0].weight, source[0].weight)
    assert torch.equal(target[0].bias, source[0].bias)


def test_it_may_follow_another_source_afterwards() -> None:
    target, source = networks()
    follow(target, source, 1.0)
    other = copy.deepcopy(source)
    with torch.no_grad():
        other[0].weight.fill_(5.0)
    follow(target, other, 1.0)
    assert torch.equal(target[0].weight, other[0].weight)
