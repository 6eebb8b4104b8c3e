"""`ludus replay`: its exit code says whether today's actor answers as the recorded one did."""

import json
from pathlib import Path

import pytest

from ludus.cli.main import main
from ludus.gateway.actor import Actor
from ludus.gateway.record import Recorder
from ludus.gateway.session_core import SessionCore
from ludus.gateway.step import Step

ACTORS = """
from ludus.gateway.actor import Actor

class Same(Actor):
    def tick(self, data):
        return b"<" + data + b">"

class Other(Same):
    def tick(self, data):
        return super().tick(data) if data != b"3" else b"[3]"
"""


class Recorded(Actor):
    def tick(self, data):
        return b"<" + data + b">"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "replayed_actors.py").write_text(ACTORS)
    monkeypatch.syspath_prepend(tmp_path)
    recorder = Recorder(tmp_path / "log")
    sessions = SessionCore(Recorded, observer=recorder)
    answers = []
    for kind, data in (("start", b""), *(("tick", b"%d" % number) for number in range(5)), ("end", b"")):
        sessions.step(Step(kind, "a", data), answers.append)
    recorder.close()
    assert len(answers) == 7
    return tmp_path / "log"


@pytest.mark.parametrize(("actor", "num_different"), [("Same", 0), ("Other", 1)])
def test_answers_that_differ_are_counted_and_end_it_with_1(log, actor, num_different, capsys):
    words = ["replay", str(log), "--actor", f"replayed_actors:{actor}"]
    assert main(words) == num_different
    assert f"1 sessions, 7 steps: {num_different} answers differ" in capsys.readouterr().out
    assert main([*words, "--json"]) == num_different
    report = json.loads(capsys.readouterr().out)
    assert (report["sessions"], report["steps"], report["different"]) == (1, 7, num_different)
    assert (report["first_difference"] is None) == (num_different == 0)
