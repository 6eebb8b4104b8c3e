"""The walks of ARCHITECTURE.md: the files that an observation, and a tick, really pass."""

from __future__ import annotations

import http.client
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.experiment import config, wiring
from ludus.serving.policy_actor import PolicyActor
from ludus.testing.gateways import serving

ROOT = Path(__file__).parent.parent
SOURCE = Path(ludus.__file__).parent
MOST = {"embedded": 20, "spread": 24, "from a game": 27, "a tick": 14}
# What only looks on: structures, checks, counters, scales, base classes.
BESIDE_TRAINING = {
    "data/nest.py",
    "envs/gymnasium.py",
    "envs/spaces.py",
    "envs/validation.py",
    "learn/algorithms/algorithm.py",
    "learn/algorithms/actor_critic.py",
    "learn/algorithms/trained_networks.py",
    "learn/ops/distributions/head.py",
    "learn/ops/normalise.py",
    "learn/policies/value_scale.py",
    "services/simulator/episodes.py",
}
BESIDE_A_TICK = {
    "data/fault.py",
    "data/nest.py",
    "experiment/step_bodies.py",
    "gateway/actor.py",
    "gateway/live_session.py",
    "gateway/metrics.py",
    "gateway/session.py",
    "gateway/step.py",
    "learn/networks/twin.py",
    "learn/ops/distributions/head.py",
    "learn/policies/policy.py",
    "learn/policies/runner.py",
    "learn/policies/served.py",
    "learn/policies/value_scale.py",
    "models/backends/backend.py",
    "models/request.py",
    "models/versions/store.py",
}


def _walks() -> dict[str, tuple[list[str], int]]:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z ]+) \| ([^|]+) \| (\d+) \|$", text, re.MULTILINE)
    return {name: (re.findall(r"`([a-z_/0-9]+\.py)`", files), int(number)) for name, files, number in rows}


class _Passed:
    """The files of Ludus whose functions are called while it is on, in all threads that start after it was made."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_on = False
        threading.setprofile(self._look)

    def _look(self, frame: Any, event: str, _argument: Any) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            self.files.add(str(Path(frame.f_code.co_filename).relative_to(SOURCE)))

    def during(self, act: Callable[[], Any]) -> Any:
        self.is_on = True
        sys.setprofile(self._look)
        try:
            return act()
        finally:
            sys.setprofile(None)
            self.is_on = False


@pytest.fixture
def passed():
    yield _Passed()
    threading.setprofile(None)


def test_the_walks_are_as_short_as_they_are_said_to_be() -> None:
    walks = _walks()
    assert walks.keys() == MOST.keys()
    for name, (files, number) in walks.items():
        assert number <= MOST[name]
        assert all((SOURCE / file).is_file() for file in files), name
        assert len(set(files)) == len(files)
    assert [len(walks[name][0]) for name in ("embedded", "a tick")] == [walks["embedded"][1], walks["a tick"][1]]
    shared = len(walks["embedded"][0]) - walks["embedded"][0].index("services/simulator/chooser.py")
    assert len(walks["spread"][0]) + shared == walks["spread"][1]
    learnt = len(walks["embedded"][0]) - walks["embedded"][0].index("learn/algorithms/learner.py")
    assert 6 + len(walks["from a game"][0]) + learnt + 2 == walks["from a game"][1]


def test_an_observation_passes_the_files_of_its_walk(
    tmp_path: Path, passed: _Passed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.experiment.training._METRICS_EVERY_S", 3600.0)
    settings = {"steps": 100_000, "num_envs": 4, "num_steps": 8, "minibatch_size": 16, "num_epochs": 1}
    with wiring.embedded(config.resolve("ppo", "CartPole-v1", settings), tmp_path) as training:
        training.turn()
        passed.during(training.turn)
    assert passed.files - BESIDE_TRAINING == set(_walks()["embedded"][0])


def test_a_tick_passes_the_files_of_its_walk(tmp_path: Path, passed: _Passed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.gateway.gateway._SWEEP_EVERY_S", 3600.0)
    ludus.train("ppo", "CartPole-v1", steps=1000, project=str(tmp_path), trial="poles", eval_episodes=0)
    with ludus.init(tmp_path, "poles"), serving(lambda: PolicyActor("policy")) as url:
        connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=60)

        def step(kind: str, body: bytes = b"") -> bytes:
            connection.request("POST", "/step", body, {"session": "a", "step_kind": kind})
            return connection.getresponse().read()

        step("start")
        step("tick", b"[0.0, 0.1, 0.2, 0.3]")
        answer = passed.during(lambda: step("tick", b"[0.0, 0.1, 0.2, 0.3]"))
        step("end")
        connection.close()
    assert answer.startswith(b'{"action":')
    others = {file for file in passed.files if file.startswith(("rpc/", "workers/", "discovery/", "trial/metrics"))}
    assert passed.files - BESIDE_A_TICK - others == set(_walks()["a tick"][0])
