"""Topics of a trial: published in one process, heard in another."""

from __future__ import annotations

import queue
from pathlib import Path

import numpy as np
import pytest
import torch

import ludus
from ludus import errors
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
