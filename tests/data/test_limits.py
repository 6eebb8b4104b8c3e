from __future__ import annotations

import dataclasses
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.data import DEFAULT_LIMITS, Limits
from ludus.data.fault import Fault
from ludus.data.limits import check_header

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.integers(0, 999) | st.text(), inner, max_size=20),
    max_leaves=30,
)


def num_values(node: object) -> int:
    if isinstance(node, dict):
        return 1 + sum(map(num_values, node.values()))
    return 1 + sum(map(num_values, node)) if isinstance(node, list) else 1


def depth(node: object) -> int:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else None
    return 0 if children is None else 1 + max(map(depth, children), default=0)


@given(PLAIN)
@settings(max_examples=100, deadline=None)
def test_values_and_levels_are_counted_exactly(value):
    header = msgspec.msgpack.encode(value)
    count = num_values(value)
    check_header(header, Limits(max_leaves=count, max_depth=depth(value)))
    if depth(value) > 0 and len(header) > count:  # else it is not looked at
        with pytest.raises(Fault, match="max_depth"):
            check_header(header, Limits(max_leaves=count, max_depth=depth(value) - 1))
    if count > 1:  # a header of one value is never looked at
        with pytest.raises(Fault):
            check_header(header, Limits(max_leaves=count - 1))


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_can_be_counted(header):
    try:
        check_header(header, Limits(max_leaves=3, max_depth=2))
    except Fault as fault:
        assert "more than 3 values" in fault.message or "max_depth" in fault.message  # noqa: PT017


@pytest.mark.parametrize("size", [15, 16, 300, 70_000])
def test_every_width_of_length_field_is_read(size):
    for value in (["x"] * size, dict.fromkeys(range(size)), ["x" * size] * 3, [b"x" * size] * 3):
        count = num_values(value)
        check_header(msgspec.msgpack.encode(value), Limits(max_leaves=count))
        with pytest.raises(Fault):
            check_header(msgspec.msgpack.encode(value), Limits(max_leaves=count - 1))


def test_deep_headers_are_looked_at_when_the_interpreters_limit_was_raised():
    limit = sys.getrecursionlimit()
    deep = b"\x91" * 50_000
    check_header(deep, DEFAULT_LIMITS)  # the decoder stops by itself
    try:
        sys.setrecursionlimit(10**6)
        with pytest.raises(Fault, match="max_depth"):
            check_header(deep, DEFAULT_LIMITS)
    finally:
        sys.setrecursionlimit(limit)


def test_limits_are_values_with_names():
    assert Limits() == DEFAULT_LIMITS
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT_LIMITS.max_depth = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        Limits(5)  # type: ignore[misc]
