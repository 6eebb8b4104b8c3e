from __future__ import annotations

import io
import subprocess
import sys

from ludus.clock import FakeClock
from ludus.experiment.status import StatusReporter
from ludus.telemetry.progress import Progress

VALUES = {
    "episode/return": 123.4,
    "lag/mean": 1.5,
    "time/steps_per_second": 9000.0,
    "time/step_envs": 0.41,
    "time/train": 0.55,
    "time/act": 0.001,
}


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_a_run_under_two_seconds_says_nothing() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(1000, stream=stream, clock=clock) as progress:
        for step in (500, 1000):
            clock.now += 0.9
            progress.update(step, VALUES)
    assert stream.getvalue() == ""


def test_without_a_terminal_there_is_a_line_after_two_seconds_and_then_every_ten() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(100_000, stream=stream, clock=clock) as progress:
        for second in range(1, 34):
            clock.now += 1.0
            progress.update(second * 1000, VALUES)
        assert [line.split()[0] for line in stream.getvalue().splitlines()] == ["2,000", "12,000", "22,000", "32,000"]
    assert stream.getvalue().splitlines()[-1].startswith("33,000 of 100,000 steps (33%)")


def test_agents_that_compete_have_their_own_returns_instead_of_a_mean_that_is_zero_by_the_rules() -> None:
    def line(**returns: float) -> str:
        clock, stream = Clock(), io.StringIO()
        values = {"episode/return": sum(returns.values()) / len(returns)}
        values |= {f"episode/return/{agent}": value for agent, value in returns.items()}
        with Progress(100, stream=stream, clock=clock) as progress:
            clock.now += 5.0
            progress.update(100, values)
        return stream.getvalue()

    assert "return x 0.3, o -0.3   " in line(x=0.3, o=-0.3)
    assert "return 2.0   " in line(x=2.0, o=2.0)
    assert "return a 1.0, b 2.0, c 3.0, d 4.0, …   " in line(a=1.0, b=2.0, c=3.0, d=4.0, e=5.0)


def test_the_end_is_reported_once() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(100, stream=stream, clock=clock) as progress:
        clock.now += 5.0
        progress.update(100)
    assert stream.getvalue() == "100 of 100 steps (100%)   5 s in all\n"


def test_a_line_tells_steps_speed_return_lag_where_time_goes_and_what_is_left() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(100_000, stream=stream, clock=clock) as progress:
        progress.update(0)
        clock.now += 10.0
        progress.update(20_000, VALUES)
        line = stream.getvalue().strip()
    assert line == (
        "20,000 of 100,000 steps (20%)   9,000 steps/s   return 123.4   lag 1.5   "
        "time: train 55%, step envs 41%   40 s left"
    )


def test_after_a_resume_the_speed_counts_only_what_was_done_since() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(100_000, stream=stream, clock=clock) as progress:
        progress.update(80_000)
        clock.now += 10.0
        progress.update(90_000)
        assert "1,000 steps/s   10 s left" in stream.getvalue()


def test_the_last_value_of_a_name_stays_until_another_comes() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(100, stream=stream, clock=clock) as progress:
        progress.update(10, {"episode/return": 7.0})
        clock.now += 3.0
        progress.update(20, {"episode/return": None, "lag/mean": 2.0})
        assert "return 7.0   lag 2.0" in stream.getvalue()


def test_the_return_of_training_is_called_what_it_is() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(100, return_label="clipped return", stream=stream, clock=clock) as progress:
        clock.now += 3.0
        progress.update(20, {"episode/return": 7.0})
    assert "clipped return 7.0" in stream.getvalue()


def test_a_live_view_is_drawn_at_most_five_times_a_second() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(1000, True, stream=stream, clock=clock) as progress:
        for step in range(1, 1001):
            clock.now += 0.001
            progress.update(step, VALUES)
        num_drawn = stream.getvalue().count("of 1,000 steps")
    assert 3 <= num_drawn <= 6
    assert "1,000 of 1,000 steps (100%)" in stream.getvalue()
    assert "train 55%" in stream.getvalue()


def test_an_error_inside_is_not_swallowed_and_the_view_ends() -> None:
    clock, stream = Clock(), io.StringIO()
    try:
        with Progress(1000, True, stream=stream, clock=clock) as progress:
            clock.now += 1.0
            progress.update(10, VALUES)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert stream.getvalue().endswith("\x1b[?25h"), "the cursor is back"


def test_the_first_update_imports_no_rich() -> None:
    code = """
import sys
from ludus.clock import FakeClock
from ludus.telemetry.progress import Progress
from ludus.experiment.status import StatusReporter
with Progress(1000, True) as progress:
    progress.update(1, {"episode/return": 1.0})
    print(sorted({"rich", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_what_a_run_does_is_shown_while_it_has_no_news() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(1000, stream=stream, clock=clock) as progress:
        clock.now += 4.1
        progress.status("busy: update, 4.1 s")
        assert stream.getvalue() == "0 of 1,000 steps (0%)   busy: update, 4.1 s\n"
        clock.now += 10.0
        progress.update(500)
        assert "busy" not in stream.getvalue().splitlines()[-1]


def test_a_slow_update_is_reported_by_a_thread_beside_it() -> None:
    clock, said = FakeClock(0.0), []
    seen = [(0, "collect")]
    reporter = StatusReporter(lambda: seen[0], said.append, clock=clock)
    reporter.look()
    clock.advance(0.5)
    reporter.look()
    seen[0] = (0, "update")
    for _ in range(3):
        clock.advance(0.5)
        reporter.look()
    assert said == ["busy: update, 1.0 s"]
    seen[0] = (128, "update")  # the next one
    reporter.look()
    assert len(said) == 1
