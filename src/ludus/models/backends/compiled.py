"""torch.compile: the functional form is compiled, once, with the weights as inputs, so it serves all versions.

The first run compiles, for tens of seconds, in each process: for long-lived workers, not for quick starts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.models.backends.backend import BackendUnavailable, Source, to_arrays, to_tensors

__all__ = ["CompiledBackend"]

_TRACED_ROWS = (3, 5)  # 0 and 1 are special to the compiler, and two sizes make it take the axis for a variable


class CompiledBackend:
    """Needs a C++ compiler and an example."""

    name = "compile"
    loads_slowly = False
    checks_versions = True
    owns_outputs = False

    def __init__(self, source: Source) -> None:
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            raise BackendUnavailable(f"compile needs a C++ compiler, and {compiler} is not there")
        args, kwargs = source.example("compile")
        module = source.module

        def forward(weights: dict[str, torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return torch.func.functional_call(module, weights, args, kwargs, tie_weights=False)

        self._forward: Callable[..., Any] = torch.compile(forward, dynamic=True)
        handle = dict(module.state_dict())
        try:
            for num_rows in _TRACED_ROWS:
                self.run(handle, *nests.map(lambda leaf, n=num_rows: _repeated(leaf, n), (args, kwargs)))
        except Exception as error:
            raise BackendUnavailable(f"torch.compile cannot run the module: {type(error).__name__}: {error}") from error

    def load(self, weights: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array) for name, array in weights.items()}

    def run(self, handle: dict[str, torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Nest:
        with torch.inference_mode():
            return to_arrays(self._forward(handle, to_tensors(tuple(args)), to_tensors(dict(kwargs))))


def _repeated(leaf: NDArray[Any] | None, num_rows: int) -> NDArray[Any] | None:
    return None if leaf is None else leaf.repeat(num_rows, axis=0)
