"""A league as its members see it: who is met, what a result changes, when somebody is kept or begins again."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from ludus import data
from ludus.errors import ConfigError, DataError
from ludus.league.league import League, LeagueSettings, Match
from ludus.league.matchmaking import Pfsp, SelfPlay
from ludus.league.players import Player
from ludus.league.roles import RoleRules, SnapshotRule, main_agents


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


def test_a_result_that_cannot_be_rated_is_not_counted_either() -> None:
    league = make(Player("main"), Player("bot", role="bot"))
    match = league.request_evaluation()
    with pytest.raises(DataError, match="nothing was rated"):
        league.report_series(match.id, [(1e308, 0.0), (1e308, 0.0)])
    assert league.payoff.record("main", "bot").games == 0
    assert league.history == {}
    assert league.report(match.id, (1.0, 0.0)), "it is in flight still"


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
    assert league.advance("main", step=1_000) == (None, first.num_resets, 1_000)
    assert league.advance("main", step=500) == (None, first.num_resets, 1_000)
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


def test_what_a_learner_had_won_before_it_began_again_counts_for_its_snapshots_no_more() -> None:
    league = make(
        Player("main"),
        Player("ex", role="main_exploiter", model="ex"),
        rules={"main_exploiter": rules(reset=1.0, targets=main_agents)},
    )
    beat(league, "ex", "main", times=40)
    flying = league.begin(league.choose_matches("ex", 1, owner="learner/0")[0])
    first = league.advance("ex", step=100, version=1).snapshot
    assert first is not None, "it beats all that it learns to beat"
    assert not league.report(flying.id, (1.0, -1.0)), "it was played by the weights of before"
    assert league.owners == set()
    assert league.payoff.record("ex", "main").games == 0
    assert league.advance("ex", step=300, version=2).snapshot is None, "these weights have beaten nobody"
    beat(league, "ex", "main", times=40)
    second = league.advance("ex", step=400, version=3).snapshot
    assert second is not None
    assert [each.num_resets for each in (first, second, league.player("ex"))] == [0, 1, 2], "their lines end there"
    other = make()
    other.restore(data.decode(data.encode(league.save())))
    assert other.players == league.players


def test_who_has_nobody_to_beat_has_not_beaten_all_and_nobody_is_to_beat_itself() -> None:
    league = make(Player("main"), rules={"main": rules(targets=main_agents)})
    assert league.advance("main", step=500).snapshot is None
    assert main_agents(Player("main"), [Player("main"), Player("other")]) == ["other"]


def test_a_retried_advance_takes_no_second_snapshot_where_all_are_beaten_still() -> None:
    always = RoleRules(matchmaking=SelfPlay(), snapshot=SnapshotRule(), targets=main_agents)
    league = make(Player("main"), Player("ex", role="main_exploiter"), rules={"main_exploiter": always})
    beat(league, "ex", "main", times=40)
    assert league.advance("ex", step=10).snapshot is not None
    assert league.advance("ex", step=10).snapshot is None


def test_the_ratings_of_a_series_go_by_all_its_games() -> None:
    league = make(Player("a", role="bot"), Player("b", role="bot"))
    match = league.begin(league.choose_named(["a", "b"]))
    assert league.report_series(match.id, [(1.0, -1.0), (1.0, -1.0), (-1.0, 1.0)])
    assert league.ratings.of("a").mean > league.ratings.of("b").mean


def test_learners_take_turns_by_their_steps() -> None:
    league = make(Player("one"), Player("two", role="league_exploiter"), Player("bot", role="bot"))
    turns = []
    for _ in range(4):
        learner = league.next_learner()
        turns.append(learner.name)
        league.advance(learner.name, step=learner.step + 10)
    assert turns == ["one", "two", "one", "two"]
    assert make(Player("bot", role="bot")).next_learner() is None


def test_a_learner_that_joins_late_or_gets_another_share_does_not_catch_up() -> None:
    league = make(Player("main", model="net"))
    league.advance("main", step=1_000_000, version=1)
    league.add(Player("late", role="league_exploiter"))
    met = Counter(take_turn(league) for _ in range(20))
    assert met == {"main": 10, "late": 10}
    league.configure(LeagueSettings(rules={"main": rules(share=4.0)}))
    assert Counter(take_turn(league) for _ in range(50)) == {"main": 40, "late": 10}
    assert league.total_steps == 1_000_000 + 70 * 10
    league.remove("late")
    assert league.total_steps == 1_000_000 + 70 * 10, "steps that were made stay made"


def take_turn(league: League) -> str:
    learner = league.next_learner()
    assert learner is not None
    league.advance(learner.name, step=learner.step + 10)
    return learner.name


def test_a_learner_stays_in_its_process_when_others_go() -> None:
    league = make(*(Player(name) for name in "abcd"))
    assert [league.next_learner(part, 2).name for part in range(2)] == ["a", "b"]  # type: ignore[union-attr]
    league.freeze("a")
    assert [league.next_learner(part, 2).name for part in range(2)] == ["c", "b"]  # type: ignore[union-attr]
    league.remove("c")
    assert league.next_learner(0, 2) is None
    league.add(Player("e"))
    assert league.next_learner(0, 2) == league.player("e")


def test_only_who_learns_is_frozen_and_has_snapshots_and_both_are_of_the_version_it_advanced_with() -> None:
    league = make(Player("main", model="net"), Player("bot", role="bot"), Player("eve", role="human"))
    league.advance("main", step=10, version=3)
    for name in ("bot", "eve"):
        with pytest.raises(ConfigError, match="does not learn"):
            league.freeze(name)
        with pytest.raises(ConfigError, match="no versions"):
            league.snapshot(name)
    league.add(Player("main-1", role="bot"))
    taken = league.snapshot("main")
    assert taken.name == "main-2", "another player has that name"
    assert league.freeze("main").version == 3
    assert league.freeze("main-2") == taken


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
    evaluation = league.request_evaluation()
    assert set(names(evaluation)) == {"main", "a"}, "two that meet, and any of them as the third"
    assert league.report(evaluation.id, (0.0, 0.0, 1.0))


def test_the_sides_of_a_team_are_one_players_and_their_scores_are_added() -> None:
    league = make(Player("main"), Player("bot", role="bot"), num_sides=4, teams=((0, 2), (1, 3)))
    for match in (league.request_match("main"), league.request_evaluation()):
        one, two, *rest = names(match)
        assert rest == [one, two]
    assert {names(league.request_evaluation())[0] for _ in range(20)} == {"main", "bot"}, "each of them is either team"
    before = league.payoff.record("main", "bot").games
    match = league.begin(league.choose_named(["main", "bot", "main", "bot"]))
    assert league.report(match.id, (-1.0, 0.0, 3.0, 1.0)), "2 to 1"
    record = league.payoff.record("main", "bot", side=0)
    assert (record.wins, league.payoff.record("main", "bot").games) == (1.0, before + 1.0)
    assert league.ratings.of("main").mean > league.ratings.of("bot").mean
    with pytest.raises(ConfigError, match="one player's"):
        league.choose_named(["main", "main", "bot", "bot"])
    with pytest.raises(DataError, match="4 sides"):
        league.check_series(league.request_evaluation().id, [(1.0, 0.0)])
    for teams in (((0, 1), (1, 3)), ((0, 1),), ((0, 1, 2, 3),), ((0, 1), (2, 4))):
        with pytest.raises(ConfigError, match="teams"):
            LeagueSettings(num_sides=4, teams=teams)


def test_a_snapshot_is_of_the_version_that_a_learner_last_advanced_with() -> None:
    league = make(Player("main", model="net"))
    with pytest.raises(ConfigError, match="no version yet"):
        league.snapshot("main")
    league.advance("main", step=10, version=3)
    assert league.snapshot("main").version == 3
    other = make()
    other.restore(league.save())
    assert other.snapshot("main").version == 3


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
    league.promote("bot")
    match = league.request_evaluation()
    league.remove("bot")
    assert league.champion is None
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
    for _ in range(2):
        beat(league, "main", "bot")
    assert league.payoff.record("main", "bot").games < 3.0
    with pytest.raises(ConfigError, match="sides"):
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


def test_a_league_that_was_saved_before_resets_were_the_players_own_keeps_them() -> None:
    league = make(Player("main"), rules={"main": rules(reset=1.0)})
    league.advance("main", step=1_000)
    saved: Any = data.decode(data.encode(league.save()))
    for player in saved["players"]:
        del player["num_resets"]
    del saved["num_starts"]
    again = make(rules={"main": rules(reset=1.0)})
    again.restore({**saved, "num_resets": {"main": 1}})
    assert again.advance("main", step=2_000).num_resets == 2


def test_the_curve_of_a_rating_covers_all_its_matches_with_few_points() -> None:
    league = make(Player("main"), Player("bot", role="bot"))
    beat(league, "main", "bot", times=3_000)
    counted = [point[0] for point in league.history["main"]]
    assert (counted[0], counted[-1]) == (1, 3_000)
    assert 200 <= len(counted) <= 400
    assert max(later - earlier for earlier, later in itertools.pairwise(counted)) <= 30


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
    for wrong, said in (
        (lambda: rules(share=float("inf")), "more than 0"),
        (lambda: SnapshotRule(min_steps=float("nan")), "least ≤ most"),  # type: ignore[arg-type]
        (lambda: SnapshotRule(win_rate=70.0), "between 0 and 1"),
        (lambda: LeagueSettings(decay=1.5), "at most 1"),
        (lambda: LeagueSettings(min_games=float("nan")), "0 or more"),
        (lambda: Player("../../main"), "name of a folder"),
        (lambda: Player("main", model="a/b"), "name of a folder"),
        (lambda: Player("a\nb", role="bot"), "one line"),
    ):
        with pytest.raises(ConfigError, match=said):
            wrong()
    with pytest.raises(ConfigError, match="least ≤ most"):
        SnapshotRule(min_steps=10, timeout_steps=5)
