from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import envs
from ludus.errors import ConfigError, Unreachable
from ludus.league import config as configs
from ludus.league.collected import Collected
from ludus.league.distant_collectors import DistantCollectors
from ludus.league.league import League
from ludus.league.learning import LearningPlayer
from ludus.league.learning_parts import LearningParts
from ludus.league.memory_league import MemoryLeague
from ludus.league.players import Player
from ludus.rpc.call import Pending
from ludus.services.simulator.episodes import Episode

from .games import GAME, SMALL
from .segments import ROWS, STEPS, segment


class Simulators:
    """Calls that are answered when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, tuple[Any, ...], Pending]] = []
        self.index = -1

    def replica(self, index: int) -> Simulators:
        one = Simulators()
        one.calls, one.index = self.calls, index
        return one

    def within(self, timeout_s: float) -> Simulators:
        assert timeout_s > 60.0
        return self

    def submit(self, command: str, *args: Any, **kwargs: Any) -> Pending:
        assert command == "collect"
        call = Pending(1, 0, 0, [], command, (), 0.0)
        self.calls.append((self.index, args, call))
        return call

    def answer(self, number: int, error: Exception | None = None) -> None:
        played = dataclasses.replace(segment(number), active=np.ones((STEPS + 1, ROWS), np.bool_))
        played.version[:] = self.calls[number][1][2]
        collected = Collected(segment=played, episodes=[Episode(1.0, 7, 3)], num_games=5)
        self.calls[number][2].finish(collected.to_nest() if error is None else None, error)


WEIGHTS = {"layer": np.zeros(3, np.float32)}


def test_each_process_always_has_two_segments_to_play() -> None:
    simulators = Simulators()
    distant = DistantCollectors(simulators, num=2)
    distant.ask("main", WEIGHTS, 1)
    assert [index for index, _, _ in simulators.calls] == [0, 0, 1, 1]
    distant.ask("main", WEIGHTS, 2)
    assert len(simulators.calls) == 4
    simulators.answer(2)
    assert distant.take("main") is not None
    distant.ask("main", WEIGHTS, 3)
    assert [(index, args[2]) for index, args, _ in simulators.calls[4:]] == [(1, 3)]


def test_what_comes_back_is_given_once_and_nobody_waits_for_the_rest() -> None:
    simulators = Simulators()
    distant = DistantCollectors(simulators, num=1)
    assert distant.take("main") is None
    distant.ask("main", WEIGHTS, 1)
    assert distant.take("main") is None
    simulators.answer(0)
    found = distant.take("main")
    assert found is not None
    assert np.array_equal(found.segment.action, segment(0).action)
    assert (found.episodes, found.num_games) == ([Episode(1.0, 7, 3)], 5)
    assert distant.take("main") is None


def test_a_segment_that_was_lost_with_its_process_is_asked_for_again() -> None:
    simulators = Simulators()
    distant = DistantCollectors(simulators, num=1)
    distant.ask("main", WEIGHTS, 1)
    simulators.answer(0, Unreachable("killed"))
    assert distant.take("main") is None
    distant.ask("main", WEIGHTS, 2)
    assert len(simulators.calls) == 3


def test_what_the_process_says_of_a_learner_is_raised() -> None:
    simulators = Simulators()
    distant = DistantCollectors(simulators, num=1)
    distant.ask("main", WEIGHTS, 1)
    simulators.answer(0, ConfigError("main learns no more"))
    with pytest.raises(ConfigError, match="no more"):
        distant.take("main")


def test_segments_by_weights_that_a_learner_has_given_up_are_forgotten() -> None:
    simulators = Simulators()
    distant = DistantCollectors(simulators, num=1)
    distant.ask("main", WEIGHTS, 1)
    simulators.answer(0)
    distant.forget("main")
    assert distant.take("main") is None


def player_with(distant: DistantCollectors, folder: Path) -> LearningPlayer:
    parts = LearningParts(
        config=configs.resolve(GAME, SMALL).training,
        env=envs.spec(GAME),
        league=MemoryLeague(League(), [Player("main", model="main")]),
        seats=None,  # type: ignore[arg-type]
        folder=folder,
        distant=distant,
    )
    return LearningPlayer("main", parts)


def test_how_many_updates_old_the_weights_were_that_played_is_measured(tmp_path: Path) -> None:
    simulators = Simulators()
    distant = DistantCollectors(simulators, num=1)
    with contextlib.closing(player_with(distant, tmp_path)) as player:
        distant.ask("main", player.weights(), 0)
        found = []
        for number in range(4):
            simulators.answer(number)
            assert player.update() > 0
            found.append(player.lag)
        assert [args[2] for _, args, _ in simulators.calls] == [0, 0, 0, 1, 2, 3]
        assert found == [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (2.0, 2.0)]
        assert player.seconds["take"] > 0.0
        assert player.seconds["play"] == 0.0


def test_what_was_asked_for_by_who_learns_no_more_is_forgotten(tmp_path: Path) -> None:
    simulators = Simulators()
    distant = DistantCollectors(simulators, num=1)
    with contextlib.closing(player_with(distant, tmp_path)) as player:
        distant.ask("main", player.weights(), 1)
        simulators.answer(0)
        player.abandon()
        assert distant.take("main") is None
