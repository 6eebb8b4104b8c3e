"""A simulator of a league: what it plays of itself, in between calls of those that learn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus import envs
from ludus.discovery.memory import MemoryNames
from ludus.experiment import wiring
from ludus.league import config as configs
from ludus.league.pools import open_pool
from ludus.league.running import TrialLeague
from ludus.league.workers import MatchWorker
from ludus.learn.policies.policy import Policy
from ludus.workers.server import WorkerServer

from .games import SMALL


class Called:
    """Calls to a service of this process, as those of a `Remote`."""

    def __init__(self, service: Any) -> None:
        self._service = service

    def submit(self, command: str, *args: Any) -> Any:
        found = getattr(self._service, command)(*args)
        return type("Answered", (), {"result": lambda self: found})()


@contextlib.contextmanager
def simulator(folder: Path, **settings: Any) -> Iterator[tuple[MatchWorker, TrialLeague]]:
    """Of a league of one learner, two of its snapshots and a bot."""
    config = configs.resolve("matrix:rps", {**SMALL, "bots": ("random",), "simulators": 1, **settings}, algorithm="ppo")
    policy = Policy(wiring.make_policy_spec(config.training, envs.spec("matrix:rps")))
    with (
        contextlib.closing(TrialLeague(config, folder)) as service,
        contextlib.closing(open_pool(config, folder)) as pool,
        WorkerServer("simulator/0", experiment="e", trial="t", names=MemoryNames()) as server,
    ):
        pool.put("main", policy.weights(), number=1)
        for _ in range(2):
            service.snapshot("main", 1)
        worker = MatchWorker(server, config, folder, Called(service))  # type: ignore[arg-type]
        worker._start()
        try:
            worker.collect("main", policy.weights(), 1)
            yield worker, service
        finally:
            worker._exit()


def poll(worker: MatchWorker, num: int) -> None:
    for _ in range(num):
        worker._poll()


def test_evaluations_of_psro_go_on_until_its_mixture_lacks_none_however_little_was_played(tmp_path: Path) -> None:
    with simulator(tmp_path, rules="psro", evaluation_games=300) as (worker, service):
        assert service.num_missing_evaluations() == 900
        poll(worker, 20)
        assert service.num_missing_evaluations() == 0
        num_games = service.league.num_games
        poll(worker, 3)
        assert service.league.num_games == num_games


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_other_evaluations_have_their_share_of_the_games(tmp_path: Path, share: float) -> None:
    with simulator(tmp_path, evaluation_share=share, main_exploiters=0, league_exploiters=0) as (worker, service):
        before = service.league.num_games
        poll(worker, 8)
        evaluated = service.league.num_games - before
        assert (evaluated > 0) == (share > 0.0)
        poll(worker, 8)
        assert service.league.num_games == before + evaluated, "no more than that"
