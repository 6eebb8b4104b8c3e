"""`ludus dataset`: one command from a recording, a run or a file of others to data that is learnt from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ludus
from ludus.cli.main import main
from ludus.experiment.datasets.dataset import Dataset
from ludus.gateway.actor import Actor
from ludus.gateway.record import Recorder
from ludus.gateway.session_core import SessionCore
from ludus.gateway.step import Step

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

SPEC = {"obs": {"shape": [4], "dtype": "float32"}, "action": {"discrete": 2}}


class Same(Actor):
    def start(self, session, data):
        return b'{"action": 0}'

    def tick(self, data):
        return b'{"action": 1}'


def record(path: Path, **about: str) -> Path:
    recorder = Recorder(path, about)
    sessions = SessionCore(Same, observer=recorder)
    end = {"obs": [3] * 4, "reward": 2.0, "terminated": True}
    for kind, body in (("start", [1] * 4), ("tick", {"obs": [2] * 4, "reward": 1.0}), ("end", end)):
        sessions.step(Step(kind, "a", json.dumps(body).encode()), lambda outcome: None)
    recorder.close()
    return path


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a trial `poles` of CartPole."""
    folder = tmp_path_factory.mktemp("project")
    ludus.train(
        "dqn", "CartPole-v1", steps=300, min_size=100, num_envs=4, eval_episodes=0, threads=1, hidden="8",
        project=str(folder), trial="poles",
    )  # fmt: skip
    return folder


def test_a_recording_and_its_spec_make_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = record(tmp_path / "log")
    (tmp_path / "game.json").write_text(json.dumps(SPEC))
    words = ["dataset", "from-recording", str(log), "--spec", str(tmp_path / "game.json"), "--out"]
    assert main([*words, str(tmp_path / "data")]) == 0
    out = capsys.readouterr().out
    assert "1 episodes, 2 steps" in out
    assert "return 3 ± 0" in out
    assert f"train bc ENV --dataset {tmp_path / 'data'}" in out
    (episode,) = Dataset.open(tmp_path / "data").episodes()
    assert (episode.action.tolist(), episode.reward.tolist(), episode.terminated) == ([0, 1], [1.0, 2.0], True)
    assert main([*words, str(tmp_path / "data")]) == 2
    assert "has a dataset already" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "other"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_steps"] == 2


def test_the_spec_is_that_of_the_trial_that_was_recorded_or_named(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = record(tmp_path / "served", trial=str(project / "poles"))
    assert main(["dataset", "from-recording", str(served), "--out", str(tmp_path / "data")]) == 0
    assert "train bc CartPole-v1" in capsys.readouterr().out
    moved = record(tmp_path / "moved", trial="/not/here")
    words = ["dataset", "from-recording", str(moved), "--out", str(tmp_path / "again")]
    assert main(words) == 2
    assert "its trial is not here. Give --trial, or --spec" in capsys.readouterr().err
    assert main([*words, "--trial", "poles", "--project", str(project)]) == 0
    assert Dataset.open(tmp_path / "again").spec.action == Dataset.open(tmp_path / "data").spec.action


def test_a_trained_policy_plays_a_dataset(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["dataset", "play", "poles", "--project", str(project), "--episodes", "5", "--seed", "3", "--out"]
    assert main([*words, str(tmp_path / "a")]) == 0
    assert "train bc CartPole-v1" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "b")]) == 0
    a, b = Dataset.open(tmp_path / "a"), Dataset.open(tmp_path / "b")
    assert a.num_episodes == 5
    assert a.summary["return_mean"] == a.num_steps / 5, "CartPole: 1 for each step"
    assert (a.num_steps, a.source["greedy"]) == (b.num_steps, True)
    assert main([*words, str(tmp_path / "c"), "--no-greedy", "--episodes", "0"]) == 2
    assert "episodes=0" in capsys.readouterr().err


def test_what_a_run_has_kept_is_a_dataset(project: Path, tmp_path: Path) -> None:
    assert main(["dataset", "from-trial", "poles", "--project", str(project), "--out", str(tmp_path / "kept")]) == 0
    assert Dataset.open(tmp_path / "kept").num_steps > 200


def test_info_says_what_there_is_and_verifies_it(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["dataset", "from-trial", "poles", "--project", str(project), "--out", str(tmp_path / "kept")])
    assert main(["dataset", "info", str(tmp_path / "kept"), "--verify"]) == 0
    assert "all of it is as it was written" in capsys.readouterr().out
    assert main(["dataset", "info", str(tmp_path / "kept"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"]["kind"] == "replay"
    (file,) = (tmp_path / "kept").glob("episodes-*")
    file.write_bytes(b"x")
    assert main(["dataset", "info", str(tmp_path / "kept")]) == 0
    assert main(["dataset", "info", str(tmp_path / "kept"), "--verify"]) == 2
    assert "is torn" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["from-recordin", "x"], "Did you mean 'from-recording'?"),
        (["info", "nowhere"], "nowhere is not a dataset"),
        (["from-recording", "nowhere", "--out", "x"], "there is no recording nowhere"),
        (["play", "nobody", "--out", "x"], "there is no trial 'nobody'"),
        (["from-store", "x", "--out", "y"], "give --spec or --trial"),
        (["info", "x", "--verfy"], "Did you mean '--verify'?"),
        (["from-recording", "x"], "--out"),
    ],
)
def test_what_is_not_understood_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dataset", *words]) == 2
    assert message in capsys.readouterr().err


def test_help_is_that_of_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dataset", "--help"]) == 0
    assert "from-minari: a Minari dataset on disk" in " ".join(capsys.readouterr().out.split())
    assert main(["dataset", "play", "--help"]) == 0
    assert "--episodes" in capsys.readouterr().out


def test_a_recording_whose_trial_is_no_path_asks_for_a_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for trial in (5, None):
        log = record(tmp_path / f"log-{trial}", trial=trial)  # type: ignore[arg-type]
        assert main(["dataset", "from-recording", str(log), "--out", str(tmp_path / "data")]) == 2
        assert "Give --trial, or --spec" in capsys.readouterr().err
