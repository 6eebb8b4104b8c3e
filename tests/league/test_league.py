"""A league as its members see it: who is met, what a result changes, when somebody is kept or begins again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ludus import data
from ludus.errors import ConfigError, DataError
from ludus.league.league import League, LeagueSettings, Match
from ludus.league.matchmaking import Pfsp, SelfPlay
from ludus.league.players import Player
from ludus.league.roles import RoleRules, SnapshotRule


def rules(**settings: Any) -> RoleRules:
    return RoleRules(matchmaking=SelfPlay(), snapshot=SnapshotRule(min_steps=100, timeout_steps=1_000), **settings)


def make(*players: Player, **settings: Any) -> League:
    league = League(LeagueSettings(**settings), seed=1)
    for player in players:
        league.add(player)
    return league


def names(match: Match) -> tuple[str, ...]:
    return tuple(player.name for player in match.players)


def beat(league: League, winner: str, loser: str, times: int = 1) -> None:
    for _ in range(times):
        match = league.request_evaluation([winner, loser])
        assert league.report(match.id, [1.0 if player.name == winner else -1.0 for player in match.players])


def test_a_learner_meets_itself_first_then_its_past_and_either_side_is_its_own() -> None:
    league = make(Player("main"))
    assert names(league.request_match("main")) == ("main", "main")
    league.snapshot("main")
    met = Counter(names(league.request_match("main")) for _ in range(300))
    assert set(met) == {("main", "main"), ("main", "main-1"), ("main-1", "main")}
    assert min(met.values()) > 60


def test_a_result_counts_once_and_moves_payoff_and_ratings() -> None:
    league = make(Player("main"), Player("bot", role="bot"))
    match = league.request_evaluation()
    scores = [1.0 if player.name == "main" else -1.0 for player in match.players]
    assert league.report(match.id, scores)
    rating = league.ratings.of("main")
    assert not league.report(match.id, scores), "a retried report"
    assert not league.report("unknown", scores)
    assert league.ratings.of("main") == rating
    assert league.payoff.record("main", "bot").wins == 1
    standings = league.standings()
    assert [standing.player.name for standing in standings] == ["main", "bot"]
    assert (standings[0].games, standings[0].win_rate) == (1, 1.0)


def test_an_aborted_match_has_no_result() -> None:
    league = make(Player("main"))
    match = league.request_match("main")
    assert league.abort(match.id)
    assert not league.report(match.id, (1.0, -1.0))
    assert league.payoff.in_flight == {}


def test_a_snapshot_is_taken_when_all_are_beaten_for_sure_or_after_enough_steps() -> None:
    league = make(Player("main", model="net"), Player("bot", role="bot"), rules={"main": rules()})
    beat(league, "main", "bot", times=40)
    assert league.advance("main", step=99, version=3).snapshot is None, "too early"
    taken = league.advance("main", step=100, version=4).snapshot
    assert taken == Player("main-1", role="snapshot", model="net", version=4, parent="main", step=100)
    assert league.ratings.of("main-1") == league.ratings.of("main")
    assert league.advance("main", step=600).snapshot is None, "main-1 is not beaten"
    assert league.advance("main", step=1_099).snapshot is None
    again = league.advance("main", step=1_100).snapshot
    assert again is not None
    assert again.name == "main-2", "time is up"


def test_what_a_learner_reports_twice_changes_nothing() -> None:
    league = make(Player("main"), rules={"main": rules(reset=1.0)})
    first = league.advance("main", step=1_000)
    assert first.snapshot is not None
    assert league.advance("main", step=1_000) == (None, first.num_resets)
    assert league.advance("main", step=500) == (None, first.num_resets)
    assert league.player("main").step == 1_000


def test_a_few_wins_are_not_enough_to_be_sure() -> None:
    league = make(Player("main"), Player("bot", role="bot"), rules={"main": rules()})
    beat(league, "main", "bot", times=5)  # all of them, and the interval goes down to 0.57
    assert league.advance("main", step=500).snapshot is None


def test_exploiters_begin_again_after_a_snapshot_as_often_as_their_rules_say() -> None:
    league = make(
        Player("main"),
        Player("exploiter", role="main_exploiter"),
        Player("wide", role="league_exploiter"),
        rules={"main_exploiter": rules(reset=1.0), "league_exploiter": rules(reset=0.25)},
    )
    resets = [league.advance("exploiter", step=1_000 * number).num_resets for number in range(1, 21)]
    assert resets == list(range(1, 21))
    resets = [league.advance("wide", step=1_000 * number).num_resets for number in range(1, 401)]
    assert resets[-1] / 400 == pytest.approx(0.25, abs=0.07)


def test_learners_take_turns_by_their_steps() -> None:
    league = make(Player("one"), Player("two", role="league_exploiter"), Player("bot", role="bot"))
    turns = []
    for _ in range(4):
        learner = league.next_learner()
        turns.append(learner.name)
        league.advance(learner.name, step=learner.step + 10)
    assert turns == ["one", "two", "one", "two"]
    with pytest.raises(ConfigError, match="nobody in this league learns"):
        make(Player("bot", role="bot")).next_learner()


def test_players_of_one_side_are_met_on_that_side_only() -> None:
    league = make(
        Player("white", sides=(0,)),
        Player("black", sides=(1,)),
        Player("past", role="snapshot", sides=(1,)),
        rules={"main": RoleRules(matchmaking=Pfsp(), snapshot=SnapshotRule())},
    )
    assert {names(league.request_match("white")) for _ in range(50)} == {("white", "past")}
    assert {names(league.request_match("black")) for _ in range(50)} == {("white", "black")}, "nobody fits: any other"
    assert names(league.request_evaluation(["past", "white"])) == ("white", "past")
    with pytest.raises(ConfigError, match="cannot meet"):
        league.request_evaluation(["past", "black"])
    with pytest.raises(ConfigError, match="nobody can play the side 1"):
        make(Player("white", sides=(0,))).request_match("white")


def test_matches_have_as_many_sides_as_the_game() -> None:
    league = make(Player("main"), Player("a", role="bot"), num_sides=3)
    match = league.request_match("main")
    assert len(match.players) == 3
    assert league.report(match.id, (2.0, 1.0, 0.0))
    with pytest.raises(ConfigError, match="two sides"):
        league.request_evaluation()


def test_a_frozen_player_is_met_and_learns_no_more() -> None:
    league = make(Player("main"), Player("old"))
    assert league.freeze("old").is_fixed
    with pytest.raises(ConfigError, match="does not learn"):
        league.request_match("old")
    with pytest.raises(ConfigError, match="does not learn"):
        league.advance("old", step=1)
    assert "old" in {player.name for _ in range(50) for player in league.request_match("main").players}


def test_a_removed_player_is_gone_and_its_name_is_not_used_again() -> None:
    league = make(Player("main"), Player("bot", role="bot"))
    beat(league, "main", "bot")
    match = league.request_evaluation()
    league.remove("bot")
    assert not league.report(match.id, (1.0, -1.0))
    assert [player.name for player in league.players] == ["main"]
    with pytest.raises(ConfigError, match="or was"):
        league.add(Player("bot", role="bot"))
    with pytest.raises(DataError, match="Did you mean 'main'"):
        league.player("mian")


def test_rules_can_change_while_it_runs() -> None:
    league = make(Player("main"), Player("bot", role="bot"))
    beat(league, "main", "bot")
    league.configure(LeagueSettings(decay=0.5, rules={"main": rules()}))
    beat(league, "main", "bot")
    assert league.payoff.record("main", "bot").games < 2.0
    with pytest.raises(ConfigError, match="num_sides"):
        league.configure(LeagueSettings(num_sides=3))


def test_a_restored_league_goes_on_exactly() -> None:
    league = make(Player("main"), Player("ex", role="league_exploiter"), Player("bot", role="bot"))
    for _ in range(30):
        match = league.request_match(league.next_learner().name)
        league.report(match.id, (1.0, -1.0))
        league.advance(str(match.learner), step=league.player(str(match.learner)).step + 60_000)
    open_match = league.request_match("main")
    again = League(LeagueSettings(), seed=99)
    again.restore(data.decode(data.encode(league.save())))
    assert again.players == league.players
    assert again.payoff.in_flight == league.payoff.in_flight
    for _ in range(30):
        matches = [each.request_match(each.next_learner().name) for each in (league, again)]
        assert matches[0] == matches[1]
        step = league.player(str(matches[0].learner)).step + 60_000
        advances = [each.advance(str(matches[0].learner), step=step) for each in (league, again)]
        assert advances[0] == advances[1]
    assert all(each.report(open_match.id, (0.0, 1.0)) for each in (league, again))
    assert again.standings() == league.standings()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'main'"):
        Player("a", role="mian")
    with pytest.raises(ConfigError, match="needs a name"):
        Player("")
    with pytest.raises(ConfigError, match="does not learn"):
        LeagueSettings(rules={"snapshot": rules()})
    with pytest.raises(ConfigError, match="2 sides"):
        LeagueSettings(num_sides=1)
    with pytest.raises(ConfigError, match="there are 2"):
        make(Player("a", sides=(2,)))
    with pytest.raises(ConfigError, match="probability"):
        rules(reset=1.5)
    with pytest.raises(ConfigError, match="least ≤ most"):
        SnapshotRule(min_steps=10, timeout_steps=5)
