"""How often Python looks for garbage: seldom, in processes of ours."""

from __future__ import annotations

import gc

__all__ = ["collect_seldom"]

_AFTER = 50_000  # objects; after every 700, as usual, it takes a tenth of the time of torch's import


def collect_seldom() -> None:
    """For the first line of a process that imports much and makes few circles. Reference counts free the rest."""
    gc.set_threshold(_AFTER, *gc.get_threshold()[1:])
