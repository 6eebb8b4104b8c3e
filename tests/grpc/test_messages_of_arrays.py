"""Nests of arrays and tensors as messages: what comes back, and what is refused."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from data import nests  # of tests/data
from ludus.data import Batch, Limits
from ludus.errors import CodecError
from ludus.grpc.arrays import (
    pack_array,
    pack_batch,
    pack_nest,
    pack_tensor,
    unpack_array,
    unpack_batch,
    unpack_nest,
    unpack_tensor,
)
from ludus.grpc.protos.data_type import array_pb2, batch_pb2, torch_tensor_pb2

torch = pytest.importorskip("torch")


def simple_arrays() -> st.SearchStrategy[np.ndarray]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    orders = st.sampled_from(list(nests.REORDERINGS))
    return st.builds(
        lambda dtype, shape, order: nests.REORDERINGS[order](nests.fill(shape, dtype)),
        nests.simple_dtypes() | st.sampled_from(["S0", "U0", "V0"]).map(np.dtype),
        shapes,
        orders,
    )


def simple_nests() -> st.SearchStrategy[Any]:
    text = st.text(st.characters(exclude_categories=["Cs"]))
    whole = st.integers(-(2**63), 2**63 - 1)
    plain = st.none() | st.booleans() | whole | st.floats() | st.complex_numbers() | text | st.binary()
    scalars = hnp.scalar_dtypes().flatmap(hnp.from_dtype) | text.map(np.str_) | st.binary().map(np.bytes_)
    return st.recursive(
        simple_arrays() | plain | scalars.filter(lambda value: isinstance(value, np.generic)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(text | whole, inner, max_size=4),
        ),
        max_leaves=8,
    )


def over_the_wire(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


# --- what comes out is what went in


@given(simple_arrays())
@settings(max_examples=150, deadline=None)
def test_any_array_comes_back_with_its_dtype_shape_and_bits(array):
    nests.assert_same(unpack_array(over_the_wire(pack_array(array))), array)


@given(simple_nests())
@settings(max_examples=150, deadline=None)
def test_any_nest_comes_back_as_it_was(nest):
    nests.assert_same(unpack_nest(over_the_wire(pack_nest(nest))), nest)


def test_a_batch_comes_back_with_its_names_axes_and_nests():
    obs = {"image": np.ones((2, 3, 4)), "speed": np.zeros((2, 3))}
    batch = Batch(obs=obs, state=(None, np.ones((2, 3))), num_axes=2)
    nests.assert_same(unpack_batch(over_the_wire(pack_batch(batch))), batch)
    nests.assert_same(unpack_nest(over_the_wire(pack_nest([batch]))), [batch])


TENSORS = [
    *(torch.arange(6).reshape(2, 3).to(dtype) for dtype in (torch.bool, torch.uint8, torch.int64, torch.float16)),
    torch.tensor([1.5, float("nan"), -0.0, float("inf")], dtype=torch.bfloat16),
    torch.tensor(3.0),
    torch.empty((0, 4), dtype=torch.bfloat16),
    torch.randn(4, 3).T,
    torch.randn(2, 2, dtype=torch.complex64).conj(),
    torch.randn(3, requires_grad=True),
]


def bits(tensor):
    return tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda tensor: f"{tensor.dtype}{list(tensor.shape)}")
def test_any_tensor_comes_back_with_its_dtype_shape_and_bits(tensor):
    for back in (
        unpack_tensor(over_the_wire(pack_tensor(tensor))),
        unpack_nest(over_the_wire(pack_nest({"a": [tensor]})))["a"][0],
    ):
        assert (back.dtype, back.shape, back.requires_grad) == (tensor.dtype, tensor.shape, tensor.requires_grad)
        assert torch.equal(bits(back), bits(tensor))
        assert back.is_leaf
        back.detach().zero_()  # its memory is its own


# --- what cannot be sent


@pytest.mark.parametrize(
    ("nest", "path", "words"),
    [
        ({"a": [np.array([{}])]}, "a/0", "Python objects"),
        ({"a": np.zeros(2, [("x", "f4")])}, "a", "a structure"),
        ([1, {3: 2**63}], "1/3", "cannot be sent"),
        ({"a": {1.5: 0}}, "a/1.5", "keys are str or int"),
        ({"text": "\ud800"}, "text", "cannot be sent"),
        ((object(),), "0", "object cannot be sent"),
        ({"t": torch.zeros(2).to_sparse()}, "t", "make it dense"),
        ({"t": torch.zeros(2, device="meta")}, "t", "make it dense"),
        ([bytearray(b"x")], "0", "bytearray cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_path(nest, path, words):
    with pytest.raises(CodecError, match=words) as caught:
        pack_nest(nest)
    assert caught.value.path == path


def deep(levels: int) -> Any:
    nest: Any = 1
    for _ in range(levels):
        nest = [nest]
    return nest


@pytest.mark.parametrize(
    ("limits", "fits", "too_much"),
    [
        (Limits(max_depth=5), deep(5), deep(6)),
        (Limits(), deep(64), deep(65)),
        (Limits(max_leaves=4), [1, [2, 3]], [1, [2, 3, 4]]),
        (Limits(max_bytes=900), np.zeros(100), np.zeros(200)),
        (Limits(max_bytes=900), "x" * 800, "x" * 1000),
        (Limits(max_depth=3), [Batch(a=np.zeros(2))], [[Batch(a=np.zeros(2))]]),
    ],
)
def test_both_sides_keep_the_limits_of_depth_number_and_bytes(limits, fits, too_much):
    nests.assert_same(unpack_nest(over_the_wire(pack_nest(fits, limits=limits)), limits=limits), fits)
    with pytest.raises(CodecError):
        pack_nest(too_much, limits=limits)
    with pytest.raises(CodecError):
        unpack_nest(over_the_wire(pack_nest(too_much)), limits=limits)


# --- what is refused


def array(dtype: str = "<f4", shape: Any = (2,), data: bytes = bytes(8)) -> array_pb2.Array:
    return array_pb2.Array(dtype=dtype, shape=shape, data=data)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (array(dtype="|O"), "does not describe a dtype"),
        (array(dtype=""), "does not describe a dtype"),
        (array(dtype="f4"), "does not describe a dtype"),
        (array(dtype="<f4,<f4"), "does not describe a dtype"),
        (array(dtype="<M8[0s]"), "does not describe a dtype"),
        (array(dtype="<f99"), "not a dtype"),
        (array(data=bytes(7)), "takes 8 bytes"),
        (array(shape=(3,)), "takes 12 bytes"),
        (array(shape=(2**63, 2**63)), "past the limit"),
        (array(shape=(2**40, 0), data=b""), "past the limit"),
        (array(shape=[1] * 65, data=bytes(4)), "at most 64 dimensions"),
        (array(dtype="|V0", shape=(2**63,), data=b""), "past the limit"),
    ],
)
def test_an_array_that_is_none_is_refused(message, words):
    with pytest.raises(CodecError, match=words):
        unpack_array(message)
    nest = batch_pb2.Nest(container=batch_pb2.DICT, items=[batch_pb2.Nest(name="obs", array=message)])
    with pytest.raises(CodecError, match=words) as caught:
        unpack_nest(nest)
    assert caught.value.path == "obs"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dtype": "object"}, "no dtype of a tensor"),
        ({"dtype": "load"}, "no dtype of a tensor"),
        ({"dtype": "float32", "data": bytes(7)}, "takes 8 bytes"),
        ({"dtype": "float32", "shape": (2**62, 2**62)}, "past the limit"),
        ({"dtype": "int32", "requires_grad": True}, "cannot require a gradient"),
    ],
)
def test_a_tensor_that_is_none_is_refused(fields, words):
    with pytest.raises(CodecError, match=words):
        unpack_tensor(torch_tensor_pb2.TorchTensor(**{"shape": (2,), "data": bytes(8), **fields}))


Nest = batch_pb2.Nest
ITEM = Nest(integer=1)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Nest(integer=1, container=batch_pb2.LIST), "a leaf and a container"),
        (Nest(items=[ITEM]), "no container that"),
        (Nest(container=9), "9 is no container"),
        (Nest(container=batch_pb2.DICT, items=[ITEM]), "has no key"),
        (Nest(container=batch_pb2.LIST, items=[Nest(name="a")]), "has no key"),
        (Nest(container=batch_pb2.DICT, items=[Nest(name="a"), Nest(name="a")]), "there twice"),
        (Nest(container=batch_pb2.BATCH, num_axes=1), "not a batch"),
        (Nest(container=batch_pb2.BATCH, num_axes=2, items=[Nest(name="a", array=array())]), "not a batch"),
        (Nest(container=batch_pb2.BATCH, num_axes=1, items=[Nest(number=1, array=array())]), "names are strings"),
        (Nest(scalar=array()), "a scalar has no shape"),
        (Nest(scalar=array("U", (), b"\xff")), "no UTF-8"),
    ],
)
def test_a_nest_that_is_none_is_refused(message, words):
    with pytest.raises(CodecError, match=words):
        unpack_nest(over_the_wire(message))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_message_with_changed_bytes_is_refused_or_is_another_nest(data):
    nest = {"obs": np.arange(6, dtype="f4").reshape(2, 3), "t": [torch.ones(2), 1, (None, "x", 1j)]}
    raw = bytearray(pack_nest(nest).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CodecError, DecodeError):
        unpack_nest(Nest.FromString(bytes(raw)), limits=Limits(max_bytes=1 << 20))


def test_packing_needs_no_torch():
    code = (
        "import sys, numpy as np; from ludus.grpc.arrays import pack_nest, unpack_nest; "
        "unpack_nest(pack_nest({'a': np.ones(2)})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0
