"""The evaluation on games: which episodes count, and when it is over."""

from __future__ import annotations

from typing import Any

from ludus import errors
from ludus.clock import FakeClock
from ludus.experiment.game_evaluation import EvaluationLog, GameEvaluation


class Answer:
    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self) -> Any:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class Worker:
    """A gateway worker as its trainer sees it: it gives scripted answers."""

    def __init__(self) -> None:
        self.says: Any = {"played": [], "num_steps": 0, "incarnation": "first"}
        self.asked: list[tuple[Any, ...]] = []

    def submit(self, command: str, *args: Any) -> Answer:
        self.asked.append((command, *args))
        return Answer(self.says)

    def plays(self, *played: list[Any], num_steps: int = 1, incarnation: str = "first") -> None:
        self.says = {"played": list(played), "num_steps": num_steps, "incarnation": incarnation}


def evaluation(*workers: Worker, episodes: int = 2) -> tuple[GameEvaluation, FakeClock]:
    clock = FakeClock()
    return GameEvaluation(workers, episodes=episodes, wait_s=30.0, address="127.0.0.1:8000", clock=clock), clock


def test_the_episodes_that_began_first_count_not_those_that_end_first() -> None:
    worker = Worker()
    made, _ = evaluation(worker)
    worker.plays([1.0, 5.0, 5, "playing"], [2.0, 9.0, 9, "over"], [3.0, 1.0, 1, "over"])
    assert made.turn(100) is None, "the one that began first still plays"
    worker.plays([1.0, 20.0, 20, "over"], [2.0, 9.0, 9, "over"], [3.0, 1.0, 1, "over"], num_steps=2)
    found = made.turn(100)
    assert found is not None
    assert (found["eval_return_mean"], found["eval_episodes"], found["eval_cut_off"]) == (14.5, 2, 0)
    assert worker.asked[0] == ("evaluate", 2, 100)


def test_no_game_comes_so_it_is_not_evaluated_and_says_so() -> None:
    worker = Worker()
    made, clock = evaluation(worker)
    while (found := made.turn(100)) is None:
        assert clock.now() < 31
    assert clock.now() >= 30
    assert (found["eval_episodes"], found["eval_return_mean"]) == (0, None)
    assert "not evaluated: no game on 127.0.0.1:8000" in found["eval_error"]


def test_games_that_go_away_leave_what_they_played() -> None:
    worker = Worker()
    made, clock = evaluation(worker)
    worker.plays([1.0, 7.0, 7, "over"], [2.0, 3.0, 3, "playing"])
    assert made.turn(100) is None
    clock.advance(29)
    worker.plays([1.0, 7.0, 7, "over"], [2.0, 4.0, 4, "playing"], num_steps=2)
    assert made.turn(100) is None
    clock.advance(29)
    assert made.turn(100) is None, "a step was made 29 s ago"
    clock.advance(1)
    found = made.turn(100)
    assert found is not None
    assert (found["eval_return_mean"], found["eval_episodes"]) == (7.0, 1)


def test_a_worker_that_is_started_again_keeps_what_it_had_finished() -> None:
    one, two = Worker(), Worker()
    made, _ = evaluation(one, two, episodes=3)
    one.plays([1.0, 7.0, 7, "over"], [2.0, 3.0, 3, "playing"])
    assert made.turn(100) is None
    one.says = errors.Unreachable("it was killed")
    assert made.turn(100) is None
    one.plays([5.0, 9.0, 9, "over"], incarnation="second")
    two.plays([4.0, 5.0, 5, "cut off"])
    found = made.turn(100)
    assert found is not None
    assert (found["eval_return_mean"], found["eval_episodes"], found["eval_cut_off"]) == (7.0, 3, 1)


def test_a_log_counts_whole_episodes_and_cuts_off_long_ones() -> None:
    log = EvaluationLog(episodes=3, max_steps=10)
    vanished, whole, endless = log.begin(), log.begin(), log.begin()
    assert vanished is not None
    assert whole is not None
    assert endless is not None
    assert log.begin() is None, "there are enough"
    vanished.note(3.0, 3)
    vanished.end(is_whole=False)
    replacement = log.begin()
    assert replacement is not None, "one of them was void"
    whole.note(8.0, 8)
    whole.end(is_whole=True)
    whole.end(is_whole=False)
    for length in range(1, 20):
        endless.note(float(length), length)
    replacement.end(is_whole=True)
    states = [(total, state) for _, total, _, state in log.to_nest()["played"]]
    assert states == [(8.0, "over"), (10.0, "cut off"), (0.0, "void")], "nothing was done in the last one"
