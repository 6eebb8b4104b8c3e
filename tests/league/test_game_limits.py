"""Games that do not end are an error, by steps or by time; those that do never are."""

from __future__ import annotations

import pytest

from ludus.errors import EnvError
from ludus.league.game_limits import GAME_STEPS, GameLimits, limits_for

from .games import GAME


class Clock:
    seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wait(self, *_args: object) -> bool:
        raise AssertionError("nobody waits here")


def test_as_long_as_games_end_they_may_take_as_long_as_they_like() -> None:
    clock = Clock()
    watch = GameLimits(steps=100, seconds=60.0).watch("chess: no game has ended", clock=clock)
    for num_done in range(1, 20):
        clock.seconds += 59.0
        watch.look(num_done - 1, num_steps=50)
        watch.look(num_done, num_steps=50)


def test_when_none_has_ended_for_too_many_steps_or_too_long_it_is_given_up() -> None:
    clock = Clock()
    watch = GameLimits(steps=100, seconds=60.0).watch("chess: no game has ended", clock=clock)
    watch.look(1, num_steps=90)
    watch.look(1, num_steps=100)
    with pytest.raises(EnvError, match="chess: no game has ended in 116 steps of each env"):
        watch.look(1, num_steps=16)
    watch = GameLimits(steps=100, seconds=60.0).watch("chess: no game has ended", clock=clock)
    clock.seconds += 61.0
    with pytest.raises(EnvError, match="--max-game-minutes"):
        watch.look(0, num_steps=16)


def test_the_limit_is_what_the_rules_say_or_what_was_asked_for() -> None:
    assert 9 <= limits_for(GAME, {}).steps < 100
    assert limits_for("matrix:rps", {}).steps == GAME_STEPS
    assert limits_for("matrix:rps", {}, steps=7, minutes=2.0) == GameLimits(steps=7, seconds=120.0)
