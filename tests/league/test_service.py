"""The league as a service: what it answered survives kill -9, and a result counts once, whatever is retried."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ludus.clock import FakeClock
from ludus.errors import ConfigError, DataError, LudusError
from ludus.league.league import LeagueSettings
from ludus.league.players import Player, player_to_nest
from ludus.league.roles import DEFAULT_RULES, RoleRules, SnapshotRule
from ludus.league.service import LeagueService
from ludus.league.view import read_view

PLAYERS = (Player("main", model="net"), Player("exploiter", role="league_exploiter"), Player("bot", role="bot"))
SETTINGS = LeagueSettings(
    rules={
        role: RoleRules(matchmaking=each.matchmaking, snapshot=SnapshotRule(timeout_steps=300), reset=0.5)
        for role, each in DEFAULT_RULES.items()
    }
)


def make(folder: Path, **options: Any) -> LeagueService:
    return LeagueService(folder, SETTINGS, PLAYERS, seed=1, **options)


def play(service: LeagueService, num: int) -> list[Any]:
    """Matches of whose turn it is, the first side winning; who met whom, and what became of it."""
    seen: list[Any] = []
    for _ in range(num):
        learner = service.next_learner()
        match = service.request_match(learner["name"])
        assert service.report_result(match["id"], [1.0, -1.0])
        advance = service.advance(learner["name"], learner["step"] + 100, 5)
        seen.append((match["id"], [player["name"] for player in match["players"]], advance))
    return seen


def test_a_league_that_is_opened_again_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole")
    expected = play(whole, 60)
    first = make(tmp_path / "parts")
    found = play(first, 25)
    first.close()
    second = make(tmp_path / "parts", segment_bytes=500)  # with snapshots of the log, from here on
    found += play(second, 20)
    second.close()
    third = make(tmp_path / "parts")
    found += play(third, 15)
    assert found == expected
    assert third.standings() == whole.standings()
    assert any(advance["snapshot"] for *_, advance in expected)
    assert any(advance["num_resets"] for *_, advance in expected)
    whole.close()
    third.close()


def test_matches_in_flight_are_still_in_flight_after_a_restart_and_count_once(tmp_path: Path) -> None:
    first = make(tmp_path)
    matches = [first.request_match("main") for _ in range(3)]
    assert first.report_result(matches[0]["id"], [1.0, 0.0])
    first.close()
    second = make(tmp_path)
    assert not second.report_result(matches[0]["id"], [1.0, 0.0]), "its answer may have been lost"
    assert second.report_result(matches[1]["id"], [0.0, 1.0])
    assert second.abort_match(matches[2]["id"])
    assert not second.report_result(matches[2]["id"], [1.0, 0.0])
    assert second.request_match("main")["id"] == "4", "an id is used once"
    stats = second.statistics()
    assert (stats["num_reported"], stats["num_repeated"], stats["num_in_flight"]) == (1, 2, 1)
    second.close()


def test_a_match_that_nobody_reports_is_aborted(tmp_path: Path) -> None:
    clock = FakeClock()
    service = make(tmp_path, match_timeout_s=60.0, clock=clock)
    lost, late = service.request_match("main"), None
    clock.advance(59.0)
    late = service.request_match("main")
    clock.advance(2.0)
    service.request_match("main")
    assert not service.report_result(lost["id"], [1.0, 0.0])
    assert service.report_result(late["id"], [1.0, 0.0])
    assert service.statistics()["num_expired"] == 1
    old = service.request_match("main")
    service.close()
    again = make(tmp_path, match_timeout_s=60.0, clock=clock)
    clock.advance(61.0)
    again.request_match("main")
    assert not again.report_result(old["id"], [1.0, 0.0]), "it was in flight before, too"
    again.close()


def test_matches_of_a_process_that_still_calls_last_longer_but_not_for_ever(tmp_path: Path) -> None:
    clock = FakeClock()
    service = make(tmp_path, match_timeout_s=60.0, clock=clock)
    slow, lost = service.request_matches("main", 1, "sim/0")[0], service.request_matches("main", 1, "sim/1")[0]
    leaked = service.request_matches("main", 1, "sim/0")[0]
    for _ in range(3):
        clock.advance(50.0)
        service.keep("sim/0")
    service.request_match("main")
    assert not service.report_result(lost["id"], [1.0, 0.0]), "its process is silent"
    assert service.report_result(slow["id"], [1.0, 0.0])
    slow, *others = service.request_matches("main", 4, "sim/2")
    for reported in others:
        clock.advance(50.0)
        service.report_result(reported["id"], [1.0, 0.0])
        service.request_match("main")
    assert service.report_result(slow["id"], [1.0, 0.0]), "a report is a call, too"
    for _ in range(7):
        clock.advance(50.0)
        assert service.request_matches("main", 1, "sim/0")
    assert not service.report_result(leaked["id"], [1.0, 0.0]), "who asked for it may never have got it"
    service.close()


def test_many_changes_of_the_rules_are_kept_as_one(tmp_path: Path) -> None:
    service = make(tmp_path, segment_bytes=2_000)
    for number in range(200):
        share = 1.0 + number
        service.update_config({"decay": 0.5, "roles": {"main": {"share": share, "matchmaking": "uniform"}}})
    service.update_config({"roles": {"main": {"matchmaking": {"self_play": {"share": 1, "least": 0.4}}}}})
    service.update_config({"roles": {"main_exploiter": {"targets": "fixed", "snapshot": {"timeout_steps": 400}}}})
    found = service.league.settings
    assert service._change == {
        "decay": 0.5,
        "roles": {
            "main": {"share": 200.0, "matchmaking": {"self_play": {"share": 1, "least": 0.4}}},
            "main_exploiter": {"targets": "fixed", "snapshot": {"timeout_steps": 400}},
        },
    }
    for wrong, said in (
        ({"roles": {"main": {"matchmaking": {"self_play": {"least": 0.4}}}}}, "no share"),
        ({"roles": {"main": {"matchmaking": {"pfsp": {"share": 1, "weighting": 2}}}}}, "weighting"),
        ({"roles": {"main": {"targets": "mains"}}}, "main"),
        ({"decay": float("nan")}, "must be a number"),
        ({"decay": 0}, "at most 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            service.update_config(wrong)
    service.close()
    again = make(tmp_path)
    assert again.league.settings == found
    again.close()


def test_a_change_is_in_the_snapshot_that_it_causes(tmp_path: Path) -> None:
    service = make(tmp_path, segment_bytes=1)
    service.update_config({"decay": 0.5})
    service._log.wait()
    assert not list(tmp_path.glob("00000001.log")), "what is left is the snapshot"
    service.close()
    again = make(tmp_path)
    assert again.league.settings.decay == 0.5
    again.close()


def test_a_change_that_does_not_fit_other_settings_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = make(tmp_path)
    service.update_config({"roles": {"main": {"snapshot": {"min_steps": 250}}}})
    service.close()
    rules = RoleRules(matchmaking=DEFAULT_RULES["main"].matchmaking, snapshot=SnapshotRule(timeout_steps=100))
    again = LeagueService(tmp_path, LeagueSettings(rules={"main": rules}), seed=1)
    assert "does not fit" in caplog.text
    assert again.league.settings.rules["main"].snapshot == SnapshotRule(timeout_steps=100)
    again.close()
    with pytest.raises(ConfigError, match="same teams"):
        LeagueService(tmp_path, LeagueSettings(num_sides=4, teams=((0, 1), (2, 3))), seed=1)


def test_what_a_person_changes_is_seen_at_once(tmp_path: Path) -> None:
    service = make(tmp_path)
    service.add_player(player_to_nest(Player("second")))
    service.promote("main")
    view = read_view(tmp_path / "view.json")
    assert view is not None
    assert "second" in {player["name"] for player in view["players"]}
    assert view["champion"] == "main"
    service.close()


def test_what_is_refused_changes_nothing_then_or_later(tmp_path: Path) -> None:
    service = make(tmp_path)
    match = service.request_match("main")
    for call in (
        lambda: service.report_result(match["id"], [1.0]),
        lambda: service.request_match("nobody"),
        lambda: service.request_match("bot"),
        lambda: service.advance("bot", 10),
        lambda: service.add_player(player_to_nest(PLAYERS[0])),
        lambda: service.add_player({"name": "x", "rank": 1}),
        lambda: service.remove_player("nobody"),
    ):
        with pytest.raises(LudusError):
            call()
    before = service.players(), service.statistics()["num_in_flight"]
    service.close()
    again = make(tmp_path)
    assert (again.players(), again.statistics()["num_in_flight"]) == before
    assert again.report_result(match["id"], [1.0, 0.0])
    again.close()


def test_what_is_no_name_no_player_and_no_score_never_reaches_the_log(tmp_path: Path) -> None:
    service = make(tmp_path)
    match = service.request_match("main")
    calls: list[Any] = [
        lambda: service.report_result(["1"], [1.0, 0.0]),  # type: ignore[arg-type]
        lambda: service.report_result(match["id"], ["won", None]),  # type: ignore[list-item]
        lambda: service.report_result(match["id"], 1.0),  # type: ignore[arg-type]
        lambda: service.abort_match({}),  # type: ignore[arg-type]
        lambda: service.advance(["main"], 10),  # type: ignore[arg-type]
        lambda: service.advance("main", "far"),  # type: ignore[arg-type]
        lambda: service.advance("main", 10, "latest"),  # type: ignore[arg-type]
        lambda: service.snapshot("main", [1]),  # type: ignore[arg-type]
        lambda: service.freeze_player([]),  # type: ignore[arg-type]
        lambda: service.remove_player([]),  # type: ignore[arg-type]
        lambda: service.add_player({"name": ["x"]}),
        lambda: service.add_player({"name": "x", "sides": ["left"]}),
        lambda: service.add_player({"name": "x", "step": "far"}),
        lambda: service.add_player("x"),
    ]
    size = service._log._size
    for call in calls:
        with pytest.raises(LudusError):
            call()
    assert service._log._size == size
    service.close()
    again = make(tmp_path)
    assert again.report_result(match["id"], [1.0, 0.0])
    again.close()


def test_a_series_counts_each_of_its_games_and_is_reported_once(tmp_path: Path) -> None:
    service = make(tmp_path)
    first, second, empty = service.request_matches("main", 3, "sim/0")
    results = [[first["id"], [[1.0, -1.0], [0.0, 0.0]]], [second["id"], [[-1.0, 1.0]]], [empty["id"], []]]
    with pytest.raises(DataError, match="nothing was counted"):
        service.report_series([results[0], [second["id"], [[1.0]]]])
    with pytest.raises(DataError, match="no result"):
        service.report_series([[first["id"]]])
    assert service.report_series(results) == [True, True, False]
    assert service.report_series(results) == [False, False, False]
    assert [played.games for played in service.league.recent] == [((1.0, -1.0), (0.0, 0.0)), ((-1.0, 1.0),)]
    assert service.league.num_games == 3
    history = {name: len(points) for name, points in service.league.history.items()}
    service.close()
    again = make(tmp_path)
    assert {name: len(points) for name, points in again.league.history.items()} == history
    assert again.league.num_games == 3
    again.close()


def test_what_a_process_was_playing_is_aborted_when_it_is_started_again(tmp_path: Path) -> None:
    service = make(tmp_path)
    lost = [*service.request_matches("main", 2, "sim/0"), service.request_named(["main", "bot"], "sim/0")]
    other = service.request_evaluation(["main", "bot"], "sim/1")
    service.close()
    again = make(tmp_path)
    assert again.release("sim/0") == 3
    assert again.release("sim/0") == 0
    assert again.report_series([[each["id"], [[1.0, 0.0]]] for each in lost]) == [False] * 3
    assert again.report_result(other["id"], [1.0, 0.0])
    again.close()


@pytest.mark.parametrize("segment_bytes", [16 << 20, 500])
def test_rules_change_while_it_runs_and_stay_changed(tmp_path: Path, segment_bytes: int) -> None:
    service = make(tmp_path, segment_bytes=segment_bytes)
    service.update_config({"min_games": 3, "roles": {"main": {"matchmaking": "uniform", "share": 2}}})
    service.update_config({"roles": {"main": {"snapshot": {"timeout_steps": 50}}}})
    for wrong, said in (
        ({"min_game": 3}, "min_games"),
        ({"roles": {"mains": {}}}, "main"),
        ({"roles": {"main": {"matchmaking": {"pfspp": 1}}}}, "pfsp"),
        ({"roles": {"main": {"share": 0}}}, "more than 0"),
        ({"roles": {"main": {"snapshot": {"timeout": 3}}}}, "timeout_steps"),
        ({"num_sides": 3}, "2 sides"),
        ("faster", "by name"),
    ):
        with pytest.raises(ConfigError, match=said):
            service.update_config(wrong)  # type: ignore[arg-type]
    play(service, 5)
    found = service.league.settings
    assert service.request_match("main")["players"] != [player_to_nest(PLAYERS[0])] * 2, "uniform: never itself"
    service.close()
    again = make(tmp_path)
    assert again.league.settings == found
    assert found.min_games == 3
    assert found.rules["main"].share == 2
    assert found.rules["main"].snapshot == SnapshotRule(timeout_steps=50)
    again.close()


def test_players_come_and_go_while_it_runs(tmp_path: Path) -> None:
    service = make(tmp_path)
    service.add_player(player_to_nest(Player("second", sides=(0,))))
    assert service.snapshot("second", 7) == player_to_nest(
        Player("second-1", role="snapshot", parent="second", version=7, sides=(0,))
    )
    assert service.freeze_player("exploiter")["role"] == "frozen"
    service.remove_player("bot")
    expected = ["main", "exploiter", "second", "second-1"]
    assert [player["name"] for player in service.players()] == expected
    service.close()
    again = make(tmp_path)
    assert [player["name"] for player in again.players()] == expected
    assert again.payoff()["players"] == expected
    assert again.payoff(["main"])["win_rate"].tolist() == [[0.5]]
    again.close()


def test_a_damaged_record_costs_what_it_says_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = make(tmp_path)
    matches = [service.request_evaluation(["main", "bot"]) for _ in range(4)]
    sizes = []
    for match in matches:
        assert service.report_result(match["id"], [1.0, 0.0])
        sizes.append(service._log._size)
    service.close()
    (log,) = tmp_path.glob("*.log")
    content = bytearray(log.read_bytes())
    content[sizes[1] - 3] ^= 0xFF  # in the second report
    log.write_bytes(content)
    again = make(tmp_path)
    assert "damaged" in caplog.text
    assert again.payoff(["main", "bot"])["games"] == [[0.0, 3.0], [3.0, 0.0]]
    assert again.report_result(matches[1]["id"], [1.0, 0.0]), "it is in flight still"
    again.close()


def test_two_processes_do_not_keep_one_league(tmp_path: Path) -> None:
    service = make(tmp_path)
    with pytest.raises(LudusError, match="another process keeps its league"):
        make(tmp_path)
    service.close()
    with pytest.raises(ConfigError, match="match_timeout_s"):
        make(tmp_path, match_timeout_s=0.0)
    with pytest.raises((ConfigError, DataError)):
        LeagueService(tmp_path / "new", SETTINGS, (Player("a"), Player("a")))
    LeagueService(tmp_path / "new", SETTINGS).close()


def test_nothing_that_was_answered_is_lost_by_kill_9(tmp_path: Path) -> None:
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_service import make
        from pathlib import Path
        service = make(Path({str(tmp_path)!r}), segment_bytes=2_000)
        while True:
            match = service.request_evaluation(["main", "bot"])
            if int(match["id"]) % 3:
                service.report_result(match["id"], [1.0, 0.0])
                print(match["id"], flush=True)
    """
    acknowledged: list[str] = []
    for _kill in range(3):
        wanted = len(acknowledged) + 60  # more may have come from the life before
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, env=os.environ.copy()
        )
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                acknowledged.append(line.strip())
                if len(acknowledged) == wanted:
                    process.send_signal(signal.SIGKILL)
        process.wait(60)
    service = make(tmp_path)
    assert len(acknowledged) == len(set(acknowledged)), "no match was counted twice"
    games = service.payoff(["main", "bot"])["games"][0][1]
    assert len(acknowledged) <= games <= len(acknowledged) + 3, "one for each kill may have been done and not printed"
    for match in acknowledged:
        assert not service.report_result(match, [1.0, 0.0])
    service.close()
