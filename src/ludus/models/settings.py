"""How a model is run and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ludus import errors, spelling

__all__ = ["BACKENDS", "ModelSettings"]

BACKENDS = ("eager", "numpy", "compile", "onnx", "int8", "auto")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """How a model is run and kept, for all processes of its trial."""

    local_mode: bool = False  # in the callers' own processes, or in workers of its own
    num_workers: int = 1
    max_batch: int = 256  # rows
    num_threads: int = 1
    backend: str = "eager"
    tolerance: float = 1e-4  # how far a backend may be from eager, absolute and relative
    checkpoint_seconds: float | None = None
    checkpoint_steps: int | None = None
    keep: int = 8  # of the newest versions
    max_busy_s: float = 30.0  # a worker that takes longer for a forward pass, after its first, is replaced; 0: never

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            near = spelling.nearest(str(self.backend), BACKENDS)
            raise errors.ConfigError(f"there is no backend {self.backend!r}. {near}")
        if min(self.num_workers, self.max_batch, self.num_threads, self.keep) < 1 or self.tolerance < 0:
            raise errors.ConfigError(f"{self}: counts begin at 1, and a tolerance is not negative.")
        if self.max_busy_s < 0:
            raise errors.ConfigError(f"{self}: max_busy_s is a time; 0 is for no limit.")
        given = [x for x in (self.checkpoint_seconds, self.checkpoint_steps) if x is not None]
        if given and min(given) <= 0:
            raise errors.ConfigError(f"{self}: a checkpoint every 0 seconds or steps is none; leave it out.")

    def changed(self, given: Mapping[str, Any]) -> ModelSettings:
        """With those of `given` that are not `None`."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})
