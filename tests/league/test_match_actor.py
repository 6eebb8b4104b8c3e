"""Matches of games outside: sessions that name a player, an opponent or a role; the server plays the sides it owns."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ludus.errors import InvalidObservation
from ludus.gateway.session import Session
from ludus.league import config as configs
from ludus.league import match_actor
from ludus.league.match_actor import MatchActor
from ludus.league.oracle import make_seats
from ludus.league.players import Player
from ludus.league.pools import open_pool
from ludus.league.running import make_service
from ludus.league.seats import Seats
from ludus.league.service import LeagueService
from ludus.learn.policies.policy import Policy

from .games import GAME, SMALL


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeagueService]:
    config = configs.resolve(GAME, {**SMALL, "bots": ("random", "alphabeta:1"), "decay": 1.0})
    with (
        contextlib.closing(make_service(config, tmp_path)) as service,
        contextlib.closing(open_pool(config, tmp_path)) as pool,
    ):
        seats = make_seats(config, pool)
        monkeypatch.setattr(match_actor, "_parts", lambda folder: (service, seats, 2))
        yield service


def begin(name: str = "s", **body: Any) -> tuple[MatchActor, Any]:
    actor = MatchActor("folder")
    answer = asyncio.run(actor.start(Session(name), json.dumps(body).encode()))
    return actor, json.loads(answer)


def end(actor: MatchActor, **body: Any) -> Any:
    answer = asyncio.run(actor.end(json.dumps(body).encode() if body else b""))
    return json.loads(answer) if answer else None


OBS = np.zeros((3, 3, 2)).tolist()


def test_a_game_names_a_player_and_the_server_plays_both_sides_and_counts_the_result(service: LeagueService) -> None:
    actor, answer = begin(player="main")
    assert "main" in answer["players"]
    spec = actor._seats.policy
    obs = np.zeros(spec.obs.shape, spec.obs.dtype).tolist()
    mask = [False] * 9
    mask[4] = True
    for side in range(2):
        assert json.loads(actor.tick(json.dumps({"side": side, "obs": obs, "mask": mask}).encode())) == {"action": 4}
    with pytest.raises(InvalidObservation, match="not one that the server plays"):
        actor.tick(json.dumps({"side": 2, "obs": obs}).encode())
    assert end(actor, scores=[1.0, -1.0]) == {"counted": True}
    assert end(actor, scores=[1.0, -1.0]) is None, "it is over"


def test_a_person_is_a_player_from_its_first_match_on_and_has_its_results(service: LeagueService) -> None:
    for number in range(2):
        actor, answer = begin(f"s{number}", opponent="random", own=[1], **{"as": "alice"})
        assert answer["players"] == ["random", "alice"]
        assert end(actor, scores=[0.0, 1.0]) == {"counted": True}
    record = service.league.payoff.record("alice", "random", side=1)
    assert (record.wins, record.games) == (2.0, 2.0)
    assert service.league.player("alice").role == "human"


def test_who_comes_as_a_player_of_the_league_is_refused(service: LeagueService) -> None:
    for body, said in (
        ({"opponent": "random", "own": [0], "as": "main"}, "choose another name"),
        ({"opponent": "random", "own": [2]}, "sides 0 to 1"),
        ({"opponent": "random"}, "own says"),
        ({"own": [0]}, "need an opponent"),
        ({"own": "left", "opponent": "random"}, "list of sides"),
        ({}, "names a player"),
    ):
        with pytest.raises(InvalidObservation, match=said):
            begin(**body)
    with pytest.raises(InvalidObservation, match="no player 'mian'"):
        begin(player="mian")
    with pytest.raises(InvalidObservation, match="no player in the role"):
        begin(role="human")
    assert service.statistics()["num_in_flight"] == 0


def test_a_session_that_ends_without_scores_or_with_wrong_ones_aborts_its_match(service: LeagueService) -> None:
    actor, _ = begin(role="main")
    assert end(actor) is None
    for wrong in ([1.0], [1.0, "won"], [1.0, None], "won", [10**400, 0]):
        actor, answer = begin(role="main")
        with pytest.raises(InvalidObservation, match="2 sides"):
            end(actor, scores=wrong)
    assert not service.report_result(answer["match"], [1.0, 0.0])
    assert service.statistics()["num_in_flight"] == 0


def test_players_that_look_ahead_on_the_board_are_refused_and_nobody_else_meets_them(service: LeagueService) -> None:
    for name in ("deep", "deeper"):
        service.league.add(Player(name, role="frozen", model="main", version=0, search=8))
    for body in ({"opponent": "alphabeta_1", "own": [0]}, {"player": "alphabeta_1"}, {"player": "deep"}):
        with pytest.raises(InvalidObservation, match="does not show: name another player"):
            begin(**body)
    with pytest.raises(InvalidObservation, match=r"the role 'frozen' \(not counting alphabeta_1, deep, dee"):
        begin(role="frozen")
    for number in range(20):
        actor, answer = begin(f"s{number}", role="bot")
        assert answer["players"].count("random") == 1
        assert {"alphabeta_1", "deep", "deeper"}.isdisjoint(answer["players"])
        end(actor)
    assert service.league.payoff.num_in_flight == 0
    assert int(answer["match"]) == 20, "no match began for those who could not play it"


def test_a_session_has_the_versions_that_its_players_play_to_its_end(service: LeagueService) -> None:
    seats = match_actor._parts("")[1]
    assert isinstance(seats, Seats)
    weights = Policy(seats.policy).weights()
    for number in (0, 4):
        seats.pool.put("main", weights, number=number)  # type: ignore[attr-defined]
    service.league.add(Player("the old one", role="frozen", model="main", version=0))
    for name, versions in (("main", {"main": 4}), ("the old one", {"the%20old%20one": 0}), ("random", {})):
        actor, _ = begin(opponent=name, own=[0])
        seats.pool.put("main", weights)  # type: ignore[attr-defined]
        assert actor._session is not None
        assert actor._session.versions == versions
        assert [side.version for side in actor._sides.values()] == [*versions.values(), -1][:1]
        end(actor)


def test_a_match_that_lasts_long_is_kept_while_it_is_played(
    service: LeagueService, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    monkeypatch.setattr(match_actor, "_keep_matches", lambda league, owner: kept.append(owner))
    monkeypatch.setattr(match_actor, "threading", SimpleNamespace(Thread=Now))
    actor, _ = begin("long", player="main")
    actor._keep()
    assert kept == []
    actor._keep_at = 0.0
    actor._keep()
    actor._keep()
    assert kept == ["game/long"]
    end(actor)


class Now:
    """A thread that is over when it is started."""

    def __init__(self, *, target: Any, args: Any, daemon: bool) -> None:
        self.start = lambda: target(*args)
