from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ludus.clock import FakeClock
from ludus.experiment import results
from ludus.page.trials import TrialIndex, kind_of


def make_trials(project: Path, num: int) -> None:
    for number in range(num):
        folder = project / f"trial-{number}"
        folder.mkdir()
        (folder / "config.json").write_text(
            json.dumps({"train": {"env": "CartPole-v1", "algorithm": "ppo", "steps": 9}})
        )
        (folder / "metrics.jsonl").write_text('{"step": 5, "time": 1, "wall_s": 1}\n')
        os.utime(folder / "config.json", (number, number))


def test_trials_are_listed_the_newest_first(tmp_path: Path) -> None:
    make_trials(tmp_path, 3)
    rows = TrialIndex().rows(tmp_path)
    assert [row.folder.name for row in rows] == ["trial-2", "trial-1", "trial-0"]
    assert (rows[0].kind, rows[0].env, rows[0].steps, rows[0].status) == ("training", "CartPole-v1", 5, "lost")


def test_only_what_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_trials(tmp_path, 20)
    clock, read = FakeClock(), []
    index = TrialIndex(clock)
    summarise = results.summarise
    monkeypatch.setattr(results, "summarise", lambda path: (read.append(path.name), summarise(path))[1])
    index.rows(tmp_path)
    assert len(read) == 20
    with (tmp_path / "trial-7" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "time": 2, "wall_s": 2}\n')
    assert index.rows(tmp_path) is index.rows(tmp_path)  # within a second
    clock.advance(2.0)
    rows = index.rows(tmp_path)
    assert read[20:] == ["trial-7"]
    assert next(row.steps for row in rows if row.folder.name == "trial-7") == 6


def test_torn_and_removed_trials_hold_up_nobody(tmp_path: Path) -> None:
    make_trials(tmp_path, 3)
    (tmp_path / "trial-0" / "config.json").write_text("{")
    (tmp_path / "trial-1" / "trial.json").write_text('{"experiment"')
    clock = FakeClock()
    index = TrialIndex(clock)
    assert len(index.rows(tmp_path)) == 3
    clock.advance(2.0)
    shutil.rmtree(tmp_path / "trial-2")
    assert len(index.rows(tmp_path)) == 2


def test_a_trial_of_a_script_is_one_of_services(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "trial.json").write_text("{}")
    (row,) = TrialIndex().rows(tmp_path)
    assert (row.kind, row.status) == ("services", "idle")
    assert kind_of(tmp_path / "mine") == "services"
