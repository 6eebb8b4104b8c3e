"""What a backend is, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from ludus import errors
from ludus.data import nest as nests
from ludus.data.nest import Nest

__all__ = ["Backend", "BackendUnavailable", "Source", "to_arrays", "to_tensors"]


class BackendUnavailable(errors.LudusError):
    """A backend cannot run this module here; the text says why. Eager can."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The module, in eval mode; one row of its inputs with a row axis before it; and where an export may be kept."""

    module: torch.nn.Module
    args: tuple[Any, ...] | None = None  # `None`: nobody gave an example
    kwargs: Mapping[str, Any] | None = None
    export: Path | None = None

    def example(self, backend: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The example. Raises `BackendUnavailable` if there is none."""
        if self.args is None:
            raise BackendUnavailable(f"{backend} needs an example: give the model forward_args or forward_kwargs")
        return self.args, dict(self.kwargs or {})


class Backend(Protocol):
    """Runs a module with any version of its weights."""

    name: str
    loads_slowly: bool  # then versions are loaded aside, while others run, and any thread may call `load`
    checks_versions: bool  # each version is compared with eager when it is loaded; otherwise the backend was, once
    owns_outputs: bool  # each run's outputs are in memory of their own, so that callers need no copy

    def load(self, weights: Mapping[str, NDArray[Any]]) -> Any:
        """Make a version ready. Its arrays do not change; they are writable only because torch asks for it."""
        ...

    def run(self, handle: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Nest:
        """The outputs for arrays with a row axis, as NumPy arrays. Several threads may run one version at a time."""
        ...


def to_tensors(nest: Nest) -> Nest:
    return nests.map(lambda leaf: None if leaf is None else torch.from_numpy(leaf), nest)


def to_arrays(outputs: Nest) -> Nest:
    """Raises `DataError` if there is anything but tensors in them."""
    kind = type(outputs)
    if kind is torch.Tensor:
        return outputs.numpy(force=True)
    if isinstance(outputs, tuple):  # a named one, too
        return tuple([to_arrays(child) for child in outputs])
    if kind is list:
        return [to_arrays(child) for child in outputs]
    if isinstance(outputs, Mapping):
        return {key: to_arrays(child) for key, child in outputs.items()}
    if isinstance(outputs, torch.Tensor):
        return outputs.numpy(force=True)
    if outputs is None:
        return None
    raise errors.DataError(
        f"forward returned a {kind.__name__}; it must return a tensor, or a tuple, list or dict of tensors"
    )
