"""How many threads a run's arithmetic takes when its user has not said it."""

from __future__ import annotations

import pytest

from ludus import envs
from ludus.experiment import wiring
from ludus.experiment.config import resolve


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def threads(env: str) -> int:
    return wiring._embedded_threads(envs.spec(env))


def test_images_get_all_cores_up_to_eight_and_others_one_thread() -> None:
    assert threads("ALE/Pong-v5") == 8
    assert threads("Pendulum-v1") == 1


@pytest.mark.parametrize(("said", "embedded", "of_two_trainers"), [("1", 1, 1), ("3,2", 3, 3), ("", 8, 4), ("x", 8, 4)])
def test_omp_num_threads_is_not_exceeded(
    said: str, embedded: int, of_two_trainers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert threads("ALE/Pong-v5") == embedded
    assert threads("Pendulum-v1") == 1
    assert wiring.trainer_threads(resolve("ppo", "Pendulum-v1", {"trainers": 2})) == of_two_trainers
    assert wiring.trainer_threads(resolve("ppo", "Pendulum-v1", {"trainers": 2, "threads": 6})) == 6
