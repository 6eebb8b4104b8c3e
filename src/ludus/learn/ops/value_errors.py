"""Errors of estimated values, and of estimated distributions of returns. Tensors in, tensors out."""

from __future__ import annotations

from typing import Any

__all__ = ["categorical_error", "huber", "project", "quantile_error", "rescaled", "unscaled"]

_RESCALE_EPS = 1e-3


def huber(error: Any, delta: float) -> Any:
    """Half the square up to `delta`, linear beyond it."""
    size = error.abs()
    small = size.clamp(max=delta)
    return small * (size - 0.5 * small)


def project(probs: Any, reward: Any, discount: Any, *, v_min: float, v_max: float) -> Any:
    """The distribution `[B, atoms]` of `reward + discount * G`, of which `probs` `[B, atoms]` are those of `G`.

    Atoms lie evenly from `v_min` to `v_max`; what falls between two is shared by them, and what falls beyond all goes
    to the outermost. https://arxiv.org/abs/1707.06887, algorithm 1
    """
    num_atoms = probs.shape[-1]
    distance = (v_max - v_min) / (num_atoms - 1)
    atoms = v_min + distance * (probs.new_ones(num_atoms).cumsum(0) - 1.0)
    moved = (reward.unsqueeze(-1) + discount.unsqueeze(-1) * atoms).clamp(v_min, v_max)
    place = (moved - v_min) / distance
    below = place.floor().clamp(0, num_atoms - 2)
    above = place - below  # the share of the atom above
    below = below.long()
    projected = probs.new_zeros(probs.shape)
    projected.scatter_add_(-1, below, probs * (1.0 - above))
    return projected.scatter_add_(-1, below + 1, probs * above)


def categorical_error(logits: Any, target: Any) -> Any:
    """KL divergence `[B]` of the distribution of `logits` `[B, atoms]` from the target's probabilities."""
    entropy = -(target * target.clamp(min=1e-30).log()).sum(-1)
    return -(target * logits.log_softmax(-1)).sum(-1) - entropy


def quantile_error(quantiles: Any, target: Any, *, delta: float) -> Any:
    """Of quantiles `[B, N]` to samples `[B, M]` of the target: a sum over quantiles of means over samples, `[B]`.

    https://arxiv.org/abs/1710.10044, equation 10
    """
    num_quantiles = quantiles.shape[-1]
    middles = (quantiles.new_ones(num_quantiles).cumsum(0) - 0.5) / num_quantiles
    error = target.unsqueeze(-2) - quantiles.unsqueeze(-1)  # [B, N, M]
    share = (middles.unsqueeze(-1) - (error.detach() < 0.0).to(error.dtype)).abs()
    return (share * huber(error, delta)).mean(-1).sum(-1) / delta


def rescaled(x: Any) -> Any:
    """Large values made small: `sign(x) (sqrt(|x| + 1) - 1) + eps x`. https://arxiv.org/abs/1805.11593"""
    return x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + _RESCALE_EPS * x


def unscaled(x: Any) -> Any:
    """The inverse of `rescaled`."""
    size = x.double().abs()  # in float32 the difference below has few digits left
    root = (1.0 + 4.0 * _RESCALE_EPS * (size + 1.0 + _RESCALE_EPS)).sqrt()
    return x.sign() * (((root - 1.0) / (2.0 * _RESCALE_EPS)).square() - 1.0).to(x.dtype)
