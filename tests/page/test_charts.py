from __future__ import annotations

import json
import math
import re

import pytest

from ludus.page.charts import Series, line_chart, thin, ticks


def test_thinned_lines_keep_their_ends_their_peaks_and_their_order() -> None:
    points = [(float(x), math.sin(x / 50)) for x in range(10_000)]
    points[6_001] = (6_001.0, 9.0)
    kept = thin(points, 200)
    assert len(kept) <= 200
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (0, 9_999)
    assert 6_001 in kept


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.2, 17.0), (1e6, 2.5e6), (0.001, 0.0013)])
def test_ticks_are_round_and_within(low: float, high: float) -> None:
    found = ticks(low, high, 5)
    assert 2 <= len(found) <= 6
    assert all(low <= tick <= high * (1 + 1e-9) for tick in found)


@pytest.mark.parametrize(
    "points", [[(0.0, 1.0)], [(0.0, 2.0), (1.0, 2.0)], [(0.0, math.nan), (1.0, 3.0)], [(5.0, 0.0), (5.0, 1e-30)]]
)
def test_lines_that_are_flat_short_or_broken_are_drawn(points: list[tuple[float, float]]) -> None:
    drawn = str(line_chart([Series("a", points)], title="t", x_name="x", y_name="y"))
    assert "nan" not in drawn
    (values,) = {json.dumps(json.loads(found.replace("&#34;", '"'))[0]["name"]) for found in
                 re.findall(r'data-values="([^"]*)"', drawn)}  # fmt: skip
    assert values == '"a"'


def test_a_chart_of_nothing_says_so() -> None:
    assert "nothing yet" in str(line_chart([Series("a", [])], title="t", x_name="x", y_name="y"))
    assert "nothing yet" in str(line_chart([Series("a", [(0.0, math.nan)])], title="t", x_name="x", y_name="y"))
