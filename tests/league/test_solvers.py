"""Solvers against games whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.errors import DataError
from ludus.league.solvers import alpha_rank, exploitability, fictitious_play, nash, replicator

ROCK_PAPER_SCISSORS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
BIASED = np.array([[0, -1, 2], [1, 0, -1], [-2, 1, 0]])  # rock beats scissors for two: 1/4, 1/2, 1/4
PENNIES = np.array([[2, -1], [-1, 1]])  # not symmetric: both play 2/5, 3/5, and the row player gets 1/5


@pytest.mark.parametrize(
    ("matrix", "rows"),
    [(ROCK_PAPER_SCISSORS, [1 / 3] * 3), (BIASED, [1 / 4, 1 / 2, 1 / 4]), (PENNIES, [2 / 5, 3 / 5])],
    ids=["rock-paper-scissors", "biased", "pennies"],
)
def test_equilibria_of_known_games_are_found(matrix: np.ndarray, rows: list[float]) -> None:
    found = nash(matrix)
    np.testing.assert_allclose(found.rows, rows, atol=1e-7)
    np.testing.assert_allclose(found.columns, rows, atol=1e-7)
    assert exploitability(matrix, *found) == pytest.approx(0.0, abs=1e-7)
    played = fictitious_play(matrix, 20_000)
    np.testing.assert_allclose(played.rows, rows, atol=0.03)
    assert 0.0 < exploitability(matrix, *played) < 0.02


def test_games_of_any_shape_have_an_equilibrium() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        matrix = rng.normal(size=rng.integers(1, 8, size=2))
        found = nash(matrix)
        assert found.rows.sum() == pytest.approx(1.0)
        assert exploitability(matrix, *found) == pytest.approx(0.0, abs=1e-6)


def test_exploitability_is_what_best_responses_gain() -> None:
    rock, uniform = np.array([1.0, 0.0, 0.0]), np.full(3, 1 / 3)
    assert exploitability(ROCK_PAPER_SCISSORS, rock, rock) == 1.0
    assert exploitability(ROCK_PAPER_SCISSORS, rock, uniform) == 0.5
    assert exploitability(ROCK_PAPER_SCISSORS, uniform, uniform) == pytest.approx(0.0)


def test_a_population_goes_in_circles_and_its_average_is_the_equilibrium() -> None:
    path = replicator(ROCK_PAPER_SCISSORS, [0.6, 0.3, 0.1], num_steps=40_000, step_size=0.005)
    np.testing.assert_allclose(path[0], [0.6, 0.3, 0.1])
    np.testing.assert_allclose(path.mean(0), 1 / 3, atol=0.03)
    assert path[-5_000:].max() > 0.5, "it does not settle"
    dominated = replicator([[1.0, 1.0], [0.0, 0.0]], [0.01, 0.99], num_steps=2_000)
    assert dominated[-1, 0] > 0.99


def test_alpha_rank_is_uniform_in_a_circle_and_finds_who_dominates() -> None:
    np.testing.assert_allclose(alpha_rank(ROCK_PAPER_SCISSORS), 1 / 3, atol=1e-3)
    ranks = alpha_rank([[0.5, 0.9, 0.9], [0.1, 0.5, 0.6], [0.1, 0.4, 0.5]])
    assert ranks[0] > 0.99


def test_what_is_no_game_is_refused() -> None:
    for matrix in ([], [[np.nan]], [1.0, 2.0]):
        with pytest.raises(DataError, match="matrix of finite numbers"):
            nash(matrix)
    with pytest.raises(DataError, match="square"):
        replicator([[1.0, 2.0]])
    with pytest.raises(DataError, match="do not fit"):
        exploitability(ROCK_PAPER_SCISSORS, [1.0], [1.0])
    with pytest.raises(DataError, match="shares"):
        replicator(ROCK_PAPER_SCISSORS, [1.0])
