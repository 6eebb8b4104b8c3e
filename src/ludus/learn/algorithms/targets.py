"""What losses aim at, where algorithms share it: GAE's and V-trace's targets, and advantages of one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ludus.learn import ops

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.data.segment import Segment

__all__ = ["gae_targets", "normalise", "vtrace_targets"]


def gae_targets(
    segment: Segment, value: Tensor, *, gamma: float, lam: float, is_normalised: bool, reduce: Any
) -> dict[str, Tensor]:
    """`advantage` and `value_target` of a segment of tensors, for `Algorithm.targets`."""
    advantage, value_target = ops.gae(
        segment.reward, value, segment.terminated, segment.truncated, segment.active, segment.first,
        gamma=gamma, lam=lam,
    )  # fmt: skip
    if is_normalised:
        advantage = normalise(advantage, segment.active[:-1], reduce)
    return {"advantage": advantage, "value_target": value_target}


def vtrace_targets(
    segment: Segment,
    value: Tensor,
    logp: Tensor,
    *,
    gamma: float,
    lam: float,
    rho_max: float,
    c_max: float,
    is_weighted: bool = True,
    is_normalised: bool = False,
    reduce: Any = None,
) -> dict[str, Tensor]:
    """The same, given what the policy now says of the actions.

    Not `is_weighted` is for a loss that multiplies the advantage by the ratio to the acting policy itself.
    """
    value_target, advantage = ops.vtrace(
        logp.detach(), segment.logp, segment.reward, value.detach(),
        segment.terminated, segment.truncated, segment.active, segment.first,
        gamma=gamma, lam=lam, rho_max=rho_max, c_max=c_max, weighted=is_weighted,
    )  # fmt: skip
    if is_normalised:
        advantage = normalise(advantage, segment.active[:-1], reduce)
    return {"advantage": advantage, "value_target": value_target}


def normalise(x: Tensor, active: Tensor, reduce: Any = None) -> Tensor:
    """`x` scaled by the mean and deviation of its active entries; the others become 0."""
    weight = active.to(x.dtype)
    if reduce is None:
        count = weight.sum().clamp(min=1.0)
        mean = (x * weight).sum() / count
        centred = (x - mean) * weight
        return centred / (((centred * centred).sum() / (count - 1.0).clamp(min=1.0)).sqrt() + 1e-8)
    sums = x.new_empty(2)
    sums[0], sums[1] = weight.sum(), (x * weight).sum()
    reduce(sums)
    count = sums[0].clamp(min=1.0)
    mean = sums[1] / count
    centred = (x - mean) * weight
    square = (centred * centred).sum()
    reduce(square)
    return centred / ((square / (count - 1.0).clamp(min=1.0)).sqrt() + 1e-8)
