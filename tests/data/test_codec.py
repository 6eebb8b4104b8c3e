from __future__ import annotations

import array as stdlib_array
import collections
import enum
import mmap
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from ludus.data import Batch, Limits, codec, decode, encode, nbytes
from ludus.errors import CodecError

from . import nests


def roundtrip(nest: Any) -> Any:
    return decode([bytes(frame) for frame in encode(nest)])


# --- what comes out is what went in


@given(nests.nests())
@settings(max_examples=150, deadline=None)
def test_any_nest_comes_back_as_it_was(nest):
    nests.assert_same(roundtrip(nest), nest)


@given(nests.arrays())
@settings(max_examples=250, deadline=None)
def test_any_array_comes_back_with_its_dtype_shape_and_values(array):
    nests.assert_same(roundtrip(array), array)


@pytest.mark.parametrize("char", sorted(set(np.typecodes["All"]) - {"O"}))
@pytest.mark.parametrize("order", "<>")
def test_every_builtin_dtype_in_both_byte_orders(char, order):
    dtype = np.dtype(char + "3" if char in "SUV" else char).newbyteorder(order)
    array = nests.fill((2, 3), dtype)
    nests.assert_same(roundtrip(array), array)
    if char != "U":  # random bytes are not text
        nests.assert_same(roundtrip(array[0, 0]), array[0, 0])


@pytest.mark.parametrize(
    "nest",
    [
        {},
        [],
        (),
        [()],
        ([],),
        ((),),
        [{}, ((1,), [2, (3,)])],
        {"b": 1, "a": 2, 0: 3, -1: 4},
        {"": None},
        [None, True, False, 0, -0.0, 1.5, 1 + 2j, "é", b"\0\xff"],
        [2**64 - 1, -(2**63), 2**63, 127, 128, -32, -33],
        [float("inf"), float("-inf"), float("nan"), 5e-324],
        [np.float64(1), np.float32(1), np.bool_(True), np.int8(-1), np.longdouble("1.1")],
        [np.datetime64("2020-01-01"), np.datetime64("NaT"), np.timedelta64(5, "ms")],
        [np.str_("a\0"), np.bytes_(b"a\0"), np.str_(""), np.bytes_(b""), np.void(b"abc")],
        [np.array(3.0), np.zeros((0,)), np.zeros((3, 0, 2), "f4"), np.array("text"), np.array(b"")],
        np.zeros(3, [("a", "f4"), ("b", [("c", ">i2", (2, 2)), ("d", "S3")])]),
        np.zeros(2, [(("a title", "a"), "f4")]),
        np.zeros(2, np.dtype([])),
        (np.zeros(2), [np.ones(3)], {"x": np.arange(4)}),
        "a" * 100_000,
        list(range(50_000)),
    ],
    ids=lambda nest: repr(nest)[:40],
)
def test_this_nest_comes_back_as_it_was(nest):
    nests.assert_same(roundtrip(nest), nest)


def test_titles_of_fields_are_distinguished_although_the_dtypes_are_equal():
    for dtype in (np.dtype([("a", "f4")]), np.dtype([(("title", "a"), "f4")]), np.dtype([("a", "f4")])):
        assert roundtrip(np.zeros(1, dtype)).dtype.fields == dtype.fields


def test_a_batch_comes_back_as_a_batch():
    batch = Batch(obs={"image": np.zeros((2, 3, 4)), "state": None}, reward=np.ones((2, 3)), num_axes=2)
    nests.assert_same(roundtrip({"data": [batch]}), {"data": [batch]})


def test_a_void_scalar_does_not_share_memory_with_the_frames():
    scalar = roundtrip(np.ones(1, [("a", "f4")])[0])
    scalar["a"] = 5
    assert scalar["a"] == 5


def test_a_memory_map_comes_back_as_an_array(tmp_path: Path):
    np.save(tmp_path / "array.npy", np.arange(5))
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    assert type(mapped) is np.memmap
    nests.assert_same(roundtrip(mapped), np.arange(5))


def test_the_header_has_the_bytes_that_the_docs_show():
    header, frame = encode({"x": np.zeros((2, 3), "f4"), "r": 0.5, "hc": (1, np.float32(2))})
    shown = """
        83  a1 78  c7 07 01  93 a3 3c 66 34 02 03
            a1 72  cb 3f e0 00 00 00 00 00 00
            a2 68 63  93 c7 00 05  01  c7 0b 03  92 a3 3c 66 34  c4 04 00 00 00 40
    """
    assert header == bytes.fromhex(shown)
    assert frame == bytes(24)


