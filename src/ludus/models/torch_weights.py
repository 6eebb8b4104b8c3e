"""The weights of a torch module as NumPy arrays by name, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import errors

__all__ = ["as_arrays", "difference", "get_torch_model_weights", "set_torch_model_weights"]

_MOST_DIFFERENCES = 5


def get_torch_model_weights(model: torch.nn.Module) -> dict[str, NDArray[Any]]:
    """Parameters and buffers, by the names of `state_dict`. They are copies: training goes on without changing them."""
    return {name: _array(name, tensor).copy() for name, tensor in model.state_dict().items()}


def set_torch_model_weights(model: torch.nn.Module, weights: Mapping[str, Any]) -> None:
    """The inverse: copies `weights` into the model. Raises `DataError` if they are of another architecture."""
    arrays = as_arrays(weights)
    differences = difference(as_arrays(model.state_dict()), arrays)
    if differences:
        raise errors.DataError(f"these are the weights of another architecture, and were not loaded: {differences}")
    model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})


def as_arrays(weights: Mapping[str, Any] | torch.nn.Module) -> dict[str, NDArray[Any]]:
    """Weights given as a module, as tensors or as arrays. Nothing is copied that need not be."""
    named = weights.state_dict() if isinstance(weights, torch.nn.Module) else weights
    if not isinstance(named, Mapping):
        raise errors.DataError(f"weights are tensors or arrays by name; these are a {type(named).__name__}")
    return {name: _array(name, value) for name, value in named.items()}


def difference(wanted: Mapping[str, NDArray[Any]], given: Mapping[str, NDArray[Any]]) -> str:
    """How two sets of weights differ in names, shapes and dtypes; empty if they do not."""
    differences = [f"{name!r} is missing" for name in wanted if name not in given]
    differences += [f"{name!r} is unknown" for name in given if name not in wanted]
    for name, array in wanted.items():
        other = given.get(name)
        if other is not None and (array.shape != other.shape or array.dtype != other.dtype):
            differences.append(
                f"{name!r} is {other.dtype}{list(other.shape)} and should be {array.dtype}{list(array.shape)}"
            )
    if len(differences) > _MOST_DIFFERENCES:
        differences = [*differences[:_MOST_DIFFERENCES], f"and {len(differences) - _MOST_DIFFERENCES} more"]
    return "; ".join(differences)


def _array(name: str, value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, torch.Tensor):
        raise errors.DataError(f"weights are tensors or arrays by name; {name!r} is a {type(value).__name__}")
    try:
        array: NDArray[Any] = value.detach().numpy(force=True)
    except (TypeError, RuntimeError) as error:
        raise errors.DataError(
            f"weight {name!r} of dtype {value.dtype} cannot be a NumPy array ({error}); convert the model, for "
            "instance by model.float()"
        ) from None
    return array
