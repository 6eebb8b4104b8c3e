from __future__ import annotations

import numpy as np

from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.league.experience import Experience

from .segments import ROWS, segment


def test_a_new_segment_comes_first_and_as_it_is() -> None:
    experience = Experience(TicTacToe(), num_past=2, seed=1)
    for number in range(5):
        new = segment(number)
        found = experience.with_past(new)
        assert found.num_rows == ROWS * (1 + min(number, 2))
        assert np.array_equal(found.obs[:, :ROWS], new.obs)
        assert np.array_equal(found.action[:, :ROWS], new.action)
        assert (found.reward[:, ROWS:] < number).all(), "the others are earlier ones"
        assert found.global_state is None


def test_earlier_segments_are_seen_by_all_symmetries_and_stay_consistent() -> None:
    experience = Experience(TicTacToe(), num_past=1, seed=1)
    first = segment(0)
    experience.with_past(first)
    seen = set()
    for number in range(1, 60):
        past = experience.with_past(segment(number))
        action = past.action[:, ROWS:]
        for known in (past.extra[:, ROWS:], past.mask[:-1, ROWS:], past.obs[:-1, ROWS:, :9]):
            assert np.array_equal(known.argmax(-1), action), "the move, its policy, its mask and the cell are one"
        if (past.reward[:, ROWS:] == 0).all():
            seen.add(action.tobytes())
    assert len(seen) > 1


def test_what_is_kept_is_a_copy() -> None:
    experience = Experience(TicTacToe(), num_past=1, seed=1)
    new = segment(0)
    experience.with_past(new)
    new.reward[:] = 99.0  # a simulator uses its arrays again
    assert (experience.with_past(segment(1)).reward[:, ROWS:] == 0.0).all()


def test_without_a_past_a_segment_is_learnt_from_alone() -> None:
    experience = Experience(TicTacToe(), num_past=0, seed=1)
    for number in range(3):
        assert experience.with_past(segment(number)).num_rows == ROWS
