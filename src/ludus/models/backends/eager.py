"""Eager torch: what all other backends are held to.

A version is the module with that version's own memory as its parameters: nothing is copied, and a run is a plain call
of the module.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.models.backends.backend import Source, to_arrays, to_tensors

__all__ = ["EagerBackend", "with_weights"]


def with_weights(module: torch.nn.Module, weights: Mapping[str, NDArray[Any]]) -> torch.nn.Module:
    """A twin of the module that has the memory of `weights`; what is not among them it shares with the module."""
    shared = {id(tensor): tensor for tensor in [*module.parameters(), *module.buffers()]}
    twin = copy.deepcopy(module, shared)
    twin.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, assign=True)
    return twin


class EagerBackend:
    """Any module."""

    name = "eager"
    loads_slowly = False
    checks_versions = True
    owns_outputs = False

    def __init__(self, source: Source) -> None:
        self._module = source.module

    def load(self, weights: Mapping[str, NDArray[Any]]) -> torch.nn.Module:
        return with_weights(self._module, weights)

    def run(self, handle: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Nest:
        with torch.inference_mode():
            if not kwargs:
                return to_arrays(handle(*[to_tensors(arg) for arg in args]))
            return to_arrays(handle(*to_tensors(args), **to_tensors(dict(kwargs))))
