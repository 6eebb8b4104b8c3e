"""What a view offers to losses."""

from __future__ import annotations

import pytest
import torch

from ludus.learn.algorithms.algorithm import View


@pytest.mark.parametrize("is_weighted", [False, True])
def test_what_a_view_normalises_has_mean_0_and_std_1_over_the_steps_that_count(is_weighted: bool) -> None:
    x = torch.tensor([[3.0, 7.0, 4.0], [12.0, -5.0, 9.0]])
    counts = torch.tensor([[True, False, True], [True, True, False]]) if is_weighted else torch.ones(2, 3).bool()
    weight = counts / counts.sum() if is_weighted else None
    view = View(head=None, params=None, value=None, action=None, logp=None, weight=weight)
    chosen = x[counts]
    expected = (x - chosen.mean()) / chosen.std(correction=0)
    torch.testing.assert_close(view.normalise(x), expected)
    assert float(view.mean(view.normalise(x))) == pytest.approx(0.0, abs=1e-6)
