"""Frames that were tampered with give a nest or a `CodecError`: no other exception, no hang, no big allocation."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections import Counter
from typing import Any

import msgspec
import numpy as np
from msgspec import msgpack

from ludus.data import Batch, Limits, decode, encode
from ludus.errors import CodecError

from . import nests

NUM_MESSAGES = 20_000
LIMITS = Limits(max_depth=16, max_leaves=2_000, max_bytes=1 << 20)

CORPUS: list[Any] = [
    {"x": np.zeros(64, "u1")},
    [[1, "two", None], {"obs": np.zeros((4, 3), "f4"), "reward": 0.5, "done": False}],
    (np.zeros(3, "f8"), (np.ones((2, 2), order="F"), [np.array(1.0)])),
    {"image": np.zeros((2, 0, 3), "u1"), "id": 2**40, "name": "player", "key": b"\0\1\2", 7: -5},
    [np.float32(1), np.datetime64(5, "25s"), np.str_("text"), np.bytes_(b"x"), np.bool_(True), 1 + 2j],
    np.zeros(3, [("a", "f4"), ("b", [("c", ">i2", (2, 2)), ("d", "S3")])]),
    np.zeros(2, {"names": ["a", "b"], "formats": ["f4", "V3"], "offsets": [4, 9], "itemsize": 16}),
    np.zeros(1, [(("title", "a"), "f4"), ("b", "M8[ms]")])[0],
    Batch(obs={"image": np.zeros((2, 3, 4))}, reward=np.ones((2, 3)), mask=None, num_axes=2),
    {"batch": [Batch(a=np.zeros(2)), Batch(a=np.zeros(3, ">i8"))]},
    [[[[[[(1,), (2,), ()]]]]]],
    list(range(300)),
    {str(i): i * 1.5 for i in range(40)},
    "x" * 300,
    [np.zeros(4, dtype) for dtype in ("?", "g", "D", "e", "U2", "S3", "m8[7D]", ">c8")],
]

# What the first bytes of big things look like, and extensions of every code in use.
SNIPPETS = [
    b"\xdd\xff\xff\xff\xff",
    b"\xdc\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xde\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\x7f\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\x91" * 40,
    b"\x81\x01" * 40,
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\0\0\0\0\0\0\0",
    b"\xce\x7f\xff\xff\xff",
    b"\xd6\xff\xff\xff\xff\xff",
    b"\xc7\x0c\xff" + b"\xff" * 12,
    b"\xa2|O",
    b"\xa3|V0",
    b"\xa7<M8[0s]",
    *(bytes([0xC7, 0, code]) for code in range(8)),
]

DTYPES = ["<f4", ">f8", "|O", "|V0", "<M8[0s]", "<M8[3s]", "<U1000000", "|S2147483647", "<f3", "f4,f4", "|b1", "U", "S"]
VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64 - 1,
    -(2**63),
    1.5,
    "",
    "a",
    b"",
    b"\0" * 8,
    [],
    {},
    [[]],
]
VALUES += [*DTYPES, ["<f4", [2]], ["<f4", [2**31, 2**31]], {"itemsize": 4, "fields": [["a", 0, "<f4"]]}, {"": 0}]
VALUES += [{"itemsize": 2**31, "fields": []}, *(msgpack.Ext(code, b"") for code in range(-1, 8)), {1: {2: {3: 4}}}]
VALUES += [msgpack.Ext(1, msgpack.encode([dtype, 0])) for dtype in DTYPES]

Rng = random.Random


def flip_bits(rng: Rng, data: bytearray) -> None:
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_bytes(rng: Rng, data: bytearray) -> None:
    for _ in range(rng.choice([1, 1, 2, 4])):
        if data:
            data[rng.randrange(len(data))] = rng.choice([0, 0x7F, 0x80, 0xFF, rng.randrange(256)])


def truncate(rng: Rng, data: bytearray) -> None:
    del data[rng.randrange(len(data) + 1) :]


def cut(rng: Rng, data: bytearray) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.randrange(1, 9)]


def insert_snippet(rng: Rng, data: bytearray) -> None:
    start = rng.randrange(len(data) + 1)
    data[start : start + rng.choice([0, 0, 1, 4])] = rng.choice(SNIPPETS)


def splice(rng: Rng, data: bytearray) -> None:
    other = bytes(encode(rng.choice(CORPUS))[0])
    start, end = sorted(rng.randrange(len(other) + 1) for _ in range(2))
    at = rng.randrange(len(data) + 1)
    data[at : at + rng.choice([0, end - start])] = other[start:end]


def edit_length(rng: Rng, data: bytearray) -> None:
    """Make some container, string, extension or dimension claim another length than it has."""
    places = [i for i, byte in enumerate(data) if 0x80 <= byte < 0xC0 or 0xC4 <= byte <= 0xDF]
    if not places:
        return
    at = rng.choice(places)
    if data[at] < 0xC0:
        data[at] = data[at] & 0xE0 | rng.randrange(32) if data[at] >= 0xA0 else data[at] & 0xF0 | rng.randrange(16)
    else:
        width = rng.choice([1, 2, 4, 8])
        data[at + 1 : at + 1 + width] = rng.choice(
            [bytes(width), b"\xff" * width, b"\x7f" * width, rng.randbytes(width)]
        )


def randomise(rng: Rng, data: bytearray) -> None:
    data[:] = rng.randbytes(rng.randrange(200))


def replace_value(rng: Rng, data: bytearray) -> None:
    """Put something else in the place of one value, inside an extension if need be. The MessagePack stays valid."""
    try:
        data[:] = msgpack.encode(with_other_value(rng, msgpack.decode(bytes(data))))
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError):
        flip_bits(rng, data)  # another mutation came first


def with_other_value(rng: Rng, node: Any) -> Any:
    if rng.random() < 0.15:
        return rng.choice(VALUES)
    match node:
        case dict() if node:
            key = rng.choice(list(node))
            return {**node, key: with_other_value(rng, node[key])}
        case list() if node:
            index = rng.randrange(len(node))
            return [*node[:index], with_other_value(rng, node[index]), *node[index + 1 :]]
        case msgpack.Ext(code=code, data=packed) if code in (1, 2, 3) and packed:
            return msgpack.Ext(
                rng.choice([code, code, 1, 2, 3]), msgpack.encode(with_other_value(rng, msgpack.decode(packed)))
            )
        case int():
            return rng.choice([node + 1, node - 1, -node, node * 2**20, 0, 2**31, 2**62])
        case str():
            return rng.choice([*DTYPES, node[1:], node + "0", node.upper()])
    return rng.choice(VALUES)


MUTATIONS = [flip_bits, set_bytes, truncate, cut, insert_snippet, splice, edit_length, randomise]
MUTATIONS += [replace_value] * 6


def shuffle_frames(rng: Rng, frames: list[Any]) -> None:
    match rng.randrange(5):
        case 0:
            rng.shuffle(frames)
        case 1:
            frames.insert(rng.randrange(len(frames) + 1), rng.choice(frames))
        case 2:
            del frames[rng.randrange(len(frames))]
        case 3:
            index = rng.randrange(len(frames))
            frames[index] = frames[index][: rng.randrange(len(frames[index]) + 1)]
        case 4:
            frames.append(rng.randbytes(rng.randrange(20)))


def tampered(rng: Rng) -> list[Any]:
    frames: list[Any] = [bytes(frame) for frame in encode(rng.choice(CORPUS))]
    header = bytearray(frames[0])
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        rng.choice(MUTATIONS)(rng, header)
    frames[0] = bytes(header)
    if rng.random() < 0.15:
        shuffle_frames(rng, frames)
    return frames


def test_tampered_frames_give_a_nest_or_a_codec_error_and_allocate_little():
    rng = random.Random(20_240_601)
    outcomes: Counter[str] = Counter()
    for nest in CORPUS:  # fill the tables of known layouts before memory is counted
        nests.assert_same(decode([bytes(frame) for frame in encode(nest)], limits=LIMITS), nest)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(NUM_MESSAGES):
            frames = tampered(rng)
            size = sum(map(len, frames))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                nest = decode(frames, limits=LIMITS)
            except CodecError:
                outcomes["refused"] += 1
            else:
                outcomes["decoded"] += 1
                encode(nest)  # so it is a nest, to the last leaf
            grown = tracemalloc.get_traced_memory()[1] - before
            # An empty dict, one byte in the header, takes 64 bytes and a place in a list. The rest is messages of
            # errors and entries of the tables.
            assert grown < 100 * size + 50_000, (grown, frames)
    finally:
        tracemalloc.stop()
    assert outcomes.total() == NUM_MESSAGES
    assert outcomes["decoded"] > NUM_MESSAGES // 20, "the mutations are too coarse to reach far"
    assert outcomes["refused"] > NUM_MESSAGES // 5, "the mutations are too mild to break anything"


def test_tampered_arrays_never_reach_past_their_frame():
    """Writing to every array that came out leaves the memory around its frame as it was."""
    rng = random.Random(7)
    for _ in range(2_000):
        frames = tampered(rng)
        padded = [bytearray(b"\xaa" * 64 + frame + b"\xaa" * 64) for frame in frames]
        views = [memoryview(frame)[64:-64] for frame in padded]
        try:
            nest = decode(views, limits=LIMITS)
        except CodecError:
            continue
        for leaf in leaves_of(nest):
            if isinstance(leaf, np.ndarray):
                leaf[...] = np.zeros((), leaf.dtype)
        for frame in padded:
            assert frame[:64] == frame[-64:] == b"\xaa" * 64


def leaves_of(node: Any) -> list[Any]:
    match node:
        case Batch() | dict():
            return [leaf for child in node.values() for leaf in leaves_of(child)]
        case list() | tuple():
            return [leaf for child in node for leaf in leaves_of(child)]
    return [node]
