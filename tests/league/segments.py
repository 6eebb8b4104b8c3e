"""Segments of tic-tac-toe that can be distinguished."""

from __future__ import annotations

import numpy as np

from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.envs.boards.tic_tac_toe import TicTacToe

STEPS, ROWS = 4, 6


def segment(number: int) -> Segment:
    """Whose moves, policies and masks are all of the same action, seen as one mark on that cell."""
    rng = np.random.default_rng(number)
    one = Segment.allocate(
        STEPS,
        ROWS,
        obs=TicTacToe.obs,
        action=Discrete(9),
        global_state=ArraySpec((3,), np.int64),
        num_envs=ROWS // 2,
        has_mask=True,
        extra=ArraySpec((9,), np.float32),
    )
    one.action[:] = rng.integers(9, size=one.action.shape)
    np.put_along_axis(one.extra, one.action[..., None], 1.0, -1)
    np.put_along_axis(one.mask[:-1], one.action[..., None], True, -1)
    np.put_along_axis(one.obs[:-1], one.action[..., None], 1.0, -1)
    one.reward[:] = number
    one.version[:] = number
    return one
