"""A network's parameters and buffers by name, as NumPy arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from ludus.errors import DataError

__all__ = ["load_weights", "weights_of"]


def weights_of(network: nn.Module) -> dict[str, NDArray[Any]]:
    """Copies of all parameters and buffers."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}


def load_weights(network: nn.Module, weights: Mapping[str, NDArray[Any]]) -> None:
    """Copy the weights into the network, in place. Raises `DataError` unless names and shapes are this network's."""
    own = network.state_dict()
    if own.keys() != weights.keys():
        raise DataError(
            f"these weights are of another network: {sorted(own.keys() ^ weights.keys())[:4]} differ. "
            "The network's settings must be those it was trained with."
        )
    for name, tensor in own.items():
        if tuple(tensor.shape) != tuple(weights[name].shape):
            raise DataError(f"the weights {name!r} are {weights[name].shape}; they must be {tuple(tensor.shape)}.")
        if tensor.device.type == "cpu":
            tensor.numpy()[...] = weights[name]  # which may be read-only: torch would warn of it
        else:
            tensor.copy_(torch.tensor(weights[name]))
