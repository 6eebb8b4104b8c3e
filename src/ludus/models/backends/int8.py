"""Linear layers in 8-bit integers, by ONNX Runtime: weights are quantised at loading, inputs as they come.

It answers less exactly than the others: give the model a tolerance that its use can bear, and it is held to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.models.backends.backend import BackendUnavailable, Source
from ludus.models.backends.onnx import WEIGHT, OnnxBackend

__all__ = ["Int8Backend"]

_MOST = 63  # seven bits: with eight, sums of two products can overflow on CPUs without VNNI, and are cut off
_TINY = 1e-30


class Int8Backend(OnnxBackend):
    """What `OnnxBackend` can run and has linear layers of float32; the rest of it runs as it does there."""

    name = "int8"

    def __init__(self, source: Source, *, num_threads: int = 1) -> None:
        super().__init__(source, num_threads=num_threads)
        self._quantised = _quantise_linear_layers(self._graph.graph, self._onnx)
        if not self._quantised:
            raise BackendUnavailable("int8 is for linear layers of float32, and the exported module has none")

    def _constants(self, name: str, array: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
        yield from super()._constants(name, array)  # another layer may use it as it is
        if name in self._quantised:
            scale = np.maximum(np.abs(array).max(axis=1), _TINY) / np.float32(_MOST)  # of each output
            rounded = np.rint(array / scale[:, None]).clip(-_MOST, _MOST).astype(np.int8)
            yield f"{name}:int8", np.ascontiguousarray(rounded.T)
            yield f"{name}:scale", scale.astype(np.float32)
            yield f"{name}:zero", np.zeros((), np.int8)


def _quantise_linear_layers(graph: Any, onnx: Any) -> set[str]:
    """Replace x @ weight.T + bias by its like in integers; the names of the weights.

    The pattern is the one that ONNX Runtime runs as a single kernel.
    """
    make_node = onnx.helper.make_node
    weights = {
        value.name
        for value in graph.input
        if value.name.startswith(WEIGHT) and value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    found: set[str] = set()
    nodes: list[Any] = []
    inputs: set[str] = set()  # that are quantised already: two layers may share one
    for node in graph.node:
        if not _is_linear(node, weights):
            nodes.append(node)
            continue
        x, weight, *bias = node.input
        out = node.output[0]
        found.add(weight)
        if x not in inputs:
            inputs.add(x)
            nodes.append(make_node("DynamicQuantizeLinear", [x], [f"{x}:q", f"{x}:scale", f"{x}:zero"]))
        product = f"{out}:product" if bias else out
        nodes += [
            make_node("Mul", [f"{x}:scale", f"{weight}:scale"], [f"{out}:scales"]),
            make_node(
                "MatMulInteger", [f"{x}:q", f"{weight}:int8", f"{x}:zero", f"{weight}:zero"], [f"{out}:integers"]
            ),
            make_node("Cast", [f"{out}:integers"], [f"{out}:floats"], to=onnx.TensorProto.FLOAT),
            make_node("Mul", [f"{out}:floats", f"{out}:scales"], [product]),
        ]
        if bias:
            nodes.append(make_node("Add", [product, bias[0]], [out]))
    del graph.node[:]
    graph.node.extend(nodes)
    return found


def _is_linear(node: Any, weights: set[str]) -> bool:
    if node.op_type != "Gemm" or node.input[1] not in weights:
        return False
    settings = {each.name: each for each in node.attribute}
    is_plain = all(settings[key].f == 1.0 for key in ("alpha", "beta") if key in settings)
    is_transposed = "transB" in settings and settings["transB"].i == 1
    return is_plain and is_transposed and not ("transA" in settings and settings["transA"].i)