# --- memory


def as_bytes(frame: Any) -> np.ndarray:
    return np.frombuffer(frame, np.uint8)


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "g", "D", ">i4", "M8[s]", "S3", "U2", "V5", "f4,i8"])
@pytest.mark.parametrize("order", "CF")
def test_contiguous_arrays_are_not_copied_on_either_side(dtype, order):
    array = np.zeros((3, 4, 5), dtype, order)
    _, frame = encode(array)
    assert np.shares_memory(as_bytes(frame), array)
    decoded = decode(encode(array))
    assert np.shares_memory(decoded, array)
    assert decoded.strides == array.strides


def test_strided_arrays_are_copied_once_into_c_order():
    array = np.arange(12).reshape(3, 4)[:, ::2]
    _, frame = encode(array)
    assert not np.shares_memory(as_bytes(frame), array)
    assert decode(encode(array)).flags.c_contiguous


def test_frames_are_flat_bytes_and_nbytes_counts_them():
    frames = encode({"a": np.zeros((2, 3)), "b": np.array(1.0), "c": np.zeros((0, 3)), "d": np.zeros(2, "M8[s]")})
    assert [len(frame) for frame in frames[1:]] == [48, 8, 0, 16]
    assert nbytes(frames) == len(frames[0]) + 72
    assert all(memoryview(frame).format == "B" and memoryview(frame).ndim == 1 for frame in frames)


def test_read_only_arrays_can_be_sent():
    array = np.arange(3)
    array.flags.writeable = False
    assert roundtrip(array).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "writable"),
    [
        (bytes, False),
        (bytearray, True),
        (lambda frame: memoryview(bytearray(frame)), True),
        (lambda frame: memoryview(bytearray(frame)).toreadonly(), False),
        (lambda frame: stdlib_array.array("B", bytes(frame)), True),
        (lambda frame: np.frombuffer(bytes(frame), np.uint8), False),
        (lambda frame: memoryview(np.frombuffer(bytes(frame), "i4")), False),
    ],
)
def test_arrays_are_views_of_any_buffer_and_writable_if_it_is(make, writable):
    header, frame = encode(np.arange(4))
    buffer = make(frame)
    array = decode([header, buffer])
    assert array.tolist() == [0, 1, 2, 3]
    assert array.flags.writeable is writable
    assert np.shares_memory(array, np.frombuffer(buffer, np.uint8))


def test_the_header_can_be_any_buffer_too():
    header, frame = encode({"x": np.arange(4)})
    for buffer in (bytearray(header), memoryview(header), np.frombuffer(header, np.uint8)):
        assert decode([buffer, frame])["x"].tolist() == [0, 1, 2, 3]


def test_shared_memory_is_a_buffer_like_any_other():
    header, frame = encode(np.arange(4))
    with mmap.mmap(-1, 64) as memory:
        memory[: len(frame)] = frame
        array = decode([header, memoryview(memory)[: len(frame)]])
        array[0] = 7
        assert memory[0] == 7
        del array


def test_unaligned_frames_are_seen_all_the_same():
    header, frame = encode(np.arange(4.0))
    buffer = memoryview(bytearray(1 + len(frame)))[1:]
    buffer[:] = frame
    assert decode([header, buffer]).tolist() == [0, 1, 2, 3]


# --- what cannot be sent


