"""Numbers and times as people read them."""

from __future__ import annotations

__all__ = ["spell_age", "spell_count"]


def spell_age(seconds: float) -> str:
    """`5 s`, `3 min`, `2 h`, `4 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def spell_count(number: float) -> str:
    """`950`, `12.3k`, `4.56M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 10 * size or (size > 1e3 and abs(number) >= size):
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}"
