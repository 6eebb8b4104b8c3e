"""From observations to features: an encoder for each image of a nest, one for all its other numbers together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError
from ludus.learn.networks.cnn import ImageNetwork, ImpalaResNet, NatureCNN, SmallCNN, image_sides
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.mlp import MLP

__all__ = ["IMAGE_ENCODERS", "Encoder", "has_no_scale", "is_image"]

IMAGE_ENCODERS: dict[str, Any] = {"small": SmallCNN, "nature": NatureCNN, "impala": ImpalaResNet}
_MAX_ONE_HOT = 1024  # choices; one observation of more of them is embedded
_EMBEDDING_SIZE = 64
_MAX_SCALED = 2.0**31 - 1  # a bound as large as that says that there is none


def is_image(spec: Any) -> bool:
    """Whether `auto` reads it with a CNN: three axes (two, if of bytes) and sides that are long enough."""
    sides = image_sides(spec.shape) if isinstance(spec, ArraySpec) else None
    if sides is None or (len(spec.shape) == 2 and spec.dtype != np.uint8):
        return False
    return min(sides[1:]) >= NatureCNN.min_side


class Encoder(nn.Module):
    """`forward(obs) -> features [N, num_features]` for a nest of tensors `[N, ...]` with the structure of the spec."""

    def __init__(self, obs: Nest, config: NetworkConfig) -> None:
        super().__init__()
        self._spec = obs
        self.readers = nn.ModuleList()
        num_flat = num_image = num_read = 0
        for path, spec in zip(nests.paths(obs), nests.leaves(obs), strict=True):
            if not isinstance(spec, ArraySpec):
                raise ConfigError(f"the observation {path!r} is described by {spec!r}; it must be an ArraySpec.")
            reader = _reader_for(spec, config)
            self.readers.append(reader)
            if isinstance(reader, ImageNetwork):
                num_image += reader.num_features
            else:
                num_flat += reader.num_features
                num_read += 1 if np.prod(spec.shape) == 1 else reader.num_features  # one choice, of however many
        if not num_image and config.encoder in IMAGE_ENCODERS:
            raise ConfigError(f"encoder={config.encoder} reads images, and no observation is one. Use auto or mlp.")
        self.mlp = MLP(num_flat, config.hidden_for(num_read), config.activation or "tanh") if num_flat else None
        self.num_features = num_image + (self.mlp.num_features if self.mlp is not None else 0)
        if not self.num_features:
            raise ConfigError("the observations hold no numbers at all: there is nothing to act upon.")

    def forward(self, obs: Nest) -> Any:
        if isinstance(self._spec, ArraySpec):
            (reader,) = self.readers
            return self.mlp(reader(obs)) if self.mlp is not None else reader(obs)
        flat: list[Any] = []
        features: list[Any] = []
        for reader, leaf in zip(self.readers, self._leaves(obs), strict=True):
            (features if isinstance(reader, ImageNetwork) else flat).append(reader(leaf))
        if self.mlp is not None:
            features.append(self.mlp(torch.cat(flat, dim=-1)))
        return torch.cat(features, dim=-1)

    def _leaves(self, obs: Nest) -> list[Any]:
        """In the order of the spec, whose dicts may have another than those of the observations."""
        return nests.leaves(nests.map(lambda _, leaf: leaf, self._spec, obs))


def _reader_for(spec: ArraySpec, config: NetworkConfig) -> Any:
    if _is_read_by_cnn(spec, config):
        return IMAGE_ENCODERS.get(config.encoder, NatureCNN)(spec.shape, bounds(spec))
    sizes = _choices(spec)
    if sizes is None:
        return _Numbers(spec)
    if len(sizes) == 1 and sizes[0] > _MAX_ONE_HOT:
        return _Embedding(spec, sizes[0])
    return _OneHot(spec, sizes)


def has_no_scale(spec: ArraySpec, config: NetworkConfig) -> bool:
    """Whether these are integers, read as numbers, whose bounds do not tell how large they are.

    Bounds of a whole dtype are none: MiniGrid's codes, 0 to 10, come as bytes from 0 to 255.
    """
    if spec.dtype.kind not in "iu" or 0 in spec.shape:
        return False
    return not _is_read_by_cnn(spec, config) and _choices(spec) is None and not bool(_is_bounded(spec).all())


def _is_read_by_cnn(spec: ArraySpec, config: NetworkConfig) -> bool:
    if config.encoder in IMAGE_ENCODERS:
        return len(spec.shape) == 3 or is_image(spec)
    return config.encoder == "auto" and is_image(spec)


def bounds(spec: ArraySpec) -> tuple[float, float]:
    """The least and the largest number of an image, which is brought to 0 to 1; `(0, 1)`: left as it is.

    Integers are scaled by their spec's bounds, bytes without bounds by 0 and 255. Floats are for the normaliser.
    """
    if spec.dtype.kind not in "iu":
        return 0.0, 1.0
    low, high = _entry_bounds(spec)
    return float(low.min(initial=0.0)), float(high.max(initial=1.0))


def _entry_bounds(spec: ArraySpec) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each entry of an integer observation; 0 and 1 where there is nothing to scale by."""
    limits = np.iinfo(spec.dtype)
    low, high = (
        np.broadcast_to(np.asarray(limit if bound is None else bound, np.float64), spec.shape)
        for bound, limit in ((spec.minimum, limits.min), (spec.maximum, limits.max))
    )
    is_scaled = (_is_bounded(spec) | (spec.dtype == np.uint8)) & (low < high)
    return np.where(is_scaled, low, 0.0), np.where(is_scaled, high, 1.0)


