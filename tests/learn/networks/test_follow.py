from __future__ import annotations

import copy
import gc
from typing import Any

import torch
from torch import nn

from ludus.learn.networks import follow as following
from ludus.learn.networks.follow import follow


def network(seed: int) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_a_target_goes_its_share_of_the_way_and_takes_over_what_is_counted() -> None:
    target, source = network(0), network(1)
    source(torch.randn(8, 3))  # moves the running statistics, and their count
    for _ in range(3):
        before = state(target)
        follow(target, source, 0.25)
        theirs = state(source)
        for name, tensor in state(target).items():
            if tensor.is_floating_point():
                torch.testing.assert_close(tensor, 0.75 * before[name] + 0.25 * theirs[name])
        assert int(target[1].num_batches_tracked) == 1
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.data = parameter.data.clone() + 1.0  # elsewhere in memory, as an optimiser puts them


def test_all_of_the_way_is_a_copy_without_rounding() -> None:
    target, source = network(0), network(1)
    follow(target, source, 1.0)
    for name, tensor in state(source).items():
        assert torch.equal(target.state_dict()[name], tensor)
    with torch.no_grad():
        source[0].weight.zero_()
    assert target[0].weight.abs().sum() > 0.0, "the memory is its own"


def test_a_target_may_follow_another_network_and_so_may_its_copy() -> None:
    target, first, second = network(0), network(1), network(2)
    follow(target, first, 0.5)
    follow(target, second, 1.0)
    assert torch.equal(target[0].weight, second[0].weight)
    other = copy.deepcopy(target)
    follow(other, first, 1.0)
    assert torch.equal(other[0].weight, first[0].weight)
    assert torch.equal(target[0].weight, second[0].weight)


def test_targets_that_are_gone_are_not_kept() -> None:
    before = len(following._FOUND)
    target, source = network(0), network(1)
    follow(target, source, 0.5)
    assert len(following._FOUND) == before + 1
    del target, source
    gc.collect()
    assert len(following._FOUND) == before
