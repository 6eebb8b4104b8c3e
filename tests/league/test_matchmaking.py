"""Rules of matchmaking choose as often as they say, and nobody where nobody fits."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from ludus.errors import ConfigError
from ludus.league.matchmaking import (
    ExploitMain,
    Latest,
    MatchmakingRule,
    Mixed,
    Pfsp,
    SelfPlay,
    Uniform,
    Verification,
    least_played,
    pfsp,
)
from ludus.league.payoff import Payoff
from ludus.league.players import Player

NUM = 20_000


def against(**rates: float) -> Payoff:
    """Of the player "me": its win rate against each, from 100 matches."""
    payoff = Payoff()
    for other, rate in rates.items():
        for number in range(100):
            payoff.begin("m", ("me", other))
            payoff.end("m", (1.0, 0.0) if number < round(100 * rate) else (0.0, 1.0))
    return payoff


def snapshots(*names: str, parent: str | None = None) -> list[Player]:
    return [Player(name, role="snapshot", parent=parent, step=step) for step, name in enumerate(names)]


def shares(rule: MatchmakingRule, candidates: list[Player], payoff: Payoff) -> dict[str | None, float]:
    rng = np.random.default_rng(3)
    counted = Counter(rule.choose("me", candidates, payoff, rng) for _ in range(NUM))
    return {name: count / NUM for name, count in counted.items()}


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("variance", [0.0, 0.25, 0.09]),
        ("linear", [1.0, 0.5, 0.1]),
        ("capped", [0.5, 0.5, 0.1]),
        ("squared", [1.0, 0.25, 0.01]),
    ],
)
def test_the_weightings_of_pfsp_are_those_of_the_paper(weighting: str, expected: list[float]) -> None:
    found = pfsp(np.array([0.0, 0.5, 0.9]), weighting)
    np.testing.assert_allclose(found, np.array(expected) / np.sum(expected))
    np.testing.assert_allclose(pfsp(np.ones(4), weighting), 0.25)  # nobody has a weight


def test_an_unknown_weighting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'squared'"):
        Pfsp("sqared")


def test_pfsp_meets_those_that_are_hard_to_beat() -> None:
    payoff = against(easy=0.9, even=0.5, hard=0.1)
    found = shares(Pfsp("squared"), [*snapshots("easy", "even", "hard"), Player("me")], payoff)
    total = 0.01 + 0.25 + 0.81
    assert found == {
        "easy": pytest.approx(0.01 / total, abs=0.005),
        "even": pytest.approx(0.25 / total, abs=0.015),
        "hard": pytest.approx(0.81 / total, abs=0.015),
    }


def test_uniform_meets_all_snapshots_alike() -> None:
    found = shares(Uniform(), [*snapshots("a", "b"), Player("me")], against(a=0.9))
    assert found == {"a": pytest.approx(0.5, abs=0.015), "b": pytest.approx(0.5, abs=0.015)}


def test_latest_is_the_newest_of_ones_own() -> None:
    candidates = [*snapshots("old", "new", parent="me"), *snapshots("a", "b", "c", parent="other")]
    assert shares(Latest(), candidates, Payoff()) == {"new": 1.0}


def test_self_play_meets_those_that_learn_or_their_past_where_they_are_too_strong() -> None:
    candidates = [Player("me"), Player("rival"), *snapshots("rival-1", "rival-2", parent="rival")]
    even = shares(SelfPlay(), candidates, against(rival=0.4))
    assert even == {"me": pytest.approx(0.5, abs=0.015), "rival": pytest.approx(0.5, abs=0.015)}
    weak = against(**{"rival": 0.1, "rival-1": 0.5, "rival-2": 0.1})
    found = shares(SelfPlay(), candidates, weak)
    assert set(found) == {"me", "rival-1", "rival-2"}
    assert found["rival-1"] / found["rival-2"] == pytest.approx(0.25 / 0.09, rel=0.1)
    alone = shares(SelfPlay(), candidates[:2], against(rival=0.1))
    assert set(alone) == {"me", "rival"}, "one without a past is met as it is"


def test_an_exploiter_of_main_agents_meets_them_or_their_past_where_they_are_too_strong() -> None:
    candidates = [
        Player("me", role="main_exploiter"),
        Player("one"),
        Player("two"),
        *snapshots("two-1", "two-2", parent="two"),
        *snapshots("past", parent="me"),
    ]
    found = shares(ExploitMain(), candidates, against(**{"one": 0.2, "two": 0.05, "two-1": 0.5, "two-2": 0.1}))
    assert set(found) == {"one", "two-1", "two-2"}
    assert found["one"] == pytest.approx(0.5, abs=0.015)
    assert found["two-1"] / found["two-2"] == pytest.approx(0.25 / 0.09, rel=0.1)
    assert shares(ExploitMain(), candidates[:1], Payoff()) == {None: 1.0}


def test_verification_meets_what_was_forgotten() -> None:
    own, exploiters = snapshots("mine", "mine-lost", parent="me"), snapshots("ex", "ex-lost", parent="ex-main")
    payoff = against(**{"mine": 0.8, "mine-lost": 0.6, "ex": 0.4, "ex-lost": 0.2})
    found = shares(Verification(), [*own, *exploiters, Player("me")], payoff)
    total = 0.16 + 0.64
    assert found == {"mine-lost": pytest.approx(0.2, abs=0.015), "ex-lost": pytest.approx(0.64 / total, abs=0.015)}


def test_a_mixture_draws_rules_by_their_shares_and_another_where_nobody_fits() -> None:
    rule = Mixed({Pfsp(): 0.5, SelfPlay(): 0.35, Verification(): 0.15})
    candidates = [Player("me"), *snapshots("past", parent="me")]
    found = shares(rule, candidates, against(past=0.6))
    assert found == {"past": pytest.approx(0.65, abs=0.015), "me": pytest.approx(0.35, abs=0.015)}
    found = shares(rule, candidates, against(past=0.9))  # nothing to verify: its share goes to the others
    assert found["past"] == pytest.approx(0.5 / 0.85, abs=0.015)
    assert shares(rule, [Player("me")], Payoff()) == {"me": 1.0}
    assert shares(rule, [], Payoff()) == {None: 1.0}


@pytest.mark.parametrize("rules", [{}, {Uniform(): 0.0}, {Uniform(): 1.0, Latest(): -0.1}], ids=str)
def test_shares_that_make_no_sense_are_refused(rules: dict[MatchmakingRule, float]) -> None:
    with pytest.raises(ConfigError, match="shares"):
        Mixed(rules)


def test_an_evaluation_plays_the_pair_that_met_least() -> None:
    payoff, rng = Payoff(), np.random.default_rng(5)
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    for number in range(300):
        one, two = next(least_played(pairs, payoff, rng))
        payoff.begin(str(number), (one, two))
        if number % 3 == 0:
            payoff.end(str(number), (1.0, 0.0))
    assert {payoff.games(*pair) for pair in pairs} == {100}
    given = Counter(itertools.islice(least_played(pairs, payoff, rng), 300))
    assert set(given.values()) == {100}, "those that it gave count as well"