class Colour(enum.IntEnum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")


UNSENDABLE: dict[str, Any] = {
    "a set": {1, 2},
    "an object": object(),
    "an array of objects": np.array([None]),
    "a field of objects": np.zeros(1, [("a", "O")]),
    "an int past 64 bits": 2**64,
    "a negative int past 64 bits": -(2**63) - 1,
    "an int too long to print": 10**6000,
    "half a character": "\ud800",
    "half a character of NumPy's": np.str_("\ud800"),
    "an enum": Colour.RED,
    "a named tuple": Pair(1, 2),
    "an ordered dict": collections.OrderedDict(a=1),
    "a bytearray": bytearray(b"x"),
    "a memoryview": memoryview(b"x"),
    "a masked array": np.ma.masked_array([1]),
    "half a character as a title": np.zeros(1, [(("\ud800", "a"), "f4")]),
    "a number as a title": np.zeros(1, [((1, "a"), "f4")]),
    "a float as a key": {3.5: 1},
    "None as a key": {None: 1},
    "a tuple as a key": {(1, 2): 1},
    "a bool as a key": {True: 1},
    "a class": np.float32,
    "a function": roundtrip,
    "a range": range(3),
}
if hasattr(np.dtypes, "StringDType"):
    UNSENDABLE["an array of variable strings"] = np.array(["a"], np.dtypes.StringDType())


@pytest.mark.parametrize("value", UNSENDABLE.values(), ids=UNSENDABLE)
def test_what_cannot_be_sent_is_refused_with_its_path(value):
    with pytest.raises(CodecError) as caught:
        encode({"obs": [0, (np.zeros(2), value)]})
    assert caught.value.path == "obs/1/1"


@pytest.mark.parametrize("key", [2**64, "\ud800"])
def test_keys_that_cannot_be_sent_are_refused(key):
    with pytest.raises(CodecError, match="key"):
        encode({"obs": {key: 1}})


def test_tensors_are_refused_with_advice():
    torch = pytest.importorskip("torch")
    with pytest.raises(CodecError, match="numpy"):
        encode({"x": torch.zeros(2)})


# --- limits


def test_a_nest_that_contains_itself_is_refused():
    nest: list[Any] = []
    nest.append(nest)
    with pytest.raises(CodecError, match="max_depth"):
        encode(nest)


def nested(depth: int) -> Any:
    nest: Any = 1
    for level in range(depth):
        nest = [nest] if level % 3 == 0 else {"a": nest} if level % 3 == 1 else (nest,)
    return nest


def test_depth_is_limited_on_both_sides():
    limits = Limits(max_depth=10)
    frames = encode(nested(10), limits=limits)
    nests.assert_same(decode(frames, limits=limits), nested(10))
    with pytest.raises(CodecError, match="max_depth"):
        encode(nested(11), limits=limits)
    with pytest.raises(CodecError, match="max_depth"):
        decode(encode(nested(11)), limits=limits)


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\x01", b"\x92\xc7\x00\x05", b"\xdc\xff\xff", b"\xdf\0\0\0\1\1"])
@pytest.mark.parametrize("depth", [100, 5_000, 90_000])
def test_deep_headers_are_refused_even_past_the_interpreters_stack(opening, depth):
    with pytest.raises(CodecError):
        decode([opening * depth + b"\xc0"])
    if depth > sys.getrecursionlimit():
        with pytest.raises(CodecError):
            decode([opening * depth + b"\xc0"], limits=Limits(max_depth=10**9, max_leaves=10**9))


def test_deep_headers_do_not_crash_a_process_that_raised_its_recursion_limit():
    code = """if True:
        import sys
        import msgspec
        from ludus.data import decode
        from ludus.errors import CodecError
        sys.setrecursionlimit(10**6)
        deep = b"\\x92" * 60_000 + b"\\xc0" * 3
        inside = [msgspec.msgpack.encode([msgspec.msgpack.Ext(code, deep)]) for code in (1, 2, 3)]
        for header in [b"\\x91" * 90_000, b"\\x81\\x01" * 45_000, *inside]:
            try:
                decode([header, b""])
            except CodecError as error:
                print(error)
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert ran.stdout.count("max_depth") == 5


def test_a_nest_deeper_than_the_stack_is_refused_whatever_the_limit():
    with pytest.raises(CodecError):
        encode(nested(sys.getrecursionlimit() + 10), limits=Limits(max_depth=10**9))


def test_values_are_counted_on_both_sides():
    limits = Limits(max_leaves=100)
    for nest in (list(range(99)), [["x" * 50] * 40, ("y" * 50, "z" * 50)], {i: i for i in range(99)}):
        nests.assert_same(decode(encode(nest, limits=limits), limits=limits), nest)
    for nest in ([1.5] * 101, [[1.5] * 60] * 2, dict.fromkeys(range(101), "abc")):
        with pytest.raises(CodecError, match="more than 100 values"):
            encode(nest, limits=limits)
        with pytest.raises(CodecError, match="more than 100 values"):
            decode(encode(nest), limits=limits)


def test_bytes_are_counted_on_both_sides():
    nest = {"a": np.zeros(60, "u1"), "b": b"x" * 100}
    size = nbytes(encode(nest))
    nests.assert_same(decode(encode(nest, limits=Limits(max_bytes=size)), limits=Limits(max_bytes=size)), nest)
    with pytest.raises(CodecError, match="past the limit"):
        encode(nest, limits=Limits(max_bytes=size - 1))
    with pytest.raises(CodecError, match="past the limit"):
        decode(encode(nest), limits=Limits(max_bytes=size - 1))


def test_a_huge_view_of_one_number_is_refused_before_it_is_copied():
    huge = np.broadcast_to(np.float64(0), (10**15,))
    with pytest.raises(CodecError, match="past the limit"):
        encode(huge)


def test_huge_shapes_that_hold_nothing_are_refused():
    with pytest.raises(CodecError, match="past the limit"):
        encode(np.zeros((2**40, 0)))
    nests.assert_same(roundtrip(np.zeros((1000, 0, 1000))), np.zeros((1000, 0, 1000)))


# --- malformed frames, by hand


def message(*dims: Any, dtype: Any = "<f4", code: int = 1, frame: bytes = b"") -> list[bytes]:
    """The frames of `{"a": [array]}`, with whatever one likes in place of the array's description."""
    packed = msgspec.msgpack.encode([dtype, *dims])
    return [msgspec.msgpack.encode({"a": [msgspec.msgpack.Ext(code, packed)]}), frame]


@pytest.mark.parametrize(
    "frames",
    [
        message(3, frame=bytes(11)),
        message(3, frame=bytes(13)),
        message(3)[:1],
        message(-1),
        message(1.0, frame=bytes(4)),
        message(True, frame=bytes(4)),
        message(None),
        message("1"),
        message(2**62, 2**62, 4),
        message(2**62, 0, 4),
        message(2**63, 0),
        message(*[2] * 70, 0),
        message(*[1] * 70, frame=bytes(4)),
        message(2**40, dtype="|V0"),
        message(2**40, dtype={"itemsize": 0, "fields": []}),
        message(0, dtype="|S3000000000"),
        message(0, dtype="<U1000000000"),
        message(0, dtype="|S99999999999"),
        message(1, dtype="|O", frame=bytes(8)),
        message(1, dtype="|O8", frame=bytes(8)),
        message(1, dtype="<M8[0s]", frame=bytes(8)),
        message(1, dtype="<M8[9999999999s]", frame=bytes(8)),
        message(1, dtype="<M8[x]", frame=bytes(8)),
        message(1, dtype="<f3", frame=bytes(3)),
        message(1, dtype="=f4", frame=bytes(4)),
        message(1, dtype="f4", frame=bytes(4)),
        message(1, dtype="|f4", frame=bytes(4)),
        message(1, dtype="<f4,<f4", frame=bytes(8)),
        message(1, dtype="(2,)<f4", frame=bytes(8)),
        message(1, dtype="<f4\n", frame=bytes(4)),
        message(1, dtype="", frame=bytes(4)),
        message(1, dtype=5, frame=bytes(4)),
        message(1, dtype=None, frame=bytes(4)),
        message(1, dtype=[], frame=bytes(4)),
        message(1, dtype=["<f4", [2]], frame=bytes(8)),
        message(0, dtype={"itemsize": 8, "fields": [["a", 6, "<f4"]]}),
        message(0, dtype={"itemsize": 8, "fields": [["a", -1, "<f4"]]}),
        message(0, dtype={"itemsize": -8, "fields": []}),
        message(0, dtype={"itemsize": 2**31, "fields": []}),
        message(0, dtype={"itemsize": 2**63, "fields": []}),
        message(0, dtype={"itemsize": 8, "fields": [["a", 0, "<f4"], ["a", 4, "<f4"]]}),
        message(0, dtype={"itemsize": 8, "fields": [["a", 0, "<f4", "t"], ["t", 4, "<f4"]]}),
        message(0, dtype={"itemsize": 8, "fields": [["a", 0, "|O8"]]}),
        message(0, dtype={"itemsize": 8, "fields": [["a", 0]]}),
        message(0, dtype={"itemsize": 8, "fields": [[0, 0, "<f4"]]}),
        message(0, dtype={"itemsize": 8, "fields": [["a", 0, "<f4", 5]]}),
        message(0, dtype={"itemsize": 8, "fields": {}}),
        message(0, dtype={"itemsize": 8}),
        message(0, dtype={"itemsize": 8, "fields": [], "more": 1}),
        message(0, dtype={"itemsize": 2**30, "fields": [["a", 0, ["|u1", [2**31, 2**31]]]]}),
        message(0, dtype={"itemsize": 2**30, "fields": [["a", 0, ["|u1", [2**62, 0]]]]}),
        message(0, dtype={"itemsize": 8, "fields": [["a", 0, ["|u1", [1] * 70]]]}),
        message(0, dtype={"itemsize": 8, "fields": [["a", 0, ["|u1", []]]]}),
        message(0, dtype={"itemsize": 8, "fields": [["a", 0, ["|u1", [-1]]]]}),
        message(0, dtype={"itemsize": 9, "fields": [[str(i), i % 9, "|u1"] for i in range(20_000)]}),
        message(code=3),
        message(b"", dtype="<f4", code=3)[:1],
        message(bytes(4), dtype="|O", code=3)[:1],
        message(bytes(8), dtype=["<f4", [2]], code=3)[:1],
        message(b"", dtype="U", code=3)[:1],
        message("", dtype="S", code=3)[:1],
        message(code=4)[:1],
        message(code=6)[:1],
        message(code=7)[:1],
        message(code=-128)[:1],
        message(code=127)[:1],
    ],
    ids=lambda frames: repr(bytes(frames[0])[:60]),
)
def test_malformed_arrays_are_refused_with_their_path(frames):
    with pytest.raises(CodecError) as caught:
        decode(frames)
    assert caught.value.path.startswith("a")


def deep_dtype(depth: int) -> Any:
    dtype: Any = "|u1"
    for _ in range(depth):
        dtype = {"itemsize": 1, "fields": [["a", 0, dtype]]}
    return dtype


def test_dtypes_nest_to_a_depth_and_no_deeper():
    array = decode(message(1, dtype=deep_dtype(16), frame=b"\1"))["a"][0]
    nests.assert_same(roundtrip(array), array)
    for depth in (17, 200):
        with pytest.raises(CodecError, match="deeper"):
            decode(message(1, dtype=deep_dtype(depth), frame=b"\1"))
    packed = b"\x92" + b"\x92" * 30_000 + b"\xa3|u1" + b"\x91\x01" * 30_000 + b"\x01"
    with pytest.raises(CodecError):
        decode([msgspec.msgpack.encode(msgspec.msgpack.Ext(1, packed)), b"\1"])


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc1",
        b"\x01\x02",
        b"\xa5abc",
        b"\xa2\xff\xfe",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xc0\x01",
        b"\x81\x90\x01",
        b"\x81\xc3\x01",
        b"\x81\xc4\x01a\x01",
        b"\x81\xcb\x7f\xf8\0\0\0\0\0\0\x01",
        b"\xd6\xff\0\0\0\1",  # MessagePack's own timestamp
        b"\xc7\x00\x05",  # the mark of a tuple, and no tuple
        b"\x92\x01\xc7\x00\x05",
        b"\x91\xc7\x00\x06",
        b"\x93\xc7\x00\x06\x01\x80",
        b"\x93\xc7\x00\x06\x00\x81\xa1a\xc0",
        b"\x93\xc7\x00\x06\x01\x81\xa1a\x01",
        b"\x93\xc7\x00\x06\x01\x81\x01\xc0",
    ],
)
def test_malformed_headers_are_refused(header):
    with pytest.raises(CodecError):
        decode([header])


