"""What one process knows of a named model, and that it is of the model that is there now."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from ludus import errors
from ludus.models import registry
from ludus.models.definition import ModelFolder
from ludus.models.registry import NamedModel
from ludus.models.settings import ModelSettings

from .nets import IMAGE, Outcomes, make, net, weights_of


def of(folder: Path, **settings: object) -> NamedModel:
    make(folder, 1, **settings)  # type: ignore[arg-type]
    return NamedModel(ModelFolder(folder, "net"))


def publish(model: NamedModel, count: int, settings: ModelSettings | None = None) -> list[int]:
    return [model.publish(weights_of(net(1)), settings=settings).number for _ in range(count)]


def test_a_folder_that_was_made_again_has_a_model_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    make(folder, 1)
    first = registry.find(folder, "net")
    assert registry.find(folder, "net") is first
    kernel = first.kernel(first.settings)
    publish(first, 3)
    shutil.rmtree(folder)
    make(folder, 2)
    again = registry.find(folder, "net")
    assert again is not first
    assert (first.is_closed, kernel.is_closed, again.store.latest("net"), publish(again, 1)) == (True, True, 0, [1])
    registry.forget(folder)


def test_what_runs_the_models_of_a_folder_ends_when_it_is_forgotten(tmp_path: Path) -> None:
    make(tmp_path / "a", 1)
    make(tmp_path / "b", 1)
    mine, other = registry.find(tmp_path / "a", "net"), registry.find(tmp_path / "b", "net")
    before = set(threading.enumerate())
    kernel, outcomes = mine.kernel(ModelSettings(num_threads=2)), Outcomes()
    kernel.wait_ready(30.0)
    number = mine.holds.hold("latest")
    registry.forget(tmp_path / "a")
    assert set(threading.enumerate()) == before
    assert (mine.is_closed, mine.holds.numbers, other.is_closed) == (True, (), False)
    kernel.submit(number, (IMAGE,), {}, outcomes, 0)
    assert isinstance(outcomes.found[0], errors.Unreachable)
    assert not registry.find(tmp_path / "a", "net").is_closed
    for folder in ("a", "b"):
        registry.forget(tmp_path / folder)


def test_publishing_is_by_the_settings_that_are_given(tmp_path: Path) -> None:
    model = of(tmp_path, keep=8)
    publish(model, 5, ModelSettings(keep=2, checkpoint_steps=2))
    assert model.store.tags("net") == {"checkpoint-2": 2, "checkpoint-4": 4}
    assert [version.number for version in model.store.versions("net")] == [2, 4, 5]
    publish(model, 5)
    assert [version.number for version in model.store.versions("net")] == [2, 4, 5, 6, 7, 8, 9, 10]


def test_a_tag_that_cannot_be_one_publishes_nothing(tmp_path: Path) -> None:
    model = of(tmp_path)
    with pytest.raises(errors.DataError, match="cannot be a tag"):
        model.publish(weights_of(net(2)), tag="2 good")
    assert model.store.latest("net") == 0
    assert model.publish(weights_of(net(2)), tag="good").number == 1
    assert model.store.tags("net") == {"good": 1}


@pytest.mark.parametrize("keep", [1, 8])
def test_checkpoints_are_counted_for_all_publishers_together(tmp_path: Path, keep: int) -> None:
    make(tmp_path, 1, checkpoint_steps=5, keep=keep)
    for turn in range(1, 18):
        publisher = NamedModel(ModelFolder(tmp_path, "net")) if turn % 2 else registry.find(tmp_path, "net")
        assert publish(publisher, 1) == [turn]
    assert publisher.store.tags("net") == {f"checkpoint-{number}": number for number in (5, 10, 15)}
    registry.forget(tmp_path)


def test_the_time_of_a_checkpoint_is_anybodys_last(tmp_path: Path) -> None:
    one, other = of(tmp_path, checkpoint_seconds=3600.0), NamedModel(ModelFolder(tmp_path, "net"))
    publish(one, 1)
    assert one.store.tags("net") == {}, "the model is not that old"
    soon = ModelSettings(checkpoint_seconds=0.05)
    until = time.time() + 0.06
    while time.time() < until:
        time.sleep(0.005)
    publish(one, 1, soon)
    assert one.store.tags("net") == {"checkpoint-2": 2}
    publish(other, 2)
    one.store.discard("net", 2)
    publish(other, 1)
    assert one.store.tags("net") == {"checkpoint-2": 2, "checkpoint-5": 5}, "a checkpoint that is gone is none"
