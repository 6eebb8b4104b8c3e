from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import errors
from ludus.discovery.memory import MemoryNames
from ludus.models.service import ModelService
from ludus.rpc.deferred import Deferred
from ludus.workers.server import WorkerServer

from .nets import expected, images, make, net, weights_of


def serve(folder: Path, **options: Any) -> ModelService:
    """A service whose turns are taken by the test."""
    server = WorkerServer("model-net/0", experiment="e", trial="t", names=MemoryNames())
    service = ModelService(server, folder, "net", **options)
    service.configure()
    return service


def outcome(answer: Deferred) -> Any:
    found: list[Any] = []
    answer.bind(lambda value, error: found.append(error if error is not None else value))
    assert found, "not answered yet"
    return found[0]


def test_callers_share_a_batch_and_get_their_own_rows_by_their_own_version(tmp_path: Path) -> None:
    _, store = make(tmp_path / "models", 10, 11)
    store.tag("net", "champion", 0)
    service = serve(tmp_path)
    asked = [(0, 3), (1, 1), ("latest", 4), ("champion", 2)]
    rows = [images(count, seed) for seed, (_, count) in enumerate(asked)]
    answers = [service.forward(version, (row,), {}) for (version, _), row in zip(asked, rows, strict=True)]
    assert service._poll() == 10
    for seed, row, answer in zip((10, 11, 11, 10), rows, answers, strict=True):
        for output, wanted in zip(outcome(answer)["outputs"], expected(seed, row), strict=True):
            np.testing.assert_allclose(output, wanted, atol=1e-5)
    assert service.kernel.stats().num_batches == 2
    assert service._stats()["mean_batch_rows"] == 5.0
    assert service._poll() == 0


def test_what_the_model_cannot_take_is_refused_alone(tmp_path: Path) -> None:
    make(tmp_path / "models", 1)
    service = serve(tmp_path)
    good = service.forward(0, (images(2),), {})
    for bad in (images(2).astype(np.float32), images(2)[:, :1], images(0), "text", None):
        with pytest.raises(errors.DataError):
            service.forward(0, (bad,), {})
    nobody, gone = service.forward("nobody", (images(2),), {}), service.forward(7, (images(2),), {})
    service._poll()
    assert isinstance(outcome(nobody), errors.DataError)
    assert "no version 'nobody'" in str(outcome(nobody))
    assert outcome(good)["outputs"][0].shape == (2, 3)
    assert isinstance(outcome(gone), errors.DataError)


def test_a_version_can_be_made_ready_before_it_is_asked_for(tmp_path: Path) -> None:
    _, store = make(tmp_path / "models", 1)
    service = serve(tmp_path)
    store.publish("net", weights_of(net(2)), number=1)
    service.load(1)
    assert service.kernel.stats().versions == (1,)
    with pytest.raises(errors.DataError, match="no version 9"):
        service.load(9)


def test_what_is_not_run_when_it_ends_is_reported(tmp_path: Path) -> None:
    make(tmp_path / "models", 1)
    service = serve(tmp_path)
    answer = service.forward(0, (images(1),), {})
    service._exit()
    assert isinstance(outcome(answer), errors.Unreachable)


def test_its_own_settings_come_before_the_models(tmp_path: Path) -> None:
    make(tmp_path / "models", 1, max_batch=100, backend="onnx")
    service = serve(tmp_path, max_batch=2)
    for _ in range(3):
        service.forward(0, (images(1),), {})
    assert [service._poll() for _ in range(3)] == [2, 1, 0]
    assert service.verification()["chosen"] == "onnx"


def test_a_model_that_cannot_run_tells_every_caller_why_until_it_can(tmp_path: Path) -> None:
    folder, _ = make(tmp_path / "models", 1)
    aside = folder.path.rename(tmp_path / "aside")
    service = serve(tmp_path)
    assert service._poll() == 0
    for _ in range(2):
        with pytest.raises(errors.DataError, match="the definition of model 'net' cannot be loaded here"):
            service.forward(0, (images(1),), {})
    assert service._stats() == {}
    aside.rename(folder.path)
    service._try_again = 0.0
    assert service._poll() == 0
    answer = service.forward(0, (images(1),), {})
    assert service._poll() == 1
    assert outcome(answer)["outputs"][0].shape == (1, 3)
