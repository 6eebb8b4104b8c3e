"""Products by either library are the same to rounding, and each is used where it is the faster one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.learn.ops import products

torch.set_num_threads(1)

LARGE = (160, 128, 256)  # rows, inputs, outputs
SMALL = (16, 4, 8)


def matrices(size: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    rows, inputs, outputs = size
    return (
        torch.randn(rows, inputs, generator=generator),
        torch.randn(inputs, outputs, generator=generator),
        torch.randn(outputs, generator=generator),
    )


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of oneDNN."""
    made: list[Any] = []
    onednn = products.ONEDNN

    def call(*args: Any) -> Any:
        made.append(args)
        return onednn(*args)

    monkeypatch.setattr(products, "ONEDNN", call)
    return made


@pytest.mark.parametrize("size", [LARGE, SMALL])
@pytest.mark.parametrize("layout", ["plain", "left transposed", "right transposed", "a part of the rows"])
@pytest.mark.parametrize("has_onednn", [True, False])
def test_products_are_exact_to_rounding(
    size: tuple[int, int, int], layout: str, has_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right, _ = matrices(size)
    if layout == "left transposed":
        left = left.t().contiguous().t()
    elif layout == "right transposed":
        right = right.t().contiguous().t()
    elif layout == "a part of the rows":
        left = torch.cat([left, left])[len(left) :]
    if not has_onednn:
        monkeypatch.setattr(products, "ONEDNN", None)
    expected = (left.double() @ right.double()).float()
    torch.testing.assert_close(products.multiply(left, right), expected, atol=1e-4, rtol=1e-4)
    out = torch.full_like(expected, 9.0)
    torch.testing.assert_close(products.multiply(left, right, out), expected, atol=1e-4, rtol=1e-4)
    products.multiply_into(left, right, out)
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [LARGE, SMALL])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("has_onednn", [True, False])
def test_a_layer_is_its_product_its_bias_and_its_activation(
    size: tuple[int, int, int], activation: str, has_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, bias = matrices(size)
    if not has_onednn:
        monkeypatch.setattr(products, "ONEDNN", None)
    expected = getattr(torch, activation)((x.double() @ weight.double()) + bias.double()).float()
    torch.testing.assert_close(products.dense(x, weight, bias, activation), expected, atol=1e-4, rtol=1e-4)
    out = torch.empty_like(expected)
    torch.testing.assert_close(products.dense(x, weight, bias, activation, out), expected, atol=1e-4, rtol=1e-4)


def test_large_float32_products_alone_go_to_onednn(calls: list[Any]) -> None:
    left, right, bias = matrices(LARGE)
    products.multiply(left, right)
    products.dense(left, right, bias, "relu")
    assert len(calls) == 2
    products.multiply(left.double(), right.double())
    products.multiply(*matrices(SMALL)[:2])
    products.dense(*matrices(SMALL), "tanh")
    assert len(calls) == 2


def test_the_same_product_has_the_same_bits_twice() -> None:
    left, right, _ = matrices(LARGE)
    assert torch.equal(products.multiply(left, right), products.multiply(left.clone(), right.clone()))


def test_this_torch_has_onednn() -> None:
    """A test of the pinned version: without it large networks learn at half the speed."""
    if torch.backends.mkldnn.is_available():
        assert products.ONEDNN is not None
