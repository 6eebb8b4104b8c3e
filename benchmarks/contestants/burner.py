"""A process that only computes, held to one core: what is left of its rate is what others left of that core.

burner.py CORE
"""

from __future__ import annotations

import os
import sys
from typing import Any

from slices import Channel, Nest


class Burner:
    """Fits the loop of one caller: a call is a fixed piece of arithmetic."""

    def call(self, nest: Nest) -> Nest:
        sum(range(2000))
        return nest


def connect(_order: dict[str, Any]) -> Burner:
    return Burner()


if __name__ == "__main__":
    channel = Channel()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(sys.argv[1])})
    channel.hello()
    channel.take_orders(connect)
