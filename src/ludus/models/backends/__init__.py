"""Backends: ways to run one module with many versions of its weights, each held to what eager torch gives.

backend = prepare("onnx", source, num_threads=1)
handle = backend.load(weights)                     # of one version; none of them changes the others
outputs = backend.run(handle, args, kwargs)        # NumPy nests with a row axis, in and out
"""

from __future__ import annotations

from ludus import errors
from ludus.models.backends.backend import Backend, BackendUnavailable, Source

__all__ = ["Backend", "BackendUnavailable", "Source", "prepare"]


def prepare(name: str, source: Source, *, num_threads: int = 1) -> Backend:
    """A backend that is ready to load versions. Raises `BackendUnavailable`, with the reason, if it cannot be had."""
    match name:
        case "eager":
            from ludus.models.backends.eager import EagerBackend

            return EagerBackend(source)
        case "numpy":
            from ludus.models.backends.numpy import NumpyBackend

            return NumpyBackend(source)
        case "compile":
            from ludus.models.backends.compiled import CompiledBackend

            return CompiledBackend(source)
        case "onnx":
            from ludus.models.backends.onnx import OnnxBackend

            return OnnxBackend(source, num_threads=num_threads)
        case "int8":
            from ludus.models.backends.int8 import Int8Backend

            return Int8Backend(source, num_threads=num_threads)
        case _:
            raise errors.ConfigError(f"there is no backend {name!r}")
