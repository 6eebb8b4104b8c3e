"""Small modules, and folders of models that have them; imported by workers, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ludus.models.definition import Definition, ModelFolder
from ludus.models.versions.store import VersionStore

IMAGE = np.arange(2 * 6 * 6, dtype=np.uint8).reshape(2, 6, 6)


class Net(torch.nn.Module):
    """An image of bytes in, two outputs out."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.hidden = torch.nn.Linear(64, hidden)
        self.policy = torch.nn.Linear(hidden, 3)
        self.value = torch.nn.Linear(hidden, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.norm(self.conv(image * (1 / 255.0))))
        x = torch.relu(self.hidden(x.flatten(1)))
        return self.policy(x), self.value(x).squeeze(1)


class Nested(torch.nn.Module):
    """A dict and a keyword in, a dict out; one weight is used twice, one not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(4, 4)
        self.two = torch.nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.never = torch.nn.Linear(2, 2)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, obs: dict[str, torch.Tensor], *, mask: torch.Tensor, extra: Any = None) -> dict[str, Any]:
        x = self.two(torch.tanh(self.one(obs["place"]) + obs["goal"])) * self.scale
        return {"logits": torch.where(mask, x, -1e9), "rest": [x.sum(1), obs["place"]], "none": extra}


def net(seed: int, **options: Any) -> Net:
    """Its weights are large enough that the outputs of two seeds differ widely."""
    module = Net(**options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.5)
        module.norm.running_mean.copy_(torch.randn(4, generator=generator))
    return module


def weights_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (count, 2, 6, 6), np.uint8)


def expected(seed: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What version `seed` answers to rows, by itself."""
    with torch.inference_mode():
        policy, value = net(seed).eval()(torch.from_numpy(rows))
    return policy.numpy(), value.numpy()


def make(folder: Path, *seeds: int, keep: int = 8, **settings: Any) -> tuple[ModelFolder, VersionStore]:
    """A model "net" whose version n is `net(seeds[n])`."""
    model = ModelFolder(folder, "net")
    model.create(Definition(module=net(seeds[0]), forward_args=(IMAGE,)), {"keep": keep, **settings})
    store = VersionStore(folder, keep=keep)
    for number, seed in enumerate(seeds[1:], 1):
        store.publish("net", weights_of(net(seed)), number=number)
    return model, store


class Outcomes:
    """A sink that keeps its outcomes, and how often each came."""

    def __init__(self) -> None:
        self.found: dict[Any, Any] = {}
        self.versions: dict[Any, int] = {}
        self.num_reported = 0

    def deliver(self, tokens: list[Any], results: list[Any], version: int) -> None:
        self.num_reported += 1
        self.found.update(zip(tokens, results, strict=True))
        self.versions.update(dict.fromkeys(tokens, version))

    def fail(self, tokens: list[Any], error: BaseException) -> None:
        self.num_reported += 1
        self.found.update((token, error) for token in tokens)
