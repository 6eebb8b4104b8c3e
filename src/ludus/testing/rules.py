"""The contract of `core.Rules` as tests, for our board games and for yours.

    class TestMyGame(RulesConformance):
        def make(self):
            return MyGame()

Games are played at random on `num_boards` boards at once, each until it ends.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from ludus.core import HasSymmetries, Rules
from ludus.data.spec import ArraySpec

__all__ = ["RulesConformance"]


class Ply(NamedTuple):
    """One move on every board that was in play."""

    before: NDArray[np.int64]
    action: NDArray[np.int64]
    after: NDArray[np.int64]
    reward: NDArray[np.float32]
    over: NDArray[np.bool_]


class RulesConformance:
    """Subclass it and write `make`."""

    num_boards: ClassVar[int] = 64
    is_zero_sum: ClassVar[bool] = True  # what one player wins the others lose

    def make(self) -> Rules:
        raise NotImplementedError("a subclass of RulesConformance writes `make`")

    @pytest.fixture
    def rules(self) -> Rules:
        return self.make()

    @pytest.fixture
    def plies(self, rules: Rules) -> list[Ply]:
        return _play(rules, self.num_boards)

    # ── what the rules say of themselves ──────────────────────────────────────────────────────────────────────────

    def test_it_is_recognised_as_rules(self, rules: Rules) -> None:
        assert isinstance(rules, Rules)
        assert isinstance(rules.obs, ArraySpec)
        assert isinstance(rules.state, ArraySpec)
        assert rules.state.dtype == np.int64
        assert rules.name
        assert min(rules.num_players, rules.num_actions, rules.max_moves) >= 1

    def test_every_array_has_the_shape_and_dtype_of_the_contract(self, rules: Rules, plies: list[Ply]) -> None:
        for ply in (plies[0], plies[-1]):
            num = len(ply.before)
            for state in (ply.before, ply.after):
                _check(state, (num, *rules.state.shape), np.int64)
                _check(rules.to_move(state), (num,), np.int64)
                _check(rules.legal(state), (num, rules.num_actions), np.bool_)
                _check(rules.observe(state, rules.to_move(state)), (num, *rules.obs.shape), rules.obs.dtype)
                _check(rules.cells(state), (num, *rules.cell_actions.shape), np.int8)
            _check(ply.reward, (num, rules.num_players), np.float32)
            _check(ply.over, (num,), np.bool_)

    def test_states_and_observations_are_within_their_bounds(self, rules: Rules, plies: list[Ply]) -> None:
        for ply in plies:
            for state in ply.after:
                rules.state.check(state)
            for player in range(rules.num_players):
                for seen in rules.observe(ply.after, np.full(len(ply.after), player)):
                    rules.obs.check(seen)

    # ── a game ────────────────────────────────────────────────────────────────────────────────────────────────────

    def test_all_boards_start_alike(self, rules: Rules) -> None:
        state = rules.start(3)
        assert np.array_equal(state, np.repeat(rules.start(1), 3, axis=0))
        assert rules.legal(state).any(axis=1).all()

    def test_somebody_can_move_until_the_game_is_over(self, rules: Rules, plies: list[Ply]) -> None:
        for ply in plies:
            in_play = ply.after[~ply.over]
            assert rules.legal(in_play).any(axis=1).all(), "the game goes on, and there is no legal move"
            to_move = rules.to_move(in_play)
            assert ((to_move >= 0) & (to_move < rules.num_players)).all()

    def test_games_end_within_max_moves(self, rules: Rules, plies: list[Ply]) -> None:
        assert len(plies) <= rules.max_moves
        assert plies[-1].over.all()

    def test_rewards_are_finite_and_sum_to_zero(self, rules: Rules, plies: list[Ply]) -> None:
        for ply in plies:
            assert np.isfinite(ply.reward).all()
            if self.is_zero_sum and rules.num_players > 1:
                assert not ply.reward.sum(axis=1).any()

    def test_some_game_is_won_by_somebody(self, plies: list[Ply]) -> None:
        assert any(ply.reward.any() for ply in plies)

    # ── many boards at once ───────────────────────────────────────────────────────────────────────────────────────

    def test_nothing_is_written_into_what_is_given(self, rules: Rules, plies: list[Ply]) -> None:
        for ply in plies:
            player = rules.to_move(ply.before)
            for array in (ply.before, ply.action, player):
                array.setflags(write=False)
            after, _, _ = rules.step(ply.before, ply.action)
            rules.legal(ply.before)
            rules.observe(ply.before, player)
            rules.cells(ply.before)
            assert not np.may_share_memory(after, ply.before)

    def test_what_is_returned_is_the_callers_own(self, rules: Rules, plies: list[Ply]) -> None:
        """Overwriting it changes nothing that the rules give later."""
        state = plies[-1].before

        def asked() -> list[NDArray[Any]]:
            return [
                rules.start(2),
                *rules.step(state, plies[-1].action),
                rules.legal(state),
                rules.to_move(state),
                rules.observe(state, rules.to_move(state)),
                rules.cells(state),
            ]

        expected = [array.copy() for array in asked()]
        for array in asked():
            if array.flags.writeable:
                array[...] = 0
        for one, other in zip(expected, asked(), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_a_board_does_not_depend_on_its_neighbours(self, rules: Rules, plies: list[Ply]) -> None:
        for ply in plies:
            board = len(ply.before) // 2
            one = slice(board, board + 1)
            after: tuple[NDArray[Any], ...] = (ply.after, ply.reward, ply.over)
            for alone, among in zip(rules.step(ply.before[one], ply.action[one]), after, strict=True):
                np.testing.assert_array_equal(alone, among[one])
            player = rules.to_move(ply.before)
            np.testing.assert_array_equal(rules.legal(ply.before[one]), rules.legal(ply.before)[one])
            np.testing.assert_array_equal(
                rules.observe(ply.before[one], player[one]), rules.observe(ply.before, player)[one]
            )

    def test_boards_may_be_any_rows_of_an_array(self, rules: Rules, plies: list[Ply]) -> None:
        """Every other row, say, which lie apart in memory."""
        ply = plies[0]
        apart = np.repeat(ply.before, 2, axis=0)[::2]
        for one, other in zip(rules.step(apart, ply.action), ply[2:], strict=True):
            np.testing.assert_array_equal(one, other)
        player = rules.to_move(apart)
        np.testing.assert_array_equal(rules.observe(apart, player), rules.observe(ply.before, player))
        np.testing.assert_array_equal(rules.legal(apart), rules.legal(ply.before))

    def test_no_boards_at_all_are_no_trouble(self, rules: Rules) -> None:
        none, nobody = rules.start(0), np.zeros(0, np.int64)
        assert [len(array) for array in rules.step(none, nobody)] == [0, 0, 0]
        assert rules.legal(none).shape == (0, rules.num_actions)
        assert rules.observe(none, nobody).shape == (0, *rules.obs.shape)
        assert rules.cells(none).shape == (0, *rules.cell_actions.shape)
        assert rules.to_move(none).shape == (0,)

    # ── what people and players see ───────────────────────────────────────────────────────────────────────────────

    def test_states_that_look_different_to_people_look_different_to_players(
        self, rules: Rules, plies: list[Ply]
    ) -> None:
        for ply in plies:
            seen = rules.observe(ply.after, np.zeros(len(ply.after), np.int64)).reshape(len(ply.after), -1)
            cells = rules.cells(ply.after).reshape(len(ply.after), -1)
            same_seen = (seen[:, None] == seen[None]).all(axis=-1)
            same_cells = (cells[:, None] == cells[None]).all(axis=-1)
            assert not (same_seen & ~same_cells).any()

    def test_pieces_belong_to_players(self, rules: Rules, plies: list[Ply]) -> None:
        for ply in plies:
            cells = rules.cells(ply.after)
            assert cells.min() >= 0
            assert cells.max() <= rules.num_players

    def test_a_cell_that_is_pointed_at_means_a_move(self, rules: Rules) -> None:
        actions = rules.cell_actions
        assert actions.ndim == 2
        assert actions.dtype == np.int64
        assert ((actions >= -1) & (actions < rules.num_actions)).all()

    def test_a_heuristic_is_smaller_than_a_win(self, rules: Rules, plies: list[Ply]) -> None:
        heuristic = getattr(rules, "heuristic", None)
        if heuristic is None:
            pytest.skip("these rules have no heuristic")
        for ply in plies:
            in_play = ply.after[~ply.over]
            guess = heuristic(in_play)
            _check(guess, (len(in_play),), np.float32)
            assert (np.abs(guess) < 1).all()

    def test_a_game_in_a_mirror_is_seen_in_that_mirror(self, rules: Rules) -> None:
        if not isinstance(rules, HasSymmetries):
            pytest.skip("these rules have no symmetries")
        assert rules.symmetries
        for places, actions in rules.symmetries:
            names = np.argsort(actions)  # an action → what it is called then
            state = mirrored = rules.start(self.num_boards)
            rng = np.random.default_rng(7)
            while len(state):
                legal = rules.legal(state)
                np.testing.assert_array_equal(rules.legal(mirrored), legal[:, actions])
                action = np.argmax(legal * (rng.random(legal.shape) + 0.01), axis=1)
                state, reward, over = rules.step(state, action)
                mirrored, *rest = rules.step(mirrored, names[action])
                np.testing.assert_array_equal(rest[0], reward)
                np.testing.assert_array_equal(rest[1], over)
                for player in range(rules.num_players):
                    who = np.full(len(state), player)
                    seen = rules.observe(state, who).reshape(len(state), -1)
                    seen_mirrored = rules.observe(mirrored, who).reshape(len(state), -1)
                    np.testing.assert_array_equal(seen_mirrored, seen[:, places])
                state, mirrored = state[~over], mirrored[~over]


def _play(rules: Rules, num_boards: int) -> list[Ply]:
    """Random games, ply by ply; stopped, for a test to find out, at one ply more than there may be."""
    rng = np.random.default_rng(5)
    state = rules.start(num_boards)
    plies: list[Ply] = []
    while len(state) and len(plies) <= rules.max_moves:
        legal = rules.legal(state)
        assert legal.any(axis=1).all(), f"after {len(plies)} moves there is no legal move, and the game is not over"
        action = np.argmax(legal * (rng.random(legal.shape) + 0.01), axis=1)
        ply = Ply(state, action, *rules.step(state.copy(), action.copy()))
        plies.append(ply)
        state = ply.after[~ply.over]
    return plies


def _check(array: NDArray[Any], shape: tuple[int, ...], dtype: Any) -> None:
    assert array.shape == shape
    assert array.dtype == dtype
