"""How many threads a run's arithmetic takes when its user has not said it."""

from __future__ import annotations

from typing import Any

import pytest

from ludus import envs
from ludus.experiment import wiring
from ludus.experiment.config import resolve


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def threads(algorithm: str, env: str = "Pendulum-v1", **settings: Any) -> int:
    return wiring._embedded_threads(resolve(algorithm, env, settings), envs.spec(env))


def test_wide_layers_with_large_batches_get_two_threads_and_others_one() -> None:
    assert threads("sac", hidden="256,256") == 2
    assert threads("sac", hidden="256,256", batch_size=64) == 1
    assert threads("sac", hidden="64,64") == 1
    assert threads("td3") == 2, "its own default is 256"
    assert threads("bc", dataset="expert") == 1, "64 units, unless there are many inputs"
    assert threads("ppo") == 1


@pytest.mark.parametrize(("said", "embedded", "of_two_trainers"), [("1", 1, 1), ("3,2", 2, 3), ("", 2, 4), ("x", 2, 4)])
def test_omp_num_threads_is_not_exceeded(
    said: str, embedded: int, of_two_trainers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert threads("td3") == embedded
    assert wiring.trainer_threads(resolve("ppo", "Pendulum-v1", {"trainers": 2})) == of_two_trainers
    assert wiring.trainer_threads(resolve("ppo", "Pendulum-v1", {"trainers": 2, "threads": 6})) == 6
