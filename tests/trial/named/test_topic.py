"""Topics of a trial: published in one process, heard in another."""

from __future__ import annotations

import contextlib
import queue
from pathlib import Path

import numpy as np
import pytest
import torch

import ludus
from discovery import servers
from ludus import errors
from ludus.models.pools import place
from ludus.models.pools.place import Place
from ludus.models.pools.redis_pool import RedisPool
from ludus.models.topic import Update
from ludus.trial import current as trials

from .drivers import finish, start

PATIENCE_S = 60.0
PUBLISH = """
import sys, ludus, numpy as np
ludus.init(sys.argv[1], "t")
topic = ludus.topic("plan")
for value in range(int(sys.argv[2])):
    topic.publish({"w": np.full(4, value, np.float32)})
"""


def test_what_another_process_publishes_is_heard_here(trial: trials.Trial, tmp_path: Path) -> None:
    given = queue.SimpleQueue[Update]()
    with ludus.subscribe("plan", given.put, max_pending=50):
        finish(start(PUBLISH, tmp_path, 20))
        updates = [given.get(timeout=PATIENCE_S) for _ in range(20)]
    assert [update.number for update in updates] == list(range(20))
    assert [float(update.weights["w"][0]) for update in updates] == [float(value) for value in range(20)]
    assert sum(update.num_missed for update in updates) == 0


def test_a_model_and_its_topic_are_one(trial: trials.Trial) -> None:
    given = queue.SimpleQueue[Update]()
    module = torch.nn.Linear(2, 2)
    model = ludus.RemoteModel("net", module, local_mode=True)
    subscription = ludus.subscribe("net", given.put)
    assert given.get(timeout=PATIENCE_S).number == 0, "late, it begins with the newest"
    model.publish_weights(module)
    assert given.get(timeout=PATIENCE_S).number == 1
    assert ludus.topic("net").publish(module) == 2
    assert (given.get(timeout=PATIENCE_S).number, model.step) == (2, 2)
    with pytest.raises(errors.DataError):
        ludus.topic("net").publish({"another": np.zeros(3)})
    trial.close()
    assert not any(thread.is_alive() for thread in subscription._threads), "the trial's end is its end"


def test_topics_of_a_trial_whose_versions_are_in_redis_are_there(
    trial: trials.Trial, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = servers.free_port()
    url, given = f"redis://127.0.0.1:{port}", queue.SimpleQueue[Update]()
    with (
        servers.running(servers.redis_command(port), port=port, folder=tmp_path),
        contextlib.closing(RedisPool(url, prefix="monday")) as league,
    ):
        league.put("main", {"w": np.zeros(2)}, number=7)
        place.write_place(Path(trial.folder), Place(url, "monday"))
        with ludus.subscribe("main", given.put):
            assert given.get(timeout=PATIENCE_S).number == 7, "what the league has put"
            assert not caplog.records
            assert ludus.topic("main").publish({"w": np.ones(2)}) == league.latest("main") == 8
            assert given.get(timeout=PATIENCE_S).number == 8
        assert ludus.topic("net").publish(torch.nn.Linear(1, 1)) == 0
        assert set(league.get("net")[1]) == {"weight", "bias"}
        for module in (torch.nn.Linear(2, 2), None):
            with pytest.raises(errors.ConfigError, match="neither a RemoteModel nor a clone can run them"):
                ludus.RemoteModel("main", module)
        with ludus.subscribe("own", given.put):
            assert "nobody has published 'own' to RedisPool" in caplog.text
        model = ludus.RemoteModel("own", torch.nn.Linear(2, 2), local_mode=True)
        ludus.subscribe("own", given.put)
        assert (given.get(timeout=PATIENCE_S).number, model.clone().step, league.latest("own")) == (0, 0, None)
        assert not (Path(trial.folder) / "models" / "main").exists()


def test_a_topic_in_a_redis_that_is_gone_says_where_it_was(
    trial: trials.Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_TIMEOUT_S", 0.1)
    url = f"redis://127.0.0.1:{servers.free_port()}"
    place.write_place(Path(trial.folder), Place(url, "monday"))
    for call in (
        lambda: ludus.subscribe("main", print),
        lambda: ludus.topic("main").publish({"w": np.zeros(2)}),
        lambda: ludus.RemoteModel("main"),
    ):
        with pytest.raises(errors.Unreachable, match=f"Redis at {url} gave no answer within 0.1 s"):
            call()
