from __future__ import annotations

import time
from pathlib import Path

import pytest
from rich.console import Console

from ludus.cli import demo, demo_calls
from ludus.cli.main import main
from ludus.launch import supervisor
from ludus.workers.panel import Outcome


def quick_demo(project: Path, *words: str) -> tuple[int, Path]:
    code = main(["demo", "lander", "--quick", "--project", str(project), *words])
    (folder,) = project.glob("demo-*")
    return code, folder


def test_the_demo_trains_and_leaves_a_curve_and_two_films(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, folder = quick_demo(tmp_path)
    assert code == 0
    out = capsys.readouterr().out
    for name, start in (("learning_curve.png", b"\x89PNG"), ("untrained.gif", b"GIF8"), ("trained.gif", b"GIF8")):
        assert (folder / name).read_bytes().startswith(start)
        assert str(folder / name) in out
    assert out.index("Untrained") < out.index("Trained for")
    assert f"ludus watch {folder.name} --project {tmp_path}" in out


def test_the_demo_stops_in_time_and_can_be_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.experiment.training._METRICS_EVERY_S", 0.0)
    code, folder = quick_demo(tmp_path, "--seconds", "0.01")
    assert code == 0
    assert f"ludus resume {folder.name}" in capsys.readouterr().out
    assert list((folder / "checkpoints").glob("*.ludus"))
    assert not (folder / "result.json").exists()


def test_the_demo_of_a_league_ends_by_itself_where_nobody_sits_at_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--quick", "--seconds", "0.2", "--project", str(tmp_path)]) == 0
    (folder,) = tmp_path.glob("demo-*")
    out, err = capsys.readouterr()
    assert f"/trials/{folder.name}\n" in err  # the page
    assert "The strongest now:" in out
    for command in ("play", "dashboard", "league board:tic_tac_toe --trial"):
        assert f"ludus {command} " in out
    assert (folder / "result.json").exists()


def test_the_lesson_of_the_demo_is_one_that_can_be_configured() -> None:
    from ludus.experiment import config

    for lesson in (demo._LANDER, demo._CART):
        assert config.resolve(lesson.algorithm, lesson.env, lesson.settings).is_embedded


@pytest.mark.chaos
def test_the_demo_of_calls_kills_a_worker_and_shows_that_calls_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--calls", "--seconds", "6", "--project", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "calls answered in" in out
    assert "oracle/1 was killed -9" in out
    assert "oracle/1 down" in out
    assert "Not as it should be" not in out


def stats(pid: int, num_calls: int) -> dict[str, object]:
    return {"pid": pid, "batches": {"score": [num_calls, num_calls]}}


def seen_with(*, back: bool, went_on: int) -> demo_calls.Seen:
    seen = demo_calls.Seen()
    seen.killed_at, seen.killed_pid, seen.noticed_at = time.monotonic(), 1, time.monotonic()
    seen.stats["player/0"] = {"pid": 9, "batches": {}, "num_calls": went_on}
    seen.take([Outcome("oracle/1", stats(pid=2 if back else 1, num_calls=5))])
    seen.stats["player/0"]["num_calls"] += 1
    return seen


@pytest.mark.parametrize(("back", "went_on", "code"), [(True, 100, 0), (True, 0, 1), (False, 100, 1)])
def test_the_demo_of_calls_fails_unless_calls_went_on_and_the_worker_came_back(
    back: bool, went_on: int, code: int
) -> None:
    assert demo_calls._sum_up(Console(quiet=True), seen_with(back=back, went_on=went_on)) == code


def test_rates_are_differences_between_two_looks_at_one_process() -> None:
    seen = demo_calls.Seen()
    seen.take([Outcome("oracle/0", stats(pid=1, num_calls=100))])
    assert seen.rates == {}
    seen._taken_at["oracle/0"] -= 1.0
    seen.take([Outcome("oracle/0", stats(pid=1, num_calls=300))])
    assert seen.rates["oracle/0"] == pytest.approx(200, rel=0.05)
    seen.take([Outcome("oracle/0", stats(pid=2, num_calls=7))])
    assert seen.rates == {}
    seen.take([Outcome("oracle/0", error=RuntimeError("gone"))])
    assert seen.rates == {}


def test_a_crash_is_noted_when_it_is_reported() -> None:
    seen = demo_calls.Seen()
    seen.on_event(supervisor.Event(kind=supervisor.EventKind.CRASHED, worker="oracle/0", text=""))
    assert seen.noticed_at is None
    seen.on_event(supervisor.Event(kind=supervisor.EventKind.CRASHED, worker="oracle/1", text=""))
    assert seen.noticed_at is not None
