"""Results of matches are counted once, by pair and by side; what is in flight is known."""

from __future__ import annotations

import numpy as np
import pytest

from ludus import data
from ludus.errors import ConfigError, DataError
from ludus.league.payoff import Payoff, Record


def play(payoff: Payoff, *players: str, scores: tuple[float, ...], times: int = 1) -> None:
    for _ in range(times):
        payoff.begin("m", players)
        assert payoff.end("m", scores)


def test_both_players_have_the_result_each_from_its_side() -> None:
    payoff = Payoff()
    play(payoff, "a", "b", scores=(1.0, -1.0), times=3)
    play(payoff, "b", "a", scores=(1.0, -1.0))
    play(payoff, "a", "b", scores=(0.0, 0.0), times=2)
    assert payoff.record("a", "b") == Record(wins=3, draws=2, losses=1)
    assert payoff.record("b", "a") == Record(wins=1, draws=2, losses=3)
    assert payoff.win_rate("a", "b") == pytest.approx(4 / 6)


def test_each_side_has_results_of_its_own() -> None:
    payoff = Payoff()
    play(payoff, "a", "b", scores=(1.0, 0.0), times=4)
    play(payoff, "b", "a", scores=(1.0, 0.0), times=2)
    assert payoff.win_rate("a", "b", side=0) == 1.0
    assert payoff.win_rate("a", "b", side=1) == 0.0
    assert payoff.record("a", "b", side=2) == Record()
    for side, games in ((0, [[0, 4], [2, 0]]), (1, [[0, 2], [4, 0]]), (2, [[0, 0], [0, 0]])):
        win_rate, found = payoff.results(["a", "b"], side)
        assert found.tolist() == games
        assert win_rate.tolist() == {0: [[0.5, 1.0], [1.0, 0.5]], 1: [[0.5, 0.0], [0.0, 0.5]]}.get(
            side, [[0.5] * 2] * 2
        )
    win_rate, found = payoff.results(["b", "nobody", "a"])
    assert found.tolist() == [[0, 0, 6], [0, 0, 0], [6, 0, 0]]
    assert win_rate[2, 0] == pytest.approx(4 / 6)


def test_of_several_players_every_pair_has_a_result() -> None:
    payoff = Payoff()
    play(payoff, "a", "b", "c", scores=(3.0, 5.0, 3.0))
    assert payoff.record("b", "a").wins == payoff.record("b", "c").wins == 1
    assert payoff.record("a", "c") == Record(draws=1.0)


def test_a_player_has_no_result_against_itself() -> None:
    payoff = Payoff()
    play(payoff, "a", "a", scores=(1.0, -1.0))
    assert payoff.record("a", "a") == Record()
    assert payoff.win_rate("a", "a") == 0.5


def test_a_result_counts_once_however_often_it_is_reported() -> None:
    payoff = Payoff()
    payoff.begin("m", ("a", "b"))
    assert payoff.end("m", (1.0, 0.0))
    assert not payoff.end("m", (1.0, 0.0))
    assert not payoff.abort("m")
    assert payoff.record("a", "b").games == 1


def test_an_aborted_match_does_not_count() -> None:
    payoff = Payoff()
    payoff.begin("m", ("a", "b"))
    assert payoff.games("a", "b") == 1, "those in flight count as games that were asked for"
    assert payoff.abort("m")
    assert not payoff.end("m", (1.0, 0.0))
    assert payoff.games("a", "b") == 0


@pytest.mark.parametrize("scores", [(1.0,), (1.0, float("nan")), (1.0, 0.0, 0.0)], ids=str)
def test_a_result_that_does_not_fit_counts_nothing_and_leaves_the_match_in_flight(scores: tuple[float, ...]) -> None:
    payoff = Payoff()
    payoff.begin("m", ("a", "b"))
    with pytest.raises(DataError, match="nothing was counted"):
        payoff.end("m", scores)
    assert payoff.in_flight == {"m": ("a", "b")}
    with pytest.raises(DataError, match="in flight already"):
        payoff.begin("m", ("a", "c"))
    assert payoff.end("m", (1.0, 0.0))


