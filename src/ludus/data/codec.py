"""A nest ↔ frames: one MessagePack header and the arrays' own memory. No pickle, no copies.

    frames = encode({"obs": image, "reward": 0.5})      # [header, memory of image]
    decode(frames)["obs"]                               # an array that is a view of frames[1]

What comes out is what went in: `dict` (with `str` or `int` keys), `list`, `tuple` and `Batch` of `None`, `bool`,
`int` (64 bits), `float`, `complex`, `str`, `bytes`, NumPy scalars and arrays of every dtype but objects. Anything
else, subclasses included, is refused by name: what would come back would not be what was sent.

**Aliasing.** Frames share memory with the arrays they were made of: do not write to an array before its frames are
sent. Decoded arrays share memory with the frames: they are writable if and only if the frame's buffer is, and hold
it alive. `copy()` what must outlive the buffer. docs/data.md has the format byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import numpy as np
from msgspec.msgpack import Ext
from numpy.typing import NDArray

from ludus.data import layout
from ludus.data import nest as nests
from ludus.data.batch import Batch
from ludus.data.fault import Fault, brief
from ludus.data.layout import Layout
from ludus.data.limits import DEFAULT_LIMITS, SAFE_DEPTH, Limits, check_header
from ludus.data.nest import Nest
from ludus.errors import CodecError, DataError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DEFAULT_LIMITS", "Limits", "decode", "encode", "nbytes"]

# Ext codes. An unknown one is refused, so new ones can be added.
_ARRAY, _FORTRAN_ARRAY, _SCALAR, _COMPLEX, _TUPLE, _BATCH = 1, 2, 3, 4, 5, 6
_TUPLE_MARK = Ext(_TUPLE, b"")
_BATCH_MARK = Ext(_BATCH, b"")

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_NDARRAY = np.ndarray
_BYTE = np.dtype(np.uint8)
_COMPLEX_PARTS = struct.Struct("<dd")
_SCALARS = {np.dtype(code).type: np.dtype(code).str for code in "?" + np.typecodes["AllInteger"] + "efdgFDG"}
_SCALAR_DTYPES = {text: np.dtype(text) for text in _SCALARS.values()}

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()

# Layouts repeat from message to message. Both tables are emptied when full: a sender of ever new shapes costs time,
# not memory.
_MAX_CACHED = 4096
_MAX_CACHED_BYTES = 256
_packed_layouts: dict[tuple[np.dtype[Any], tuple[int, ...]], Ext] = {}
_known_layouts: dict[bytes, Layout] = {}


def encode(nest: Nest, *, limits: Limits = DEFAULT_LIMITS) -> list[bytes | memoryview]:
    """The frames of a nest: the header, then one flat buffer of bytes per array, in the order of the leaves.

    C- and Fortran-ordered arrays are not copied, other strides are. Raises `CodecError` with the path of a value
    that cannot be sent, and for a nest past the limits, before any array is copied.
    """
    arrays: list[NDArray[Any]] = []
    try:
        header = _encoder.encode(_pack(nest, arrays, limits.max_depth))
        check_header(header, limits)
    except Fault as fault:
        raise CodecError(fault.message, path=fault.path) from None
    except RecursionError:
        raise CodecError("the nest is deeper than the interpreter's stack allows") from None
    except (OverflowError, ValueError):
        _refuse_plain(nest)
    total = len(header)
    for array in arrays:
        total += array.nbytes or layout.span(array.shape, array.dtype)
    if total > limits.max_bytes:
        _refuse_size(total, limits)
    frames: list[bytes | memoryview] = [header]
    for array in arrays:
        try:
            frames.append(array.data.cast("B"))
        except (TypeError, ValueError):  # a dtype or a shape that memoryview does not know, or strides
            frames.append(_memory(array))
    return frames


def decode(frames: Sequence[Buffer], *, limits: Limits = DEFAULT_LIMITS) -> Nest:
    """The nest of these frames, its arrays views of them. Frames are bytes, bytearrays, memoryviews, any buffers.

    Raises `CodecError` for frames that are malformed or past the limits. Nothing is allocated because a length
    was claimed: what is built takes memory in proportion to the values that are really there.
    """
    total = 0
    buffers: list[memoryview] = []
    try:
        for frame in frames:
            buffers.append(buffer := memoryview(frame))
            total += buffer.nbytes
    except TypeError as error:
        raise CodecError(f"frame {len(buffers)} is not a buffer: {error}") from None
    if not buffers:
        raise CodecError("there are no frames; a message has a header at least")
    if total > limits.max_bytes:
        _refuse_size(total, limits)
    header = buffers[0]
    if not header.c_contiguous:
        raise CodecError("the header's buffer is not contiguous")
    buffers.reverse()  # arrays take theirs from the end
    buffers.pop()
    try:
        if header.nbytes > SAFE_DEPTH or header.nbytes > limits.max_leaves:
            check_header(header.cast("B"), limits)
        nest = _unpack(_decoder.decode(header), buffers, limits, limits.max_depth)
    except Fault as fault:
        raise CodecError(fault.message, path=fault.path) from None
    except RecursionError:
        raise CodecError(f"the header is nested deeper than {limits.max_depth}") from None
    except (msgspec.MsgspecError, ValueError, OverflowError, BufferError) as error:
        raise CodecError(f"the header is malformed: {error}") from None
    if buffers:
        raise CodecError(f"{len(buffers)} of {len(frames)} frames belong to no array of the header")
    return nest


def nbytes(frames: Sequence[Buffer]) -> int:
    """The size of all frames together."""
    return sum(memoryview(frame).nbytes for frame in frames)


# --- nest → what MessagePack knows


def _pack(node: Nest, arrays: list[NDArray[Any]], depth: int) -> Any:
    """The node with arrays, scalars and tuples replaced by what stands for them. `depth` is how much is left."""
    kind = type(node)
    if kind in _PLAIN:
        return node
    if kind is _NDARRAY:
        if node.flags.fnc:  # Fortran-ordered and not C-ordered: its transpose is C-ordered
            arrays.append(node.T)
            return Ext(_FORTRAN_ARRAY, layout.pack(node.shape, node.dtype))
        arrays.append(node)
        return _packed_layouts.get((node.dtype, node.shape)) or _pack_layout(node)
    if kind is dict:
        if depth <= 0:
            raise _too_deep()
        packed = {}
        for key, value in node.items():
            if type(key) is not str and type(key) is not int:
                raise _bad_key(key)
            if type(value) in _PLAIN:
                packed[key] = value
            else:
                try:
                    packed[key] = _pack(value, arrays, depth - 1)
                except Fault as fault:
                    raise fault.at(key) from None
        return packed
    if kind is list or kind is tuple:
        if depth <= 0:
            raise _too_deep()
        if not node or (type(node[-1]) in _PLAIN and _PLAIN.issuperset(map(type, node))):
            return node if kind is list else [_TUPLE_MARK, *node]
        items: list[Any] = [] if kind is list else [_TUPLE_MARK]
        for index, value in enumerate(node):
            try:
                items.append(_pack(value, arrays, depth - 1))
            except Fault as fault:
                raise fault.at(index) from None
        return items
    return _pack_rare(node, arrays, depth)


def _pack_layout(array: NDArray[Any]) -> Ext:
    packed = layout.pack(array.shape, array.dtype)
    ext = Ext(_ARRAY, packed)
    # Structured dtypes can be equal and differ in their titles.
    if len(packed) <= _MAX_CACHED_BYTES and array.dtype.names is None:
        if len(_packed_layouts) >= _MAX_CACHED:
            _packed_layouts.clear()
        _packed_layouts[array.dtype, array.shape] = ext
    return ext


def _pack_rare(node: Any, arrays: list[NDArray[Any]], depth: int) -> Any:
    match node:
        case np.generic():
            return Ext(_SCALAR, _encoder.encode(_describe_scalar(node)))
        case Batch():
            return [_BATCH_MARK, node.num_axes, _pack(dict(node.items()), arrays, depth - 1)]
        case np.memmap():
            return _pack(np.asarray(node), arrays, depth)
    if type(node) is complex:
        return Ext(_COMPLEX, _COMPLEX_PARTS.pack(node.real, node.imag))
    raise Fault(f"{type(node).__name__} cannot be sent. {_advice(node)}")


def _describe_scalar(scalar: np.generic) -> list[Any]:
    kind = type(scalar)
    if kind in _SCALARS:
        return [_SCALARS[kind], scalar.tobytes()]
    # Text goes as it is: an array of it, and NumPy's own `str`, would lose trailing NULs.
    if isinstance(scalar, np.str_):
        return ["U", str.__str__(scalar)]
    if isinstance(scalar, np.bytes_):
        return ["S", bytes(scalar)]
    return [layout.describe(scalar.dtype), scalar.tobytes()]


def _memory(array: NDArray[Any]) -> memoryview:
    """The bytes of any array, copied only if they do not lie in C order."""
    return np.ndarray((array.nbytes,), _BYTE, np.ascontiguousarray(array)).data


# --- what MessagePack knows → nest


def _unpack(node: Any, buffers: list[memoryview], limits: Limits, depth: int) -> Nest:
    """The node with everything put back; containers are filled in place. `depth` is how much is left."""
    kind = type(node)
    if kind in _PLAIN:
        return node
    if kind is Ext:
        code = node.code
        if code == _ARRAY:
            return _array(node.data, buffers, limits, "C")
        if code == _FORTRAN_ARRAY:
            return _array(node.data, buffers, limits, "F")
        return _unpack_rare(node)
    if depth <= 0:
        raise _too_deep()
    if kind is dict:
        for key, value in node.items():
            if type(key) is not str and type(key) is not int:
                raise _bad_key(key)
            if type(value) not in _PLAIN:
                try:
                    node[key] = _unpack(value, buffers, limits, depth - 1)
                except Fault as fault:
                    raise fault.at(key) from None
        return node
    if kind is list:
        if not node or (type(node[-1]) in _PLAIN and _PLAIN.issuperset(map(type, node))):
            return node
        mark = node[0].code if type(node[0]) is Ext else None
        if mark == _BATCH:
            return _unpack_batch(node, buffers, limits, depth)
        if mark == _TUPLE:
            del node[0]
        for index, value in enumerate(node):
            if type(value) not in _PLAIN:
                try:
                    node[index] = _unpack(value, buffers, limits, depth - 1)
                except Fault as fault:
                    raise fault.at(index) from None
        return tuple(node) if mark == _TUPLE else node
    raise Fault(f"the header holds a {kind.__name__}, which no nest does")


def _array(packed: bytes, buffers: list[memoryview], limits: Limits, order: Any) -> NDArray[Any]:
    shape, dtype, size, span = _known_layouts.get(packed) or _unpack_layout(packed)
    if span > limits.max_bytes:
        raise Fault(f"an array of {shape}, {brief(dtype)}, is past the limit of {limits.max_bytes} bytes")
    if not buffers:
        raise Fault("the array has no frame")
    buffer = buffers.pop()
    if buffer.nbytes != size:
        raise Fault(f"the array takes {size} bytes ({shape}, {brief(dtype)}); its frame has {buffer.nbytes}")
    try:
        return np.ndarray(shape, dtype, buffer, 0, None, order)
    except (TypeError, ValueError, BufferError) as error:
        raise Fault(f"the frame cannot be seen as {shape}, {brief(dtype)}: {error}") from None


def _unpack_layout(packed: bytes) -> Layout:
    known = layout.unpack(packed)
    if len(packed) <= _MAX_CACHED_BYTES:
        if len(_known_layouts) >= _MAX_CACHED:
            _known_layouts.clear()
        _known_layouts[packed] = known
    return known


def _unpack_rare(ext: Ext) -> Any:
    data = bytes(ext.data)
    if ext.code == _SCALAR:
        return _scalar(data)
    if ext.code == _COMPLEX and len(data) == _COMPLEX_PARTS.size:
        return complex(*_COMPLEX_PARTS.unpack(data))
    raise Fault(f"an extension of code {ext.code} and {len(data)} bytes is unknown or out of place")


def _unpack_batch(node: list[Any], buffers: list[memoryview], limits: Limits, depth: int) -> Batch:
    match node:
        case [_, int(num_axes), dict(data)]:
            fields = _unpack(data, buffers, limits, depth - 1)
            try:
                return Batch(fields, num_axes=num_axes)
            except DataError as error:
                raise Fault(f"not a batch: {error}") from None
    raise Fault("a batch is malformed")


def _scalar(packed: bytes) -> Any:
    check_header(packed, DEFAULT_LIMITS)
    try:
        described, raw = _decoder.decode(packed)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        raise Fault("a NumPy scalar is malformed") from None
    if type(raw) is bytes:
        if described == "S":
            return np.bytes_(raw)
        known = _SCALAR_DTYPES.get(described) if type(described) is str else None
        dtype = layout.restore(described) if known is None else known
        if dtype.subdtype is None and dtype.kind not in "SU" and dtype.itemsize == len(raw):
            scalar: Any = np.ndarray((), dtype, raw)[()]
            return scalar.copy() if dtype.kind == "V" else scalar  # a void is a view of `raw`
    elif type(raw) is str and described == "U":
        return np.str_(raw)
    raise Fault("a NumPy scalar is malformed")


# --- refusals


def _too_deep() -> Fault:
    return Fault("nested deeper than `max_depth` allows")


def _bad_key(key: Any) -> Fault:
    return Fault(f"the key {brief(key)} is a {type(key).__name__}; keys are str or int")


def _advice(node: Any) -> str:
    if isinstance(node, np.ndarray):
        return "Send np.asarray of it, if what the subclass adds may be lost."
    if isinstance(node, bytearray | memoryview):
        return "Send bytes(...), or np.frombuffer(...) to avoid the copy."
    for plain in (str, bytes, int, float, dict, list, tuple):
        if isinstance(node, plain):
            return f"It would come back as a plain {plain.__name__}: convert it first, if that will do."
    if hasattr(node, "detach") and hasattr(node, "numpy"):
        return "Send its .numpy(), or Batch.from_torch(...) of the whole."
    return "Nests hold dicts, lists and tuples of arrays, numbers, strings, bytes and None."


def _refuse_size(total: int, limits: Limits) -> NoReturn:
    raise CodecError(
        f"the message takes {total} bytes, past the limit of {limits.max_bytes}; send it in parts, or raise "
        "`max_bytes` on both sides"
    )


def _refuse_plain(nest: Nest) -> NoReturn:
    """Name the leaf that MessagePack refused: the walk before it lets strings and integers pass unseen."""

    def look(path: str, leaf: Any) -> None:
        try:
            _encoder.encode(_pack(leaf, [], 64))
        except OverflowError:
            raise CodecError(f"an integer of {leaf.bit_length()} bits does not fit into 64", path=path) from None
        except ValueError as error:
            raise CodecError(f"the value cannot be sent: {error}", path=path) from None

    nests.map_with_path(look, nest)
    raise CodecError("a key of the nest cannot be sent: it is not valid text, or does not fit into 64 bits")
