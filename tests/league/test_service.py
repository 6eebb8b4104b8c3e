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
from ludus.league.players import Player
from ludus.league.roles import DEFAULT_RULES, RoleRules, SnapshotRule
from ludus.league.service import LeagueService, player_to_nest

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
    for wanted in (60, 150, 240):
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