def test_old_results_fade_by_pair_and_seat() -> None:
    payoff = Payoff(decay=0.5)
    play(payoff, "a", "b", scores=(1.0, 0.0), times=2)
    play(payoff, "a", "b", scores=(0.0, 1.0))
    assert payoff.record("a", "b") == Record(wins=0.75, losses=1.0)
    play(payoff, "c", "b", scores=(1.0, 0.0))
    assert payoff.record("a", "b").games == 1.75, "a match of others does not age them"


def test_few_games_say_nothing() -> None:
    payoff = Payoff(min_games=3)
    play(payoff, "a", "b", scores=(1.0, 0.0), times=2)
    assert payoff.win_rate("a", "b") == 0.5
    np.testing.assert_array_equal(payoff.matrix(["a", "b"]), np.full((2, 2), 0.5))
    play(payoff, "a", "b", scores=(1.0, 0.0))
    assert payoff.win_rate("a", "b") == 1.0
    np.testing.assert_array_equal(payoff.matrix(["a", "b", "c"]), [[0.5, 1.0, 0.5], [0.0, 0.5, 0.5], [0.5, 0.5, 0.5]])


def test_the_interval_of_a_win_rate_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    wins = rng.binomial(40, 0.8, size=4_000)
    held = [low <= 0.8 <= high for low, high in (Record(wins=w, losses=40 - w).interval() for w in wins.tolist())]
    assert 0.92 <= np.mean(held) <= 0.98
    assert Record().interval() == (0.0, 1.0)
    low, high = Record(wins=10.0).interval()
    assert 0.6 < low < 0.8
    assert high == 1.0


def test_a_player_that_is_removed_is_forgotten_by_all() -> None:
    payoff = Payoff()
    play(payoff, "a", "b", scores=(1.0, 0.0))
    play(payoff, "a", "c", scores=(1.0, 0.0))
    payoff.begin("m", ("b", "c"))
    payoff.remove("b")
    assert payoff.record("a", "b") == Record()
    assert payoff.record("a", "c").wins == 1
    assert payoff.in_flight == {}


def test_what_is_restored_goes_on_where_it_was_saved() -> None:
    payoff = Payoff(decay=0.9)
    play(payoff, "a", "b", scores=(1.0, 0.0), times=3)
    payoff.begin("open", ("a", "b"))
    saved = data.decode(data.encode(payoff.save()))
    again = Payoff(decay=0.9)
    again.restore(saved)
    for each in (payoff, again):
        assert each.end("open", (0.0, 1.0))
    assert again.record("a", "b") == payoff.record("a", "b")
    assert not again.end("open", (0.0, 1.0))


def test_settings_that_make_no_sense_are_refused() -> None:
    for settings in ({"decay": 0.0}, {"decay": 1.1}, {"min_games": -1.0}):
        with pytest.raises(ConfigError):
            Payoff(**settings)
    with pytest.raises(DataError, match="no players"):
        Payoff().begin("m", ())


def test_mean_scores_are_by_side_and_no_side_counts_more_than_another() -> None:
    payoff = Payoff()
    play(payoff, "a", "b", scores=(4.0, -4.0), times=3)
    play(payoff, "b", "a", scores=(1.0, -1.0))
    assert payoff.mean_score("a", "b", side=0) == 4.0
    assert payoff.mean_score("a", "b", side=1) == -1.0
    assert payoff.mean_score("a", "b") == 1.5
    assert payoff.score_matrix(["a", "b", "c"]).tolist() == [[0.0, 1.5, 0.0], [-1.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert payoff.score_matrix([]).shape == (0, 0)


def test_scores_decay_and_are_saved_and_old_files_have_a_point_for_a_win() -> None:
    payoff = Payoff(decay=0.5)
    play(payoff, "a", "b", scores=(8.0, -8.0))
    play(payoff, "a", "b", scores=(2.0, -2.0))
    assert payoff.mean_score("a", "b") == pytest.approx(4.0)
    again = Payoff(decay=0.5)
    again.restore(data.decode(data.encode(payoff.save())))
    assert again.mean_score("b", "a") == pytest.approx(-4.0)
    again.restore({"counts": [["a", "b", 0, 3.0, 0.0, 1.0]], "in_flight": {}})
    assert again.mean_score("a", "b") == 0.5
