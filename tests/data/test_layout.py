from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from ludus.data import layout
from ludus.data.fault import Fault

from . import nests


@given(nests.dtypes())
@settings(max_examples=200, deadline=None)
def test_every_dtype_is_restored_from_its_description(dtype):
    restored = layout.restore(layout.describe(dtype))
    assert restored == dtype
    assert restored.fields == dtype.fields
    assert restored.itemsize == dtype.itemsize


def test_descriptions_are_plain_to_read():
    assert layout.describe(np.dtype("f4")) == "<f4"
    assert layout.describe(np.dtype(">M8[25s]")) == ">M8[25s]"
    dtype = np.dtype([("a", "u1"), (("title", "b"), "<i2", (2, 3))], align=True)
    assert layout.describe(dtype) == {
        "itemsize": 14,
        "fields": [["a", 0, "|u1"], ["b", 2, ["<i2", [2, 3]], "title"]],
    }


def test_a_layout_knows_its_bytes_and_what_it_would_span_without_zeros():
    found = layout.unpack(layout.pack((2, 0, 3), np.dtype("f8")))
    assert found == layout.Layout((2, 0, 3), np.dtype("f8"), 0, 48)
    assert layout.unpack(layout.pack((), np.dtype("f8"))).nbytes == 8
    assert layout.span((10,), np.dtype("V0")) == 10


@pytest.mark.parametrize("packed", [b"", b"\xc0", b"\x90", b"\x80", b"\xa3<f4", b"\x92\xa3<f4", b"\x91" * 5000])
def test_what_was_not_packed_here_is_refused(packed):
    with pytest.raises(Fault):
        layout.unpack(packed)


@pytest.mark.parametrize("dtype", [np.dtype("O"), np.dtype([("a", [("b", "O")])]), np.dtype(("i4", [("a", "i4")]))])
def test_dtypes_that_cannot_be_sent_are_refused(dtype):
    with pytest.raises(Fault):
        layout.pack((1,), dtype)


def test_descriptions_are_bounded():
    many = np.dtype([(f"a rather long name {i}", "u1") for i in range(3000)])
    with pytest.raises(Fault, match="longer"):
        layout.pack((1,), many)
