"""The forward pass for choosing actions: NumPy in, NumPy out, no gradients.

A small MLP runs in NumPy itself: for 64 rows a call into torch costs more than the arithmetic. Everything else
runs in torch. Either way a runner reads the policy's own weights, so it is never behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.learn.networks.stacked import SingleMLP
from ludus.learn.networks.twin import TwinMLP

if TYPE_CHECKING:
    from ludus.learn.policies.policy import Policy

__all__ = ["MAX_NUMPY_ROWS", "NumpyRunner", "Runner", "TorchRunner", "runner_for", "step"]

MAX_NUMPY_ROWS = 512  # beyond, torch's threads and vectorisation win


class Runner(Protocol):
    """`params, state = runner(obs, state, first)` for one step of N rows."""

    def __call__(
        self, obs: Nest, state: Nest = None, first: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[Any], Nest]: ...


def runner_for(policy: Policy) -> Runner:
    model = policy.model
    if isinstance(model, TwinMLP | SingleMLP) and max(model.hidden) <= 256:
        return NumpyRunner(policy, model)
    return TorchRunner(policy)


class TorchRunner:
    """Any policy, on the device it is on."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __call__(
        self, obs: Nest, state: Nest = None, first: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[Any], Nest]:
        policy = self._policy
        with torch.inference_mode():
            if not policy.is_recurrent:
                return policy.evaluate(nests.map(_tensor, obs))[0].numpy(force=True), None
            params, _value, after = step(policy, *(nests.map(_tensor, each) for each in (obs, state, first)))
            return params.numpy(force=True), nests.map(lambda leaf: leaf.numpy(force=True), after)


def step(policy: Policy, obs: Nest, state: Nest, first: Any) -> tuple[Any, Any, Nest]:
    """Parameters, values and the state afterwards, of one step of N rows, as tensors."""
    if not policy.is_recurrent:
        return *policy.evaluate(obs), None
    one_step = nests.map(lambda leaf: leaf.unsqueeze(0), obs)
    params, value, after = policy.advance(one_step, state, first.unsqueeze(0))
    return params[0], value[0], after


class NumpyRunner:
    """The towers of an MLP, on arrays that share the parameters' memory. Towers: the policy's, then the value's."""

    def __init__(self, policy: Policy, model: TwinMLP | SingleMLP) -> None:
        self._whole = TorchRunner(policy)
        self._policy = policy
        self._model = model
        self._towers: list[list[tuple[NDArray[Any], NDArray[Any]]]] = []
        self._place = 0

    def __call__(
        self, obs: Nest, state: Nest = None, first: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[Any], Nest]:
        if len(obs) > MAX_NUMPY_ROWS:
            return self._whole(obs, state, first)
        h = self._run(0, obs)
        policy = self._policy
        common = [each.detach().numpy() for each in (policy.log_std, policy.exploration) if each is not None]
        if common:
            h = np.concatenate([h, *(np.broadcast_to(each, (len(h), len(each))) for each in common)], axis=1)
        return h, state

    def values(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Values [N] as `Policy.evaluate` has them."""
        if isinstance(self._model, SingleMLP):
            return np.zeros(len(obs), np.float32)
        return self._run(1, obs)[:, 0]

    def _run(self, tower: int, obs: NDArray[Any]) -> NDArray[Any]:
        if self._place != self._model.place():  # a learner moves parameters to memory of its own
            self._towers, self._place = self._model.layers(), self._model.place()
        h = obs if self._policy.normaliser is None else self._policy.normaliser.scaled_numpy(obs)
        layers = self._towers[tower]
        last = len(layers) - 1
        for number, (weight, bias) in enumerate(layers):
            h = h @ weight
            h += bias
            if number < last:
                _activate(h, self._model.activation)
        return h


def _activate(h: NDArray[Any], activation: str) -> None:
    if activation == "tanh":
        np.tanh(h, out=h)
    else:
        np.maximum(h, 0.0, out=h)


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
