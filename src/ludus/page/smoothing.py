"""Smoothed lines: a moving average whose weight falls with the distance."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["CHOICES", "smooth"]

CHOICES = {"none": 0, "some": 5, "much": 20}
"""By name: over how many points to each side."""


def smooth(points: Sequence[tuple[float, float]], reach: int) -> list[tuple[float, float]]:
    """Each point with the weighted mean of its neighbours. Points that are not finite are left out."""
    points = [point for point in points if math.isfinite(point[1])]
    if reach <= 0 or len(points) < 3:
        return points
    reach = min(reach, (len(points) - 1) // 2)
    weights = [1.0 - abs(offset) / (reach + 1) for offset in range(-reach, reach + 1)]
    found = []
    for at, (x, _) in enumerate(points):
        near = min(at, len(points) - 1 - at, reach)  # the same to both sides, so that a slope is not bent at the ends
        total = weight_sum = 0.0
        for offset in range(-near, near + 1):
            weight = weights[offset + reach]
            total += weight * points[at + offset][1]
            weight_sum += weight
        found.append((x, total / weight_sum))
    return found
