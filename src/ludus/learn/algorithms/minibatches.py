"""Minibatches of a sample: of single steps, or of whole rows where state or loss run along time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.errors import DataError
from ludus.learn.algorithms.algorithm import Algorithm, SegmentConfig, View
from ludus.learn.algorithms.sample import SampleView

__all__ = ["Parts", "minibatches"]

Parts = list[Callable[[], View]]
"""A minibatch: one view, or as many as gradients are accumulated over. A view's forward pass runs when it is made."""


def minibatches(
    algorithm: Algorithm[Any], sample: SampleView, targets: dict[str, torch.Tensor], rng: np.random.Generator
) -> Iterator[Parts]:
    """All minibatches of all epochs; `rng` decides their order."""
    if algorithm.needs_time or sample.networks.policy.is_recurrent:
        return _of_rows(sample, targets, algorithm, rng)
    return _of_steps(sample, targets, algorithm, rng)


def _group_size(algorithm: Algorithm[Any]) -> int:
    """How many rows that follow each other are never separated."""
    return algorithm.num_agents if algorithm.group == "env" else 1


# --- of single steps


def _of_steps(
    sample: SampleView, targets: dict[str, torch.Tensor], algorithm: Algorithm[Any], rng: np.random.Generator
) -> Iterator[Parts]:
    """In a new order in each epoch, of steps of groups: of single rows, or of all agents of an env."""
    segment, config, each = sample.segment, algorithm.config, _group_size(algorithm)
    steps, rows = segment.reward.shape
    active = segment.active[:-1].reshape(-1, each)
    chosen = active.any(1).nonzero().squeeze(1)
    columns: dict[str, Any] = {
        "obs": nests.map(lambda leaf: leaf[:-1].flatten(0, 1), segment.obs),
        "action": segment.action.flatten(0, 1),
        "logp": segment.logp.flatten(),
        "mask": None if segment.mask is None else segment.mask[:-1].flatten(0, 1),
        "weight": _weights(sample, active, chosen),
        "row": None if sample.row is None else sample.row.expand(steps, rows).flatten(),
        "targets": {name: target.flatten(0, 1) for name, target in targets.items()},
    }
    of_envs: Nest = None
    if algorithm.group == "env":
        of_envs = nests.map(lambda leaf: None if leaf is None else leaf[:-1].flatten(0, 1), segment.global_state)
    size = config.minibatch_size or steps * rows
    num_minibatches = max(1, round(steps * rows / size))
    for _epoch in range(config.num_epochs):
        order = chosen[torch.from_numpy(rng.permutation(len(chosen)))]
        by_row = order if each == 1 else (order.unsqueeze(1) * each + torch.arange(each, device=order.device)).flatten()
        shuffled = nests.map(lambda leaf, o=by_row: None if leaf is None else leaf.index_select(0, o), columns)
        envs = nests.map(lambda leaf, o=order: None if leaf is None else leaf.index_select(0, o), of_envs)
        for number in range(num_minibatches):
            begin, end = len(order) * number // num_minibatches, len(order) * (number + 1) // num_minibatches
            num_own = (end - begin) * each
            if each > 1 and shuffled["weight"] is not None:
                num_own = int(active[order[begin:end]].sum())
            total = _total(num_own, config, sample, is_weighted=shuffled["weight"] is not None)
            if total == 0.0:  # all envs have failed: there is nothing to learn from
                continue
            parts = _split(begin, end, config.accumulate)
            yield [functools.partial(_step_view, algorithm, sample, shuffled, envs, part, total) for part in parts]


