"""How an array lies in memory, as bytes: dtype and shape ↔ a small MessagePack array `[dtype, dim, dim, ...]`.

A dtype is described by its NumPy typestring (`"<f4"`, `"|S5"`, `"<M8[25s]"`); a subarray by `[dtype, [dim, ...]]`;
a structured dtype by `{"itemsize": n, "fields": [[name, offset, dtype], [name, offset, dtype, title], ...]}`.
Nothing here trusts its input: all arithmetic is in Python integers, which do not overflow.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ludus.data.fault import Fault, brief
from ludus.data.limits import DEFAULT_LIMITS, check_header

__all__ = ["Layout", "describe", "pack", "restore", "span", "unpack"]

DType = np.dtype[Any]

MAX_DTYPE_DEPTH = 16  # NumPy recurses through nested dtypes on the C stack
MAX_DIMS = 64
MAX_PACKED_BYTES = 1 << 16
MAX_ITEMSIZE = (1 << 31) - 1  # a C int in NumPy

# A zero multiple (`M8[0s]`) is a dtype to NumPy and a division by zero in any computation with it.
_TYPESTRING = re.compile(
    r"[<>|][biufcSUV][0-9]{1,10}|[<>][mM]8(\[([1-9][0-9]{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


class Layout(NamedTuple):
    """What it takes to see a buffer as an array."""

    shape: tuple[int, ...]
    dtype: DType
    nbytes: int
    span: int
    """`nbytes` if every zero in the shape and an itemsize of zero were one."""


def span(shape: tuple[int, ...], dtype: DType) -> int:
    return prod([dim or 1 for dim in shape]) * (dtype.itemsize or 1)


def pack(shape: tuple[int, ...], dtype: DType) -> bytes:
    """Raises `Fault` for a dtype that cannot be sent."""
    packed = _encoder.encode([describe(dtype), *shape])
    if len(packed) > MAX_PACKED_BYTES:
        raise Fault(f"the description of the dtype is longer than {MAX_PACKED_BYTES} bytes")
    return packed


def unpack(packed: bytes) -> Layout:
    """Raises `Fault` for anything that `pack` would not have written."""
    if len(packed) > MAX_PACKED_BYTES:
        raise Fault(f"the description of the dtype is longer than {MAX_PACKED_BYTES} bytes")
    check_header(packed, DEFAULT_LIMITS)
    try:
        described, *dims = _decoder.decode(packed)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        raise Fault("the description of the array is malformed") from None
    dtype, shape = restore(described), _shape(dims)
    if dtype.subdtype is not None:
        raise Fault("a subarray can only be a field of a structure")
    return Layout(shape, dtype, prod(shape) * dtype.itemsize, span(shape, dtype))


def describe(dtype: DType, depth: int = 0) -> Any:
    """What `restore` makes the same dtype of. Raises `Fault` for objects and dtypes that are not NumPy's own."""
    if dtype.hasobject:
        raise Fault(f"{brief(dtype)} holds Python objects, which are never sent; use numbers, or a list")
    if depth > MAX_DTYPE_DEPTH or dtype.itemsize > MAX_ITEMSIZE:
        raise Fault(f"the dtype is deeper than {MAX_DTYPE_DEPTH} or its items exceed {MAX_ITEMSIZE} bytes")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [describe(base, depth + 1), list(shape)]
    if dtype.names is not None:
        return _describe_fields(dtype, depth)
    if _TYPESTRING.fullmatch(dtype.str) is None or np.dtype(dtype.str) != dtype:
        raise Fault(f"{brief(dtype)} is not one of NumPy's own; view it as one of the same size")
    return dtype.str


def restore(described: Any, depth: int = 0) -> DType:
    """The dtype that `describe` described. Raises `Fault` if it would not have described it so."""
    if depth > MAX_DTYPE_DEPTH:
        raise Fault(f"the dtype is nested deeper than {MAX_DTYPE_DEPTH}")
    try:
        match described:
            case str():
                return _restore_simple(described)
            case [base, list(dims)]:
                return _restore_subarray(restore(base, depth + 1), _shape(dims))
            case {"itemsize": int(itemsize), "fields": list(fields)} if len(described) == 2:
                return _restore_fields(itemsize, fields, depth)
    except (TypeError, ValueError, OverflowError) as error:
        raise Fault(f"{brief(described)} is not a dtype: {error}") from None
    raise Fault(f"{brief(described)} does not describe a dtype")


def _describe_fields(dtype: DType, depth: int) -> Any:
    if dtype.kind != "V" or dtype.fields is None or dtype.names is None:
        raise Fault(f"{brief(dtype)} is a number and a structure at once; view it as one of the two")
    fields = []
    for name in dtype.names:
        field, offset, *title = dtype.fields[name]
        if not all(isinstance(part, str) for part in title):
            raise Fault(f"the title of field {name!r} is not a string")
        fields.append([name, offset, describe(field, depth + 1), *title])
    return {"itemsize": dtype.itemsize, "fields": fields}


def _restore_simple(text: str) -> DType:
    if _TYPESTRING.fullmatch(text) is None:
        raise Fault(f"{brief(text)} does not describe a dtype")
    dtype = np.dtype(text)
    if dtype.str != text:
        raise Fault(f"{text!r} does not describe a dtype: {dtype.str!r} would")
    return dtype


def _restore_subarray(base: DType, shape: tuple[int, ...]) -> DType:
    if not shape or span(shape, base) > MAX_ITEMSIZE:
        raise Fault(f"a subarray of shape {shape} has no dimension or exceeds {MAX_ITEMSIZE} bytes")
    return np.dtype((base, shape))


def _restore_fields(itemsize: int, fields: list[Any], depth: int) -> DType:
    if not 0 <= itemsize <= MAX_ITEMSIZE:
        raise Fault(f"an itemsize of {itemsize} is out of bounds")
    names, offsets, formats = [], [], []
    titles: list[str | None] = []
    for field in fields:
        match field:
            case [str(name), int(offset), described]:
                titles.append(None)
            case [str(name), int(offset), described, str(title)]:
                titles.append(title)
            case _:
                raise Fault(f"{brief(field)} does not describe a field")
        dtype = restore(described, depth + 1)
        if not 0 <= offset <= itemsize - dtype.itemsize:
            raise Fault(f"field {name!r} at offset {offset} does not fit into {itemsize} bytes")
        names.append(name)
        offsets.append(offset)
        formats.append(dtype)
    # NumPy's stubs do not know that titles can be None.
    whole: Any = {"names": names, "formats": formats, "offsets": offsets, "titles": titles, "itemsize": itemsize}
    restored: DType = np.dtype(whole)
    return restored


def _shape(dims: list[Any]) -> tuple[int, ...]:
    if len(dims) > MAX_DIMS:
        raise Fault(f"an array has at most {MAX_DIMS} dimensions, not {len(dims)}")
    for dim in dims:
        if type(dim) is not int or dim < 0:
            raise Fault(f"{brief(dim)} is not a dimension")
    return tuple(dims)
