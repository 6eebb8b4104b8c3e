"""Fixed opponents: one version of a model, shared by all who play it."""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus import errors
from ludus.gateway import session as sessions
from ludus.gateway.session import Session
from ludus.models.ready_versions import Holds
from ludus.models.versions.store import VersionStore
from ludus.trial.named import model as models
from ludus.trial.named.clone import ModelClone
from ludus.trial.named.model import RemoteModel

ROW = np.ones(4, np.float32)


class LocalTrial:
    """As much of a trial as a model without workers needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before_close: list[Callable[[], None]] = []
        self._kept: dict[str, Any] = {}

    def keep(self, key: str, make: Callable[[], Any]) -> Any:
        return self._kept[key] if key in self._kept else self._kept.setdefault(key, make())

    def before_close(self, callback: Callable[[], None]) -> None:
        self._before_close.append(callback)

    def close(self) -> None:
        for callback in self._before_close:
            callback()


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalTrial]:
    own = LocalTrial(tmp_path / "trial")
    monkeypatch.setattr(models.trials, "current", lambda: own)
    yield own
    own.close()


def net(value: float, size: int = 4) -> torch.nn.Linear:
    module = torch.nn.Linear(size, size)
    with torch.no_grad():
        module.weight.fill_(value)
        module.bias.fill_(0.0)
    return module


def forward(model: RemoteModel | ModelClone, row: np.ndarray = ROW) -> float:
    return float(asyncio.run(asyncio.wait_for(model.forward(row), 30))[0]) / len(row)


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))


def numbers(model: RemoteModel) -> list[int]:
    return [version.number for version in model.versions()]


def test_a_clone_is_the_newest_version_at_or_before_a_step(trial: LocalTrial) -> None:
    model = RemoteModel("net", net(0), (ROW,), local_mode=True, keep=2)
    for value in (1, 2, 3):
        model.publish_weights(net(value), tag="champion" if value == 1 else None)
    assert numbers(model) == [1, 2, 3]
    assert [model.clone(step).step for step in (1, 2, 3, 1000, -1)] == [1, 2, 3, 3, 3]
    assert [model.clone().step, model.clone("champion").step, model.clone("latest").step] == [3, 1, 3]
    assert [forward(model.clone(step)) for step in (-1, 1, 2)] == [3, 1, 2]
    with pytest.raises(errors.DataError, match=r"no version at or before 0; there are: 1, 2, 3"):
        model.clone(0)
    for wrong in (-2, 1.5, True):
        with pytest.raises(errors.DataError, match="is no step of 'net'"):
            model.clone(wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.DataError, match="no version 'nobody'"):
        model.clone("nobody")


def test_a_clone_never_changes_while_its_model_learns_and_lets_its_version_go(trial: LocalTrial) -> None:
    model = RemoteModel("net", net(0), (ROW,), local_mode=True, keep=1)
    clone, other = model.clone(), model.clone(0)
    for value in (1, 2, 3):
        model.publish_weights(net(value))
    assert (numbers(model), clone.name, repr(clone)) == ([0, 3], "net-0", "ModelClone('net', step=0)")
    assert (forward(clone), forward(model), clone.get_model().weight[0, 0].item()) == (0, 3, 0)
    with pytest.raises(errors.ConfigError, match=r"clone\(0, name='branch'\)"):
        clone.publish_weights(net(9))
    clone.close()
    clone.close()
    model.publish_weights(net(4))
    assert numbers(model) == [0, 4], "another clone plays it"
    del other
    gc.collect()
    model.publish_weights(net(5))
    assert numbers(model) == [5]


def test_a_clone_for_each_session_costs_no_disk_and_one_copy_in_memory(trial: LocalTrial) -> None:
    row = np.ones(512, np.float32)
    model = RemoteModel("net", net(1, 512), (row,), local_mode=True)  # a version is 1 MB
    model.publish_weights(net(2, 512))
    before, files = disk_bytes(trial.folder), sorted(trial.folder.rglob("*"))

    def play(_number: int) -> ModelClone:
        token = sessions.current.set(Session("s"))
        try:
            clone = model.clone(0)
            assert forward(clone, row) == 1
            return clone
        finally:
            sessions.current.reset(token)

    clones = [play(number) for number in range(50)]
    assert (disk_bytes(trial.folder), sorted(trial.folder.rglob("*"))) == (before, files)
    mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(trial.folder) in line]
    copies = [line for line in mapped if line[-1].rpartition("/")[2].startswith("000000000-")]
    assert len({line[4] for line in copies}) <= 1, "one inode, so one copy for all processes of the host"
    assert len(clones) > len(copies), "not one for each session"


def test_a_clone_travels_by_its_number(trial: LocalTrial) -> None:
    model = RemoteModel("net", net(0), (ROW,), local_mode=True, keep=1)
    clone = model.clone()
    model.publish_weights(net(1))
    packed = pickle.dumps(clone)
    assert forward(pickle.loads(packed)) == 0  # noqa: S301
    clone.close()
    gc.collect()
    model.publish_weights(net(2))
    with pytest.raises(errors.DataError, match="no version at or before 0"):
        pickle.loads(packed)  # noqa: S301


def test_a_clone_goes_on_when_its_trial_was_closed_and_opened_again(trial: LocalTrial) -> None:
    model = RemoteModel("net", net(0), (ROW,), local_mode=True, keep=1)
    clone = model.clone()
    trial.close()
    assert forward(clone) == 0
    model.publish_weights(net(1))
    assert forward(clone) == 0, "it holds its version again"


def test_the_garbage_collector_may_release_in_the_middle_of_a_hold(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    store.publish("net", {"w": np.zeros(2)}, number=0)
    holds = Holds(store, "net")
    holds.hold(0)
    with holds._lock:  # another thread, or this one, is in the middle of it
        holds.release_soon(0)
    assert holds.is_held(0)
    holds.hold(0)
    holds.release(0)
    assert not holds.is_held(0)
