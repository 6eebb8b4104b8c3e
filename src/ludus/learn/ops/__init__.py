"""Pure maths: advantages, returns, losses, distributions over actions. For algorithms and for a user's own trainer.

    value = net(obs)[1]                                                              # [T + 1, R]
    advantage, value_target = ops.gae(reward, value, terminated, gamma=0.99, lam=0.95)   # [T, R]
    loss, metrics = ops.clipped_loss(head, logits, value, action=action, logp=logp, advantage=advantage, ...)

torch is loaded with the distributions, which are loaded when first used: settings of algorithms are shown without it.
"""

from __future__ import annotations

from typing import Any

from ludus.learn.ops.gae import gae
from ludus.learn.ops.losses import clipped_loss, policy_gradient_loss
from ludus.learn.ops.normalise import normalise
from ludus.learn.ops.nstep import n_step_returns
from ludus.learn.ops.steps import reverse_scan
from ludus.learn.ops.vtrace import vtrace

__all__ = [
    "clipped_loss",
    "gae",
    "head_for",
    "n_step_returns",
    "normalise",
    "policy_gradient_loss",
    "reverse_scan",
    "vtrace",
]


def __getattr__(name: str) -> Any:
    if name != "head_for":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ludus.learn.ops.distributions import head_for

    return head_for
