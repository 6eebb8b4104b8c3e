"""Pure maths: recurrences over time, advantages, distributions over actions.

torch is loaded with the distributions, which are loaded when first used: settings of algorithms are shown without it.
"""

from __future__ import annotations

from typing import Any

from ludus.learn.ops.gae import gae
from ludus.learn.ops.nstep import n_step_returns
from ludus.learn.ops.scan import reverse_scan
from ludus.learn.ops.vtrace import vtrace

__all__ = ["gae", "head_for", "n_step_returns", "reverse_scan", "vtrace"]


def __getattr__(name: str) -> Any:
    if name != "head_for":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ludus.learn.ops.distributions import head_for

    return head_for
