from __future__ import annotations

import numpy as np
import pytest

from ludus import errors
from ludus.services.buffer.compression import compress, decompress


def test_large_frames_are_compressed_if_that_makes_them_smaller_and_small_ones_are_not() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)
    item = {"zeros": np.zeros((100, 100), np.float32), "noise": noise, "few": np.arange(4), "text": "x", "n": None}
    packed = compress(item)
    sizes = dict(zip(["header", *item], packed.sizes, strict=False))
    assert sizes["zeros"] == 40_000
    assert sizes["noise"] == 0
    assert packed.nbytes < 6000
    back = decompress(packed)
    assert back.keys() == item.keys()
    for name in ("zeros", "noise", "few"):
        assert np.array_equal(back[name], item[name])
    assert back["zeros"].flags.writeable


def test_it_is_a_copy() -> None:
    array = np.zeros(2000)
    packed = compress([array])
    array[:] = 1.0
    assert not decompress(packed)[0].any()


def test_what_the_codec_does_not_know_is_refused() -> None:
    with pytest.raises(errors.CodecError):
        compress({"object": object()})
