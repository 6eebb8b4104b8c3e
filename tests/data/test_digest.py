import numpy as np

from ludus.data.digest import digest


def test_equal_nests_have_equal_digests_whatever_the_order_of_their_keys():
    one, two = np.arange(3.0), np.ones((2, 2), np.float32)
    assert digest({"a": one, "b": two}) == digest({"b": two.copy(), "a": one.copy()})


def test_a_changed_bit_shape_dtype_or_name_changes_the_digest():
    base = {"a": np.zeros(4, np.float32)}
    flipped = np.zeros(4, np.float32)
    flipped[3] = -0.0
    others = [
        {"a": flipped},
        {"a": np.zeros((2, 2), np.float32)},
        {"a": np.zeros(4, np.int32)},
        {"b": np.zeros(4, np.float32)},
    ]
    assert len({digest(nest) for nest in [base, *others]}) == 5


def test_strided_and_empty_arrays_have_digests():
    square = np.arange(9.0).reshape(3, 3)
    assert digest(square.T) == digest(np.ascontiguousarray(square.T)) != digest(square)
    assert digest(np.zeros((0, 3))) != digest(np.zeros((3, 0)))
