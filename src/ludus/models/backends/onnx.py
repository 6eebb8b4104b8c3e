"""ONNX Runtime: the module is exported once, with its weights as inputs of the graph; each version is a session.

A session is made of the exported graph with the version's weights as constants, so the runtime can lay them out for
its kernels; docs/decisions/0009 has what this gains over feeding them as inputs, and what it costs.
"""

from __future__ import annotations

import hashlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import errors, files
from ludus.data import nest as nests
from ludus.data.nest import Nest, Structure
from ludus.models.backends.backend import BackendUnavailable, Source, to_arrays, to_tensors
from ludus.models.backends.eager import with_weights
from ludus.program import folder as folders

__all__ = ["WEIGHT", "OnnxBackend", "export"]

_LOG = logging.getLogger(__name__)
_OPSET = 17
WEIGHT, _INPUT, _OUTPUT = "weight:", "input:", "output:"


class OnnxBackend:
    """Whatever torch's exporter can express, with a row axis of any length."""

    name = "onnx"
    loads_slowly = True
    checks_versions = True
    owns_outputs = True

    def __init__(self, source: Source, *, num_threads: int = 1) -> None:
        try:
            import onnx
            import onnxruntime  # type: ignore[import-untyped]
        except ImportError:
            raise BackendUnavailable(str(errors.MissingExtra("onnxruntime", extra="onnx"))) from None
        self._onnx, self._runtime = onnx, onnxruntime
        args, kwargs = source.example("onnx")
        self._outputs = _output_structure(source.module, args, kwargs)
        self._graph = onnx.load_from_string(_exported(source, args, kwargs))
        self._used = {value.name for value in self._graph.graph.input}
        self._options = onnxruntime.SessionOptions()
        self._options.intra_op_num_threads = num_threads
        self._options.inter_op_num_threads = 1
        self._options.log_severity_level = 3

    def load(self, weights: Mapping[str, NDArray[Any]]) -> Any:
        model = self._onnx.ModelProto()
        model.CopyFrom(self._graph)
        graph = model.graph
        inputs = [value for value in graph.input if not value.name.startswith(WEIGHT)]
        del graph.input[:]
        graph.input.extend(inputs)
        wanted = {name for node in graph.node for name in node.input}
        for given, array in weights.items():
            for name, constant in self._constants(WEIGHT + given, array):
                if name in wanted:
                    graph.initializer.append(self._onnx.numpy_helper.from_array(constant, name))
        return self._runtime.InferenceSession(
            model.SerializeToString(), self._options, providers=["CPUExecutionProvider"]
        )

    def _constants(self, name: str, array: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
        """What the graph may use of one weight."""
        yield name, np.asarray(array)

    def run(self, handle: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Nest:
        given = [leaf for leaf in nests.leaves((args, dict(kwargs))) if leaf is not None]
        feed = {name: leaf for i, leaf in enumerate(given) if (name := f"{_INPUT}{i}") in self._used}
        outputs = iter(handle.run(None, feed))
        flat = [next(outputs) if is_there else None for is_there in self._outputs[1]]
        return nests.unflatten(self._outputs[0], flat)


def export(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """The module as an ONNX model whose inputs are its weights, `weight:NAME`, and its arguments, `input:0` and on."""
    leaves, structure = nests.flatten((tuple(args), dict(kwargs)))
    given = [torch.from_numpy(np.array(leaf)) for leaf in leaves if leaf is not None]
    weights = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    twin = with_weights(module, {name: tensor.numpy(force=True) for name, tensor in weights.items()})
    places = [_place(twin, name) for name in weights]

    class Functional(torch.nn.Module):  # type: ignore[misc]
        """The module with everything it depends on as arguments."""

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for (owner, key), tensor in zip(places, tensors, strict=False):
                owner[key] = tensor
            rest = iter(tensors[len(places) :])
            call = nests.unflatten(structure, [None if leaf is None else next(rest) for leaf in leaves])
            found = twin(*call[0], **call[1])
            return tuple([leaf for leaf in _leaves(found) if leaf is not None])

    inputs = [f"{_INPUT}{i}" for i in range(len(given))]
    num_outputs = sum(_output_structure(module, args, kwargs)[1])
    outputs = [f"{_OUTPUT}{i}" for i in range(num_outputs)]
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of the exporter's age, and of Python values that a trace takes for constants
        torch.onnx.export(
            Functional().eval(),
            (*weights.values(), *given),
            file,
            input_names=[*(WEIGHT + name for name in weights), *inputs],
            output_names=outputs,
            dynamic_axes={name: {0: "rows"} for name in [*inputs, *outputs]},
            opset_version=_OPSET,
            dynamo=False,
        )
    return file.getvalue()


def _exported(source: Source, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """The export, made by the first process of the trial that needs it."""
    try:
        if source.export is None:
            return export(source.module, args, kwargs)
        with files.lock(source.export.with_name(f".{source.export.name}.lock"), timeout_s=300.0):
            kept = _read_export(source.export)
            if kept is None:
                kept = export(source.module, args, kwargs)
                folders.write_private(source.export, kept)
                folders.write_private(_checksum_path(source.export), _checksum(kept))
            return kept
    except Exception as error:
        raise BackendUnavailable(f"the module cannot be exported to ONNX: {type(error).__name__}: {error}") from error


def _read_export(path: Path) -> bytes | None:
    """The export that is kept; `None` if there is none, or it is damaged."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    checksum = _checksum_path(path)
    if checksum.is_file() and checksum.read_bytes() == _checksum(content):
        return content
    _LOG.warning("%s is damaged, or its checksum is: the module is exported again.", path)
    return None


def _checksum_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def _output_structure(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Structure, Sequence[bool]]:
    with torch.inference_mode():
        outputs = to_arrays(module(*to_tensors(tuple(args)), **to_tensors(dict(kwargs))))
    leaves, structure = nests.flatten(outputs)
    return structure, [leaf is not None for leaf in leaves]


def _leaves(outputs: Nest) -> list[Any]:
    """As `to_arrays` would order them."""
    if isinstance(outputs, Mapping):
        return [leaf for child in outputs.values() for leaf in _leaves(child)]
    if isinstance(outputs, tuple | list):
        return [leaf for child in outputs for leaf in _leaves(child)]
    return [outputs]


def _place(module: torch.nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """Where a parameter or buffer is kept."""
    path, _, key = name.rpartition(".")
    owner = module.get_submodule(path)
    return (owner._parameters if key in owner._parameters else owner._buffers), key
