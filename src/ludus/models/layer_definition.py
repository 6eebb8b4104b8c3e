"""The definition of a module made of torch's own layers, without any code: class names and arguments, as JSON.

    text = to_text(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), forward_args, forward_kwargs)
    module = from_text(text)                                 # the same layers, with weights of its own

Only classes of `_ARGUMENTS` and `Sequential`, nested, have this form. `to_text` builds the module again and compares
both, attribute by attribute and by a forward pass; a module that has anything else in it (hooks, shared weights, a
`forward` of its own) is code.
"""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ludus import errors
from ludus.data import nest as nests
from ludus.data.rows import RowLayout
from ludus.models.backends.backend import to_tensors

__all__ = ["from_text", "to_text"]

_CONV = (
    "in_channels",
    "out_channels",
    "kernel_size",
    "stride",
    "padding",
    "dilation",
    "groups",
    "bias",
    "padding_mode",
)
_BATCH_NORM = ("num_features", "eps", "momentum", "affine", "track_running_stats")
_MAX_POOL = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
_AVG_POOL = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")

_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features", "bias"),
    "Bilinear": ("in1_features", "in2_features", "out_features", "bias"),
    "Embedding": (
        *("num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
    ),
    **{f"Conv{n}d": _CONV for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": (*_CONV, "output_padding") for n in (1, 2, 3)},
    **{f"BatchNorm{n}d": _BATCH_NORM for n in (1, 2, 3)},
    **{f"InstanceNorm{n}d": _BATCH_NORM for n in (1, 2, 3)},
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "RMSNorm": ("normalized_shape", "eps", "elementwise_affine"),
    "GroupNorm": ("num_groups", "num_channels", "eps", "affine"),
    **{f"MaxPool{n}d": _MAX_POOL for n in (1, 2, 3)},
    "AvgPool1d": _AVG_POOL,
    **{f"AvgPool{n}d": (*_AVG_POOL, "divisor_override") for n in (2, 3)},
    **{f"AdaptiveAvgPool{n}d": ("output_size",) for n in (1, 2, 3)},
    **{f"AdaptiveMaxPool{n}d": ("output_size", "return_indices") for n in (1, 2, 3)},
    **{f"{kind}Pad{n}d": ("padding",) for kind in ("Zero", "Reflection", "Replication") for n in (1, 2, 3)},
    **{f"ConstantPad{n}d": ("padding", "value") for n in (1, 2, 3)},
    "PixelShuffle": ("upscale_factor",),
    "Upsample": ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor"),
    "Flatten": ("start_dim", "end_dim"),
    "Unflatten": ("dim", "unflattened_size"),
    **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"), ("p", "inplace")),
    **dict.fromkeys(("Identity", "Tanh", "Sigmoid", "LogSigmoid", "Softsign", "Tanhshrink"), ()),
    **dict.fromkeys(("ReLU", "ReLU6", "SiLU", "Mish", "SELU", "Hardswish", "Hardsigmoid"), ("inplace",)),
    **dict.fromkeys(("ELU", "CELU"), ("alpha", "inplace")),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Softmin", "GLU"), ("dim",)),
    "LeakyReLU": ("negative_slope", "inplace"),
    "PReLU": ("num_parameters",),
    "GELU": ("approximate",),
    "Hardtanh": ("min_val", "max_val", "inplace"),
    "Softplus": ("beta", "threshold"),
    "Threshold": ("threshold", "value", "inplace"),
}
"""The layers, and which arguments of their constructors are kept. Each is an attribute of the layer under its name."""

_DTYPES = {str(dtype): dtype for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}


class _NotPlainError(Exception):
    """It has no form but code."""


def to_text(module: nn.Module, forward_args: tuple[Any, ...], forward_kwargs: Mapping[str, Any]) -> str | None:
    """`None` if the module must be stored as code."""
    try:
        dtypes = {str(each.dtype) for each in module.parameters() if each.is_floating_point()}
        if len(dtypes) > 1:
            raise _NotPlainError
        frozen = [name for name, each in module.named_parameters() if not each.requires_grad]
        layers = _describe(module)
        text = json.dumps({"layers": layers, "dtype": next(iter(dtypes), "torch.float32"), "frozen": frozen})
        twin = from_text(text)
        _compare(module, twin)
        _compare_outputs(module, twin, forward_args, forward_kwargs)
    except (_NotPlainError, errors.DataError, TypeError, ValueError):
        return None
    return text


def from_text(text: str) -> nn.Module:
    """Runs no code but torch's own, whatever the text says. Raises `DataError` for what is no definition."""
    try:
        content = json.loads(text)
        with torch.random.fork_rng(devices=[]):  # the weights come from the store: draw none of the user's numbers
            module = _build(content["layers"]).to(_DTYPES[content["dtype"]])
        for name in content["frozen"]:
            module.get_parameter(name).requires_grad_(False)
        return module
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise errors.DataError(f"is not the definition of a module: {error!r}") from None


# --- layers


def _describe(module: nn.Module | None) -> dict[str, Any]:
    name = type(module).__name__
    if module is None:
        raise _NotPlainError
    described: dict[str, Any] = {"class": name, "training": module.training}
    if type(module) is nn.Sequential:
        return {**described, "children": [[key, _describe(child)] for key, child in module._modules.items()]}
    if name not in _ARGUMENTS or type(module) is not getattr(nn, name):
        raise _NotPlainError
    return {**described, "args": {argument: _argument(module, argument) for argument in _ARGUMENTS[name]}}


def _argument(module: nn.Module, name: str) -> Any:
    value = getattr(module, name, None)
    return value is not None and value is not False if name == "bias" else value


def _build(described: Mapping[str, Any]) -> nn.Module:
    name = described["class"]
    if name == "Sequential":
        module: nn.Module = nn.Sequential(OrderedDict((key, _build(child)) for key, child in described["children"]))
    else:
        args = {argument: _plain(described["args"][argument]) for argument in _ARGUMENTS[name]}
        module = getattr(nn, name)(**args)
    module.training = bool(described["training"])
    return module


def _plain(value: Any) -> Any:
    """A number, a word, `None`, or a tuple of them."""
    if isinstance(value, list):
        return tuple(_plain(each) for each in value)
    if value is not None and not isinstance(value, bool | int | float | str):
        raise TypeError(f"{value!r} is no argument of a layer")
    return value


# --- comparing


def _compare(module: nn.Module, twin: nn.Module) -> None:
    """Raise `_NotPlainError` unless both have the same attributes with equal values, but for their weights."""
    if _tensors(module) != _tensors(twin):  # shared weights have one name, and those of the twin one each
        raise _NotPlainError
    for one, other in zip(module.named_modules(remove_duplicate=False), twin.named_modules(), strict=True):
        if one[0] != other[0] or _attributes(one[1]) != _attributes(other[1]):
            raise _NotPlainError


def _tensors(module: nn.Module) -> dict[str, tuple[Any, ...]]:
    named = [*module.named_parameters(), *module.named_buffers(remove_duplicate=False)]
    return {name: (type(each), each.shape, each.dtype, each.device, each.requires_grad) for name, each in named}


def _attributes(module: nn.Module) -> dict[str, Any]:
    """All but parameters, buffers and children, which are compared elsewhere."""
    left_out = ("_parameters", "_buffers", "_modules")
    return {name: (type(value), value) for name, value in vars(module).items() if name not in left_out}


def _compare_outputs(
    module: nn.Module, twin: nn.Module, forward_args: tuple[Any, ...], forward_kwargs: Mapping[str, Any]
) -> None:
    if not forward_args and not forward_kwargs:
        return
    layout = RowLayout.of(forward_args, forward_kwargs)
    leaves = layout.take(forward_args, forward_kwargs)
    assert leaves is not None, "it is made of the same arguments"
    args, kwargs = to_tensors(layout.nest(leaves))
    own, twin = copy.deepcopy(module).eval(), copy.deepcopy(twin).eval()  # a pass may change a layer in train mode
    twin.load_state_dict(own.state_dict())
    try:
        with torch.inference_mode():
            outputs = [nests.leaves(each(*args, **kwargs)) for each in (own, twin)]
    except Exception:
        return  # it cannot run on its example, which is another check's concern
    for one, other in zip(*outputs, strict=True):
        if not torch.allclose(one, other, equal_nan=True):
            raise _NotPlainError