def _is_bounded(spec: ArraySpec) -> NDArray[np.bool_]:
    """Which entries of an integer observation have bounds of their own."""
    limits = np.iinfo(spec.dtype)
    if spec.minimum is None or spec.maximum is None:
        return np.zeros(spec.shape, np.bool_)
    low, high = (np.broadcast_to(np.asarray(bound), spec.shape) for bound in (spec.minimum, spec.maximum))
    is_whole_dtype = (low <= limits.min) & (high >= limits.max)
    return np.asarray(~is_whole_dtype & (high < _MAX_SCALED) & (low > -_MAX_SCALED))


def _choices(spec: ArraySpec) -> list[int] | None:
    """How many values each entry of a bounded integer observation has; `None` if they are better read as numbers."""
    if spec.dtype.kind not in "iu" or spec.dtype == np.uint8 or len(spec.shape) > 1:
        return None
    if spec.minimum is None or spec.maximum is None:
        return None
    sizes = np.broadcast_to(np.asarray(spec.maximum) - np.asarray(spec.minimum) + 1, spec.shape).reshape(-1)
    if not sizes.size or sizes.max() <= 2 or (sizes.size > 1 and sizes.sum() > _MAX_ONE_HOT):
        return None
    return [int(size) for size in sizes]


class _Numbers(nn.Module):
    """Any array as a float32 vector. Integers, unless normalised, are scaled to 0 to 1, each entry by its bounds."""

    _low: torch.Tensor
    _scale: torch.Tensor

    def __init__(self, spec: ArraySpec) -> None:
        super().__init__()
        self.num_features = int(np.prod(spec.shape, dtype=np.int64))
        self._is_scaled = False
        if spec.dtype.kind in "iu" and self.num_features:
            low, high = (bound.reshape(-1) for bound in _entry_bounds(spec))
            self._is_scaled = bool((low != 0.0).any() or (high != 1.0).any())
            self.register_buffer("_low", torch.from_numpy(low).float(), persistent=False)
            self.register_buffer("_scale", torch.from_numpy(1.0 / (high - low)).float(), persistent=False)

    def forward(self, x: Any) -> Any:
        is_normalised = x.is_floating_point()
        x = x.reshape(x.shape[0], self.num_features).float()
        return (x - self._low) * self._scale if self._is_scaled and not is_normalised else x


class _OneHot(nn.Module):
    """Choices, each as a vector with a single 1, side by side."""

    def __init__(self, spec: ArraySpec, sizes: list[int]) -> None:
        super().__init__()
        self.num_features = sum(sizes)
        starts = np.cumsum([0, *sizes[:-1]]) - np.broadcast_to(np.asarray(spec.minimum), (len(sizes),))
        self.register_buffer("_starts", torch.from_numpy(starts.astype(np.int64)), persistent=False)
        self.register_buffer("_rows", torch.eye(self.num_features), persistent=False)

    def forward(self, x: Any) -> Any:
        return F.embedding(x.reshape(x.shape[0], -1) + self._starts, self._rows).sum(1)


class _Embedding(nn.Module):
    """One choice of very many, as a learnt vector."""

    num_features = _EMBEDDING_SIZE

    def __init__(self, spec: ArraySpec, num_choices: int) -> None:
        super().__init__()
        self.table = nn.Embedding(num_choices, self.num_features)
        self._start = int(np.asarray(spec.minimum))

    def forward(self, x: Any) -> Any:
        return self.table(x.reshape(-1).long() - self._start)