def test_the_number_of_frames_must_be_right():
    frames = encode([np.zeros(2), np.zeros(2)])
    for wrong in ([], frames[:1], frames[:2], [*frames, b""], [*frames, frames[1]]):
        with pytest.raises(CodecError):
            decode(wrong)


def test_frames_that_are_no_buffers_or_not_contiguous_are_refused():
    header, frame = encode(np.zeros(4, "u1"))
    for wrong in (None, "text", 5, memoryview(bytes(8))[::2]):
        with pytest.raises(CodecError):
            decode([header, wrong])
    with pytest.raises(CodecError):
        decode([memoryview(bytes(2 * len(header)))[::2], frame])


def test_claimed_lengths_allocate_nothing():
    bombs = [b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff" * 500, b"\xdf\xff\xff\xff\xff\x01" * 500]
    bombs += [b"\xdb\xff\xff\xff\xffabc", b"\xc6\xff\xff\xff\xffabc", b"\xc9\xff\xff\xff\xff\x01abc"]
    bombs += [message(2**28)[0], b"\xdd\x7f\xff\xff\xff" + b"\x80" * 200_000, b"\x9f" + b"\x80" * 10**6]
    for bomb in bombs:
        tracemalloc.start()
        with pytest.raises(CodecError):
            decode([bomb])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 300_000, bomb[:10]


def test_the_tables_of_known_layouts_stay_bounded(monkeypatch):
    monkeypatch.setattr(codec, "_MAX_CACHED", 8)
    for size in range(100):
        assert len(roundtrip(np.zeros(size))) == size
    assert len(codec._known_layouts) <= 8
    assert len(codec._packed_layouts) <= 8
