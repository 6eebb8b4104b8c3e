"""The views of training runs, of metrics that real runs and the real writer have left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.cli.main import main
from ludus.page.app import make_app
from ludus.page.site import Site
from ludus.telemetry.metrics_file import METRICS_FILE, MetricsWriter

from .requests import ask

PART = {"x_ludus_part": "1"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `ludus train`, seconds long."""
    project = tmp_path_factory.mktemp("trained")
    words = "train ppo CartPole-v1 --steps 4096 --eval-episodes 2 --trial tiny --seed 1"
    assert main([*words.split(), "--project", str(project)]) == 0
    return project / "tiny"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def write(project: Path, name: str, lines: list[dict[str, float]], *, algorithm: str = "dqn") -> Path:
    folder = project / name
    folder.mkdir()
    config = {"train": {"env": "CartPole-v1", "algorithm": algorithm, "steps": 10_000}, "algorithm": {"capacity": 5000}}
    (folder / "config.json").write_text(json.dumps(config))
    with MetricsWriter(folder) as writer:
        for number, line in enumerate(lines):
            writer.write(100 * number, line)
    return folder


def show(site: Site, path: str) -> str:
    answer = ask(make_app(site), path, **PART)
    assert answer.status == 200, answer.text
    return answer.text


def test_a_run_shows_its_curve_its_stages_and_its_bottleneck(site: Site, trained: Path) -> None:
    shutil.copytree(trained, site.project / "tiny")
    assert ask(make_app(site), "/trials/tiny").headers["location"] == "/trials/tiny/training"
    text = show(site, "/trials/tiny/training")
    assert "Learning curve: return by environment steps" in text
    assert "evaluated" in text
    assert "Bottleneck, when it ran: Learning (trainer)." in text
    assert "None: what is learnt from was made by the newest weights" in text
    assert "by seconds of training" in show(site, "/trials/tiny/training?by=seconds&smooth=much")


def test_every_metric_of_a_run_is_found_by_its_name(site: Site, trained: Path) -> None:
    shutil.copytree(trained, site.project / "tiny")
    names = {name for line in (trained / METRICS_FILE).read_text().splitlines() for name in json.loads(line)}
    assert "train/entropy" in names
    text = show(site, "/trials/tiny/metrics?name=ENTROPY")
    assert "train/entropy" in text
    assert "train/loss" not in text
    assert "1 of " in text
    text = show(site, "/trials/tiny/metrics?group=time/&by=seconds&smooth=some")
    assert "time/act" in text
    assert "episode/length" not in text


def test_a_replay_run_shows_its_table_and_its_limiter(site: Site) -> None:
    write(
        site.project,
        "replay",
        [
            {"count/replay_size": 10.0 * n, "count/replay_inserted": 10.0 * n, "count/replay_sampled": 80.0 * n,
             "count/samples_per_insert": 8.0, "time/train": 0.9, "time/step_envs": 0.1, "time/steps_per_second": 50.0}
            for n in range(5)
        ],
    )  # fmt: skip
    text = show(site, "/trials/replay/training")
    assert "40 of 5,000" in text
    assert "limiter: 8 samples per insert so far" in text
    assert "Learning curve: nothing yet" in text


def test_a_spread_run_shows_its_lag_its_buffer_and_its_inference(site: Site) -> None:
    line = {
        "lag/mean": 2.0, "lag/max": 4.0, "buffer/policy/size": 12.0, "buffer/policy/capacity": 16.0,
        "buffer/policy/waiting_producers": 3.0,
        "buffer/policy/pushed_per_second": 70.4, "buffer/policy/taken_per_second": 71.5, "buffer/policy/dropped": 1.0,
        "model/policy/busy": 0.9, "model/policy/rows_per_second": 18_000.0, "model/policy/batch_rows": 12.5,
        "model/policy/pending": 1.0, "time/idle": 0.6, "time/train": 0.4, "time/steps_per_second": 18_000.0,
    }  # fmt: skip
    write(site.project, "spread", [line, line], algorithm="impala")
    text = show(site, "/trials/spread/training")
    for part in (
        "12 of 16",
        "full: 3 producers wait, 1 dropped",
        "70.4",
        "Lag: versions by",
        "18k",
        "model &#39;policy&#39;",
    ):
        assert part in text


def test_a_league_shows_a_curve_for_each_of_its_learners(site: Site) -> None:
    line = {"episode/return/main": 0.3, "episode/return/exploiter": 0.1, "time/play": 0.7, "time/train": 0.3}
    write(site.project, "league", [line, line], algorithm="ppo")
    text = show(site, "/trials/league/training")
    assert "main 0.3" in text
    assert "exploiter 0.1" in text
    assert "Playing matches" in text


def test_a_spread_league_shows_its_matches_its_simulators_and_its_lag(site: Site) -> None:
    line = {
        "time/train": 0.8, "time/take": 0.1, "time/play": 0.1, "time/steps_per_second": 900.0,
        "lag/mean": 1.9, "lag/max": 3.0, "league/matches_per_second": 41.5,
        "simulator/time/play": 0.54, "simulator/time/evaluate": 0.1, "simulator/time/idle": 0.36,
        "simulator/steps_per_second": 1080.0, "simulator/games_per_second": 70.0,
    }  # fmt: skip
    write(site.project, "league", [line, line], algorithm="ppo")
    text = show(site, "/trials/league/training")
    for part in (
        "matches/s</dt><dd>41.5",
        "Bottleneck, when it ran: Learning",
        "simulators wait 36% of theirs",
        "<h2>Simulators</h2>",
        "Playing for learners",
        "2,000",
        "Waiting for learners",
        "Lag: versions by",
    ):
        assert part in text, part


def test_trials_are_compared_by_the_choice_in_the_address(site: Site) -> None:
    for number in range(10):
        write(site.project, f"t{number}", [{"episode/return": 10.0 * number}, {"episode/return": 20.0 * number}])
    text = show(site, "/compare?trial=t1&trial=t2&trial=t1&trial=gone&trial=../t3")
    assert "t1 is at 20" in text
    assert "t2 is at 40" in text
    assert "No folder of the project is called: gone." in text
    assert "t3" not in text
    shutil.rmtree(site.project / "t2")
    assert "called: t2." in show(site, "/compare?trial=t1&trial=t2")
    everything = "&".join(f"trial=t{number}" for number in range(10))
    assert "The first 8 are drawn" in show(site, f"/compare?{everything}")
    assert "No trials are chosen" in show(site, "/compare")


def test_the_index_keeps_the_ticks_of_its_address(site: Site) -> None:
    for name in ("one", "two"):
        write(site.project, name, [])
    text = show(site, "/?trial=two")
    assert 'value="two" checked' in text
    assert 'value="one" checked' not in text
    assert 'formaction="/compare"' in text


def test_a_trial_that_is_damaged_or_deleted_while_it_is_looked_at_says_so(site: Site) -> None:
    folder = write(site.project, "torn", [{"episode/return": 1.0}, {"episode/return": 5.0}])
    with open(folder / METRICS_FILE, "a") as file:
        file.write('{"step": 300, "episode/ret')
    assert "training is at 5" in show(site, "/trials/torn/training")
    (folder / "config.json").write_text("{")
    assert "training is at 5" in show(site, "/trials/torn/training")
    shutil.rmtree(folder)
    assert ask(make_app(site), "/trials/torn/training", **PART).status == 404
