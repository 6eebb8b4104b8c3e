"""Models of real trials: how they end with the trial, and begin again."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import sys
import threading
import time
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus import errors, fake
from ludus.trial import current as trials
from ludus.trial.named.model import RemoteModel

ROW = np.ones(4, np.float32)


def forward(model: Any, row: Any = ROW) -> Any:
    async def run() -> Any:
        return await asyncio.wait_for(model.forward(row), 20.0)

    return asyncio.run(run())


def test_a_trial_that_was_deleted_begins_again_with_another_model(tmp_path: Path) -> None:
    for width in (2, 2, 5):
        before = set(threading.enumerate())
        with ludus.init(tmp_path, "again"):
            model = RemoteModel("net", torch.nn.Linear(4, width), (ROW,), local_mode=True)
            net = model.get_model()
            assert [model.publish_weights(net) for _ in range(3)] == [1, 2, 3]
            assert [version.number for version in model.versions()] == [0, 1, 2, 3]
            assert forward(model).shape == (width,)
        left = [thread.name for thread in set(threading.enumerate()) - before]
        assert not [name for name in left if name.startswith("model-")]
        shutil.rmtree(tmp_path / "again")


def test_a_clone_has_the_settings_of_the_handle_that_it_is_made_by(trial: trials.Trial) -> None:
    RemoteModel("net", torch.nn.Linear(4, 2), (ROW,))
    mine = RemoteModel("net", local_mode=True, keep=3, checkpoint_steps=2)
    clone = mine.clone(name="copy")
    assert clone.settings == mine.settings
    for _ in range(5):
        mine.publish_weights(mine.get_model())
    assert mine.tags() == {"checkpoint-2": 2, "checkpoint-4": 4}
    assert [version.number for version in mine.versions()] == [2, 3, 4, 5]


def test_a_handle_that_a_child_was_forked_with_works_there(trial: trials.Trial) -> None:
    model = RemoteModel("net", torch.nn.Linear(4, 2), (ROW,), local_mode=True)
    wanted = forward(model)
    hold = model._named.holds.hold("latest")
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what this is about
        pid = os.fork()
    if not pid:
        try:
            os.write(writing, forward(model).tobytes())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        assert select.select([reading], [], [], 15.0)[0], "the child never answered"
        np.testing.assert_array_equal(np.frombuffer(os.read(reading, 100), np.float32), wanted)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(reading)
    np.testing.assert_array_equal(forward(model), wanted)
    assert model._named.holds.numbers == (hold,)


def test_workers_that_cannot_load_a_model_say_so_at_once(trial: trials.Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("only_in_this_process")
    exec("import torch\nclass Net(torch.nn.Linear):\n    pass", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    model = RemoteModel("net", module.Net(4, 2), (ROW,))
    began = time.monotonic()
    with pytest.raises(errors.DataError, match="cannot be loaded here: ModuleNotFoundError"):
        forward(model)
    assert time.monotonic() - began < 50.0


def test_a_fake_model_has_what_a_real_one_has(trial: trials.Trial) -> None:
    real = RemoteModel("net", torch.nn.Linear(4, 2), (ROW,), local_mode=True)
    double = fake.FakeModel("net", np.zeros(2, np.float32), step=0, module=torch.nn.Linear(4, 2))
    asks_for_backends = {"backend", "verification", "verify"}
    missing = {name for name in dir(RemoteModel) if not name.startswith("_")} - set(dir(double))
    assert missing == asks_for_backends
    for model in (real, double):
        assert [model.publish_weights(model.get_model(), tag=tag) for tag in ("first", None)] == [1, 2]
        model.tag("now")
        assert model.tags() == {"first": 1, "now": 2}
        assert [version.number for version in model.versions()] == [0, 1, 2]
        assert forward(model).shape == (2,)
        assert (model.settings.local_mode, model.statistics()["num_calls"]) == (True, 1)
        for bad in ("follow", "latest", "2 good"):
            with pytest.raises(errors.DataError, match="cannot be a tag"):
                model.tag(bad)
        with pytest.raises(errors.DataError, match="cannot be a tag"):
            model.publish_weights(model.get_model(), tag="2 good")
        with pytest.raises(errors.DataError, match="no version 9"):
            model.tag("ninth", 9)
        assert model.step == 2
        model.close()
    assert set(real.statistics()) == set(double.statistics())
    with pytest.raises(errors.ConfigError, match="has no module"):
        fake.FakeModel().get_model()
