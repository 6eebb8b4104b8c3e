"""Nests of arrays ↔ messages of protos/data_type: what a client in another language sends and reads.

    message = pack_nest({"obs": image, "reward": 0.5, "hidden": tensor})
    unpack_nest(message)["obs"]                         # an array that nobody can write to: a view of what arrived
    pack_batch(Batch(obs=images)), unpack_batch(…)      # with names and leading axes

What comes out is what went in: the nests of `ludus.data.codec` without structured dtypes, and torch tensors of every
dense dtype. A native caller uses the codec, which does not copy arrays; a message holds a copy of them. The codec's
limits hold here, too: values, levels and the size that a shape claims are checked before anything is made of them.
torch is imported only where a tensor is met.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from ludus.data import layout
from ludus.data.batch import Batch, load_torch
from ludus.data.fault import Fault, brief
from ludus.data.limits import DEFAULT_LIMITS, Limits
from ludus.data.nest import Nest
from ludus.errors import CodecError, DataError
from ludus.grpc.protos.data_type import array_pb2, batch_pb2, torch_tensor_pb2

__all__ = [
    "pack_array",
    "pack_batch",
    "pack_nest",
    "pack_tensor",
    "unpack_array",
    "unpack_batch",
    "unpack_nest",
    "unpack_tensor",
]

_TENSOR_DTYPES = frozenset({
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32",
    "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128",
})  # fmt: skip
_CONTAINERS = {dict: batch_pb2.DICT, list: batch_pb2.LIST, tuple: batch_pb2.TUPLE, Batch: batch_pb2.BATCH}
_TOO_DEEP = "nested deeper than `max_depth` allows"
_Made = TypeVar("_Made")


def pack_array(array: NDArray[Any]) -> array_pb2.Array:
    """Raises `CodecError` for objects and structures."""
    message = array_pb2.Array()
    _guard(_pack_array, message, np.asarray(array))
    return message


def unpack_array(message: array_pb2.Array, *, limits: Limits = DEFAULT_LIMITS) -> NDArray[Any]:
    """Raises `CodecError` for what is malformed or past the limits."""
    return _guard(_unpack_array, message, limits)


def pack_tensor(tensor: Any) -> torch_tensor_pb2.TorchTensor:
    """Raises `CodecError` for a tensor that is not dense."""
    message = torch_tensor_pb2.TorchTensor()
    _guard(_pack_tensor, message, tensor)
    return message


def unpack_tensor(message: torch_tensor_pb2.TorchTensor, *, limits: Limits = DEFAULT_LIMITS) -> Any:
    """A tensor of its own memory. Raises `CodecError`, and `MissingExtra` without torch."""
    return _guard(_unpack_tensor, message, limits)


def pack_nest(nest: Nest, *, limits: Limits = DEFAULT_LIMITS) -> batch_pb2.Nest:
    """Raises `CodecError` with the path of a value that cannot be sent."""
    message = batch_pb2.Nest()
    _guard(_Packing(limits).pack, message, nest, limits.max_depth)
    return message


def unpack_nest(message: batch_pb2.Nest, *, limits: Limits = DEFAULT_LIMITS) -> Nest:
    """Raises `CodecError` with the path of what is malformed or past the limits."""
    return _guard(_Unpacking(limits, message).unpack, message, limits.max_depth)


def pack_batch(batch: Batch, *, limits: Limits = DEFAULT_LIMITS) -> batch_pb2.Batch:
    """Raises `CodecError` with the path of a value that cannot be sent."""
    message = batch_pb2.Batch(num_axes=batch.num_axes)
    _guard(_Packing(limits).pack_items, message.fields, dict(batch.items()), limits.max_depth - 2)
    return message


def unpack_batch(message: batch_pb2.Batch, *, limits: Limits = DEFAULT_LIMITS) -> Batch:
    """Raises `CodecError` with the path of what is malformed or past the limits."""
    return _guard(_Unpacking(limits, message).unpack_batch, message.fields, message.num_axes, limits.max_depth)


def _guard(function: Callable[..., _Made], *args: Any) -> _Made:
    try:
        return function(*args)
    except Fault as fault:
        raise CodecError(fault.message, path=fault.path) from None
    except RecursionError:
        raise CodecError("the nest is deeper than the interpreter's stack allows") from None


# --- nest → message


class _Packing:
    """Of one message: how many values and bytes it may still have."""

    def __init__(self, limits: Limits) -> None:
        self._num_left = limits.max_leaves
        self._bytes_left = limits.max_bytes

    def pack(self, message: batch_pb2.Nest, node: Any, depth: int) -> None:
        container = _CONTAINERS.get(type(node))
        if container is None:
            self._pack_leaf(message, node)
            return
        if type(node) is Batch:
            message.num_axes, node, depth = node.num_axes, dict(node.items()), depth - 1
        if depth <= 0:
            raise Fault(_TOO_DEEP)
        message.container = container
        self.pack_items(message.items, node, depth - 1)

    def pack_items(self, items: Any, node: Any, depth: int) -> None:
        is_dict = type(node) is dict
        self._num_left -= len(node)
        if self._num_left < 0:
            raise Fault("the nest holds more values than `max_leaves` allows; put numbers into arrays")
        for key, value in node.items() if is_dict else enumerate(node):
            item = items.add()
            try:
                if is_dict:
                    _pack_key(item, key)
                self.pack(item, value, depth)
            except Fault as fault:
                raise fault.at(key) from None

    def _pack_leaf(self, message: batch_pb2.Nest, leaf: Any) -> None:
        kind = type(leaf)
        if leaf is None:
            return
        if kind is np.ndarray or kind is np.memmap:
            self._count(leaf.nbytes)
            _pack_array(message.array, np.asarray(leaf))
        elif kind in _PLAIN:
            self._count(len(leaf) if kind in (str, bytes) else 8)
            try:
                setattr(message, _PLAIN[kind], leaf)
            except (ValueError, OverflowError) as error:
                raise Fault(f"{brief(leaf)} cannot be sent: {error}") from None
        elif kind is complex:
            message.complex.real, message.complex.imag = leaf.real, leaf.imag
        elif isinstance(leaf, np.generic):
            _pack_scalar(message.scalar, leaf)
        elif _is_tensor(leaf):
            self._count(leaf.numel() * leaf.element_size())
            _pack_tensor(message.tensor, leaf)
        else:
            raise Fault(
                f"{kind.__name__} cannot be sent. Nests hold dicts, lists and tuples of arrays, tensors, numbers, "
                "strings, bytes and None."
            )

    def _count(self, num_bytes: int) -> None:
        """Before anything is copied."""
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            raise Fault("the nest is larger than `max_bytes` allows; send it in parts")


_PLAIN = {bool: "boolean", int: "integer", float: "real", str: "text", bytes: "data"}


def _pack_key(item: batch_pb2.Nest, key: Any) -> None:
    try:
        if type(key) is str:
            item.name = key
            return
        if type(key) is int:
            item.number = key
            return
    except (ValueError, OverflowError) as error:
        raise Fault(f"the key {brief(key)} cannot be sent: {error}") from None
    raise Fault(f"the key {brief(key)} is a {type(key).__name__}; keys are str or int")


def _pack_array(message: array_pb2.Array, array: NDArray[Any]) -> None:
    described = layout.describe(array.dtype)
    if type(described) is not str:
        raise Fault(f"{brief(array.dtype)} is a structure; send its fields as a dict of arrays")
    message.dtype = described
    message.shape.extend(array.shape)
    message.data = array.tobytes()


def _pack_scalar(message: array_pb2.Array, scalar: np.generic) -> None:
    """Text goes as it is, because an array of it loses NULs at its end."""
    if isinstance(scalar, np.str_):
        message.dtype, message.data = "U", str.__str__(scalar).encode("utf-8", "surrogatepass")
    elif isinstance(scalar, np.bytes_):
        message.dtype, message.data = "S", bytes(scalar)
    else:
        _pack_array(message, np.asarray(scalar))


def _is_tensor(leaf: Any) -> bool:
    torch = sys.modules.get("torch")  # who has a tensor has imported it
    return torch is not None and type(leaf) is torch.Tensor


def _pack_tensor(message: torch_tensor_pb2.TorchTensor, tensor: Any) -> None:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _TENSOR_DTYPES or str(tensor.layout) != "torch.strided" or tensor.device.type == "meta":
        raise Fault(f"a tensor of {tensor.dtype}, {tensor.layout} on {tensor.device} cannot be sent; make it dense")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    message.dtype = name
    message.shape.extend(plain.shape)
    message.data = plain.reshape(-1).view(load_torch().uint8).numpy().tobytes() if plain.numel() else b""
    message.requires_grad = tensor.requires_grad


# --- message → nest


class _Unpacking:
    """Of one message: how many values it may still have."""

    def __init__(self, limits: Limits, message: Message) -> None:
        self._limits = limits
        self._num_left = limits.max_leaves
        self._message = message

    def unpack(self, message: batch_pb2.Nest, depth: int) -> Nest:
        if depth == self._limits.max_depth:
            self._check_size()
        kind = message.WhichOneof("value")
        if kind is not None:
            if message.container or message.items:
                raise Fault("a leaf and a container at once")
            return self._unpack_leaf(message, kind)
        container, items = message.container, message.items
        if container == batch_pb2.BATCH:
            return self.unpack_batch(items, message.num_axes, depth)
        if container == batch_pb2.NONE:
            if items:
                raise Fault("there are items, and no container that they would be in")
            return None
        if depth <= 0:
            raise Fault(_TOO_DEEP)
        self._count(len(items))
        if container == batch_pb2.DICT:
            return self._unpack_dict(items, depth - 1)
        if container not in (batch_pb2.LIST, batch_pb2.TUPLE):
            raise Fault(f"{container} is no container")
        nests = []
        for index, item in enumerate(items):
            try:
                if item.WhichOneof("key") is not None:
                    raise Fault("an item of a list or tuple has no key")
                nests.append(self.unpack(item, depth - 1))
            except Fault as fault:
                raise fault.at(index) from None
        return nests if container == batch_pb2.LIST else tuple(nests)

    def unpack_batch(self, items: Any, num_axes: int, depth: int) -> Batch:
        if depth == self._limits.max_depth:
            self._check_size()
        if depth <= 1:
            raise Fault(_TOO_DEEP)
        self._count(len(items))
        fields = self._unpack_dict(items, depth - 2)
        try:
            return Batch(fields, num_axes=num_axes)
        except DataError as error:
            raise Fault(f"not a batch: {error}") from None

    def _unpack_dict(self, items: Any, depth: int) -> dict[Any, Nest]:
        nests: dict[Any, Nest] = {}
        for index, item in enumerate(items):
            kind = item.WhichOneof("key")
            if kind is None:
                raise Fault("an item of a dict has no key").at(index)
            key = item.name if kind == "name" else item.number
            try:
                if key in nests:
                    raise Fault("the key is there twice")
                nests[key] = self.unpack(item, depth)
            except Fault as fault:
                raise fault.at(key) from None
        return nests

    def _unpack_leaf(self, message: batch_pb2.Nest, kind: str) -> Any:
        if kind == "array":
            return _unpack_array(message.array, self._limits)
        if kind == "tensor":
            return _unpack_tensor(message.tensor, self._limits)
        if kind == "scalar":
            return _unpack_scalar(message.scalar, self._limits)
        if kind == "complex":
            return complex(message.complex.real, message.complex.imag)
        return getattr(message, kind)

    def _count(self, number: int) -> None:
        self._num_left -= number
        if self._num_left < 0:
            raise Fault(f"the message holds more than {self._limits.max_leaves} values, so it was refused")

    def _check_size(self) -> None:
        size = self._message.ByteSize()
        if size > self._limits.max_bytes:
            raise Fault(f"the message takes {size} bytes, past the limit of {self._limits.max_bytes}")


def _unpack_array(message: array_pb2.Array, limits: Limits) -> NDArray[Any]:
    dtype = layout.restore(message.dtype)
    shape = _shape_of(message.shape, dtype.itemsize, limits)
    data = message.data
    _check_bytes(len(data), shape, dtype.itemsize, dtype)
    try:
        return np.ndarray(shape, dtype, data)
    except (TypeError, ValueError) as error:
        raise Fault(f"the bytes cannot be seen as {shape}, {brief(dtype)}: {error}") from None


def _unpack_scalar(message: array_pb2.Array, limits: Limits) -> Any:
    if message.shape:
        raise Fault(f"a scalar has no shape, and not {brief(list(message.shape))}")
    if message.dtype == "U":
        try:
            return np.str_(message.data.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise Fault(f"a NumPy scalar of text is no UTF-8: {error}") from None
    if message.dtype == "S":
        return np.bytes_(message.data)
    scalar: Any = _unpack_array(message, limits)[()]
    return scalar.copy() if isinstance(scalar, np.void) else scalar  # a void is a view of the message


def _unpack_tensor(message: torch_tensor_pb2.TorchTensor, limits: Limits) -> Any:
    name = message.dtype
    if name not in _TENSOR_DTYPES:
        raise Fault(
            f"{brief(name)} is no dtype of a tensor that is sent; there are {', '.join(sorted(_TENSOR_DTYPES))}"
        )
    torch = load_torch()
    dtype = getattr(torch, name)
    shape = _shape_of(message.shape, dtype.itemsize, limits)
    data = message.data
    _check_bytes(len(data), shape, dtype.itemsize, dtype)
    if message.requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise Fault(f"a tensor of {dtype} cannot require a gradient")
    if data:
        tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)
    else:
        tensor = torch.empty(shape, dtype=dtype)
    return tensor.requires_grad_(message.requires_grad)


def _shape_of(dims: Any, itemsize: int, limits: Limits) -> tuple[int, ...]:
    """Raises `Fault` if it claims more than the limits allow; zeros count as ones."""
    if len(dims) > layout.MAX_DIMS:
        raise Fault(f"an array has at most {layout.MAX_DIMS} dimensions, not {len(dims)}")
    shape = tuple(dims)
    if prod([dim or 1 for dim in shape]) * (itemsize or 1) > limits.max_bytes:
        raise Fault(f"an array of {shape} is past the limit of {limits.max_bytes} bytes")
    return shape


def _check_bytes(size: int, shape: tuple[int, ...], itemsize: int, dtype: Any) -> None:
    needed = prod(shape) * itemsize
    if size != needed:
        raise Fault(f"the array takes {needed} bytes ({shape}, {brief(dtype)}); there are {size}")
