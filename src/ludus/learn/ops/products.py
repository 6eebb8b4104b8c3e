"""Products of matrices on the CPU, by the faster of the two libraries that torch has for them.

torch multiplies by MKL, which uses no AVX-512 on the processors of other makers. oneDNN, which torch has for its
convolutions, generates code for what the processor has: for 256 × 256 × 256 it took 147 µs where MKL took 313 µs
(AMD Zen 5, one thread; 265 µs when it was kept to AVX2). A call costs it 10 µs more, so small products stay with MKL.

On other devices, and of other types, matrices are torch's. Nothing here has gradients: it is for passes that are
written out.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["ONEDNN", "dense", "multiply", "multiply_into"]

_LEAST = 1 << 21  # multiplications, from which on oneDNN is the faster one


def _find() -> Any:
    """oneDNN's linear layer, which is not part of torch's public interface; `None` where this torch has none."""
    try:
        layer = torch.ops.mkldnn._linear_pointwise.default
        layer(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4), "relu", [], "")
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return None
    return layer


ONEDNN: Any = _find() if torch.backends.mkldnn.is_available() else None


def multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """`left @ right`, in `out` or in memory of its own."""
    if _is_large(left, right):
        product: torch.Tensor = ONEDNN(left, right.t(), None, "none", [], "")
        return product
    return torch.mm(left, right, out=out)


def multiply_into(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """`out` becomes `left @ right`."""
    product = multiply(left, right, out)
    if product is not out:
        out.copy_(product)


def dense(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, activation: str, out: torch.Tensor | None = None
) -> torch.Tensor:
    """A layer: `activation` ("relu", "tanh") of `x @ weight + bias`, in `out` or in memory of its own."""
    is_relu = activation == "relu"
    if _is_large(x, weight):
        h: torch.Tensor = ONEDNN(x, weight.t(), bias, "relu" if is_relu else "none", [], "")
        return h if is_relu else h.tanh_()
    h = torch.addmm(bias, x, weight, out=out)
    return h.relu_() if is_relu else h.tanh_()


def _is_large(left: torch.Tensor, right: torch.Tensor) -> bool:
    size = left.shape[0] * right.numel()
    return size >= _LEAST and ONEDNN is not None and left.is_cpu and left.dtype is torch.float32
