"""The networks of an algorithm with their optimisers: made, brought into the mode of training, saved and restored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from ludus.data.nest import Nest
from ludus.learn.algorithms.algorithm import Algorithm
from ludus.learn.algorithms.optimiser import Optimiser
from ludus.learn.networks.weights import load_weights, weights_of
from ludus.learn.policies.policy import Policy

__all__ = ["Ranks", "TrainedNetworks"]


class Ranks(Protocol):
    """The other trainers. All of them call the same methods in the same order."""

    rank: int
    size: int

    def sum_(self, tensor: torch.Tensor) -> None:
        """Replace the tensor by its sum over all ranks."""
        ...


class TrainedNetworks:
    """`networks` are those of `algorithm.networks(policy)`; `optimisers` has one for each that is trained, by name."""

    def __init__(
        self, algorithm: Algorithm[Any], policy: Policy, *, seed: int, device: str, ranks: Ranks | None
    ) -> None:
        self._config = algorithm.config
        self._device = torch.device(device)
        self._ranks = ranks
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.networks = algorithm.networks(policy)
        for network in self._others().values():
            network.to(device)
        for network in self.networks.targets.values():
            network.requires_grad_(False).eval()
        self._trained: dict[str, nn.Module] = {"policy": policy, **self.networks.trained}
        self.optimisers = {name: Optimiser(network, self._config) for name, network in self._trained.items()}

    def _others(self) -> dict[str, nn.Module]:
        """All networks but the policy."""
        return {**self.networks.trained, **self.networks.targets}

    def anneal(self, progress: float) -> None:
        """Set the learning rates for this fraction of the run, if they are to decay."""
        if self._config.anneal:
            for optimiser in self.optimisers.values():
                optimiser.set_learning_rate(self._config.learning_rate * (1.0 - min(progress, 1.0)))

    @contextlib.contextmanager
    def training(self, rng: np.random.Generator) -> Iterator[None]:
        """Models with modes are in that of training, and torch's rng (dropout) is seeded by the learner's own."""
        if not self.networks.policy.has_modes and not self.networks.trained:
            yield
            return
        with torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else []):
            rank = self._ranks.rank if self._ranks is not None else 0
            torch.manual_seed(int(rng.integers(1 << 62)) + rank)
            for network in self._trained.values():
                network.train()
            try:
                yield
            finally:
                for network in self._trained.values():
                    network.eval()
        self._share_statistics()

    def _share_statistics(self) -> None:
        """The mean over ranks of running statistics: each has seen its own rows, and all must act alike."""
        if self._ranks is None or self._ranks.size == 1:
            return
        for module in (module for network in self._trained.values() for module in network.modules()):
            if isinstance(module, torch.nn.modules.batchnorm._NormBase):
                for running in (module.running_mean, module.running_var):
                    if running is not None:
                        self._ranks.sum_(running)
                        running.div_(self._ranks.size)

    def save(self) -> dict[str, Nest]:
        """All weights, as a nest for the codec, and what the optimisers remember."""
        saved: dict[str, Nest] = {
            "weights": self.networks.policy.weights(),
            "optimiser": self.optimisers["policy"].save(),
        }
        if others := self._others():
            saved["networks"] = {name: weights_of(network) for name, network in others.items()}
            saved["optimisers"] = {name: self.optimisers[name].save() for name in self.networks.trained}
        return saved

    def restore(self, saved: dict[str, Nest]) -> None:
        self.networks.policy.load_weights(saved["weights"])
        self.optimisers["policy"].restore(saved["optimiser"])
        for name, network in self._others().items():
            load_weights(network, saved["networks"][name])
        for name in self.networks.trained:
            self.optimisers[name].restore(saved["optimisers"][name])