def _weights(sample: SampleView, active: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor | None:
    """What each row of a step counts; `None`: all the same. Of a group some may not act."""
    weight = None if sample.weight is None else sample.weight.expand(sample.segment.reward.shape).flatten()
    if active.shape[1] == 1 or bool(active[chosen].all()):
        return weight
    counts = active.flatten().to(sample.segment.reward.dtype)
    return counts if weight is None else weight * counts


def _total(num_own: int, config: SegmentConfig, sample: SampleView, *, is_weighted: bool) -> float | None:
    """What the steps of a minibatch are divided by, where a plain mean will not do."""
    if sample.reduce is None and not is_weighted and config.accumulate == 1 and num_own:
        return None
    count = torch.tensor(float(num_own), device=sample.segment.reward.device)
    if sample.reduce is not None:
        sample.reduce(count)
    return float(count)


def _step_view(
    algorithm: Algorithm[Any], sample: SampleView, columns: dict[str, Any], envs: Nest, part: slice, total: float | None
) -> View:
    each = _group_size(algorithm)
    rows = slice(part.start * each, part.stop * each)
    columns = nests.map(lambda leaf: None if leaf is None else leaf[rows], columns)
    obs = columns.pop("obs")
    with sample.autocast():
        params, value = sample.networks.policy.evaluate(obs)
    weight = columns.pop("weight")
    if total is not None:
        weight = torch.full_like(columns["logp"], 1.0 / total) if weight is None else weight / total
    view = View(
        head=sample.networks.policy.head,
        params=params.float(),
        value=value.float(),
        weight=weight,
        networks=sample.networks,
        reduce=sample.reduce,
        **columns,
    )
    if algorithm.group == "env":
        view.team_obs = nests.map(lambda leaf: leaf.unflatten(0, (-1, each)), obs)
        view.global_state = nests.map(lambda leaf: None if leaf is None else leaf[part], envs)
    return view


# --- of whole rows


def _of_rows(
    sample: SampleView, targets: dict[str, torch.Tensor], algorithm: Algorithm[Any], rng: np.random.Generator
) -> Iterator[Parts]:
    """In a new order in each epoch if there are several."""
    config, reduce, each = algorithm.config, sample.reduce, _group_size(algorithm)
    steps, rows = sample.segment.reward.shape
    groups = rows // each
    size = max(1, round(config.minibatch_size / steps / each)) if config.minibatch_size else groups
    num_minibatches = max(1, round(groups / size))
    if num_minibatches < config.accumulate and groups < config.accumulate:
        raise DataError(f"accumulate={config.accumulate} parts need as many rows; a segment has {groups}.")
    for _epoch in range(config.num_epochs):
        order = torch.from_numpy(rng.permutation(groups)) if num_minibatches > 1 else None
        for number in range(num_minibatches):
            begin, end = groups * number // num_minibatches, groups * (number + 1) // num_minibatches
            parts = [
                (sample, targets) if order is None and part == slice(0, groups) else
                _take_groups(algorithm, sample, targets, part if order is None else order[part])
                for part in _split(begin, end, config.accumulate)
            ]  # fmt: skip
            count = torch.stack([part.segment.active[:-1].sum() for part, _ in parts]).sum().float()
            if reduce is not None:
                reduce(count)
            if not count:  # all envs have failed: there is nothing to learn from
                continue
            yield [functools.partial(_row_view, algorithm, *part, count) for part in parts]


def _row_view(
    algorithm: Algorithm[Any], sample: SampleView, targets: dict[str, torch.Tensor], count: torch.Tensor
) -> View:
    segment, policy = sample.segment, sample.networks.policy
    steps, rows = segment.reward.shape
    with sample.autocast():
        if policy.is_recurrent:
            params, value = policy.evaluate(segment.obs, segment.state, segment.first)
        else:
            params, value = policy.evaluate(nests.map(lambda leaf: leaf.flatten(0, 1), segment.obs))
            params, value = params.view(steps + 1, rows, -1), value.view(steps + 1, rows)
    weight = segment.active[:-1] / count.clamp(min=1.0)
    view = View(
        head=policy.head,
        params=params[:-1].float(),
        value=value.float() + sample.shift if algorithm.needs_time else value[:-1].float(),
        action=segment.action,
        logp=segment.logp,
        mask=None if segment.mask is None else segment.mask[:-1],
        weight=weight if sample.weight is None else weight * sample.weight,
        targets=dict(targets),
        segment=segment,
        row=None if sample.row is None else sample.row.expand(steps, rows),
        networks=sample.networks,
        reduce=sample.reduce,
    )
    if algorithm.group == "env":
        view.team_obs = nests.map(lambda leaf: leaf[:-1].unflatten(1, (-1, algorithm.num_agents)), segment.obs)
        view.global_state = nests.map(lambda leaf: None if leaf is None else leaf[:-1], segment.global_state)
    return view


def _take_groups(
    algorithm: Algorithm[Any], sample: SampleView, targets: dict[str, torch.Tensor], groups: slice | torch.Tensor
) -> tuple[SampleView, dict[str, torch.Tensor]]:
    """All rows of these groups."""
    each, rows = _group_size(algorithm), groups
    if each > 1:
        places = torch.arange(sample.segment.num_rows, device=sample.segment.reward.device)
        rows = places.view(-1, each)[groups].flatten()

    def take(leaf: Any) -> Any:
        return None if leaf is None else leaf[:, rows]

    def take_row(leaf: Any) -> Any:
        return None if leaf is None else leaf[rows]

    whole = sample.segment
    taken = {name: nests.map(take, value) for name, value in whole.to_nest().items() if name not in _NOT_BY_ROW}
    segment = Segment(**taken, state=nests.map(take_row, whole.state), version=whole.version)
    if algorithm.group == "env":
        segment.global_state = nests.map(lambda leaf: None if leaf is None else leaf[:, groups], whole.global_state)
    part = dataclasses.replace(sample, segment=segment, weight=take_row(sample.weight), row=take_row(sample.row))
    return part, {name: take(target) for name, target in targets.items()}


_NOT_BY_ROW = ("state", "version", "global_state")


def _split(begin: int, end: int, num: int) -> list[slice]:
    num = min(num, max(end - begin, 1))
    return [slice(begin + (end - begin) * i // num, begin + (end - begin) * (i + 1) // num) for i in range(num)]
