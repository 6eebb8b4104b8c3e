"""Losses of actor-critics: policy loss, value loss and entropy bonus, for our algorithms and a user's own trainer.

Given a head for the kind of action and the steps of a batch, `[N]`, with advantages and value targets by `gae`:

    head = ops.head_for(Discrete(3))
    logits, value = net(obs)
    loss, metrics = ops.clipped_loss(
        head, logits, value, action=action, logp=logp, advantage=advantage, value_target=value_target,
        clip=0.2, value_coef=0.5, entropy_coef=0.01,
    )
    loss.backward()

`weight` is what each step counts in a mean, 0 for steps to leave out; weights usually sum to 1. Without it, every step
counts the same. Metrics are numbers or tensors of one element.
"""

from __future__ import annotations

from typing import Any

__all__ = ["clipped_loss", "policy_gradient_loss"]


def policy_gradient_loss(
    logp: Any,
    entropy: Any,
    value: Any,
    *,
    advantage: Any,
    value_target: Any,
    value_coef: float,
    entropy_coef: float,
    weight: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """A2C's loss: https://arxiv.org/abs/1602.01783

        -mean(advantage * logp) + value_coef * mean((value - value_target)²) / 2 - entropy_coef * mean(entropy)

    `logp`, `entropy` (of `Head.logp_and_entropy`) and `value` carry gradients; the others do not.
    """
    return _total(-_mean(advantage * logp, weight), entropy, value, value_target, value_coef, entropy_coef, weight)


def clipped_loss(
    head: Any,
    params: Any,
    value: Any,
    *,
    action: Any,
    logp: Any,
    advantage: Any,
    value_target: Any,
    clip: float | tuple[Any, Any],
    value_coef: float,
    entropy_coef: float,
    mask: Any = None,
    weight: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """PPO's loss: https://arxiv.org/abs/1707.06347

    As `policy_gradient_loss`, with `ratio = exp(new logp - logp)` and the policy loss

        -mean(min(advantage * ratio, advantage * clip(ratio, 1 - clip, 1 + clip)))

    that is, a step pushes its ratio up to `1 + clip`, or down to `1 - clip`, and no further. For bounds of each step,
    give `clip` as a pair of tensors: where pushing down ends, and where pushing up does.

    `params`, of the head's distribution, and `value` carry gradients; `logp` is that of the policy that the ratio is
    measured from. The metric `kl` estimates how far the new policy is from that one.
    """
    if mask is None and weight is None:
        from ludus.learn.ops import numpy_clipped_loss  # here, because it loads torch

        if numpy_clipped_loss.is_for(head, params):
            return numpy_clipped_loss.clipped_loss(
                params, value, action=action, logp=logp, advantage=advantage, value_target=value_target,
                clip=clip, value_coef=value_coef, entropy_coef=entropy_coef,
            )  # fmt: skip
    new_logp, entropy = head.logp_and_entropy(params, action, mask)
    log_ratio = new_logp - logp
    ratio = log_ratio.exp()
    lowest, highest = clip if isinstance(clip, tuple) else (1.0 - clip, 1.0 + clip)
    counted = ratio.clamp(max=highest).where(advantage > 0.0, ratio.clamp(min=lowest))
    policy_loss = -_mean(advantage * counted, weight)
    loss, metrics = _total(policy_loss, entropy, value, value_target, value_coef, entropy_coef, weight)
    metrics["kl"] = _mean((ratio - log_ratio).detach() - 1.0, weight)  # the 1 inside: a share of it on each rank
    return loss, metrics


def _total(
    policy_loss: Any, entropy: Any, value: Any, value_target: Any, value_coef: float, entropy_coef: float, weight: Any
) -> tuple[Any, dict[str, Any]]:
    value_loss = 0.5 * _mean((value - value_target).square(), weight)
    entropy = _mean(entropy, weight)
    loss = policy_loss + value_coef * value_loss - entropy_coef * entropy
    return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}


def _mean(x: Any, weight: Any) -> Any:
    return x.mean() if weight is None else (x * weight).sum()
