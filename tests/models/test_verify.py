from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ludus import errors
from ludus.models import verify
from ludus.models.backends import BackendUnavailable, Source, prepare
from ludus.models.backends.onnx import OnnxBackend
from ludus.models.definition import Definition, ModelFolder
from ludus.models.kernel import Kernel

from .nets import IMAGE, Nested, Outcomes, expected, images, make, net, weights_of


def run_all(kernel: Kernel, outcomes: Outcomes, count: int) -> None:
    """Until there are so many outcomes; versions are loaded in the background."""
    until = time.monotonic() + 30
    while len(outcomes.found) < count:
        assert time.monotonic() < until, "no outcome"
        kernel.run_pending(0.05)


SOURCE = Source(module=net(1).eval(), args=(IMAGE[None],), kwargs={})


@pytest.mark.parametrize("name", ["eager", "onnx"])
def test_one_preparation_serves_all_versions(name: str) -> None:
    backend = prepare(name, SOURCE)
    handles = {seed: backend.load(weights_of(net(seed))) for seed in (1, 2, 3)}
    for count in (1, 5, 64):
        rows = images(count, seed=count)
        for seed, handle in handles.items():
            found = backend.run(handle, (rows,), {})
            for output, wanted in zip(found, expected(seed, rows), strict=True):
                np.testing.assert_allclose(output, wanted, atol=1e-4, rtol=1e-4)


def test_weights_that_are_alike_at_the_export_may_differ_later() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
    for part in (module[0], module[2]):
        torch.nn.init.zeros_(part.bias)
        torch.nn.init.eye_(part.weight)
    x = np.ones((1, 3), np.float32)
    backend = prepare("onnx", Source(module=module, args=(x,), kwargs={}))
    weights = {name: array.copy() for name, array in weights_of(module).items()}
    weights["2.bias"][:] = 5.0
    weights["0.weight"] *= 2.0
    np.testing.assert_allclose(backend.run(backend.load(weights), (x,), {}), [[7.0] * 3])


def test_onnx_runs_nests_shared_weights_and_nothing_at_all() -> None:
    row = {"place": np.ones((1, 4), np.float32), "goal": np.zeros((1, 4), np.float32)}
    mask = np.array([[True, False, True, True]])
    module = Nested()
    source = Source(module=module, args=(row,), kwargs={"mask": mask})
    backend, verification = verify.choose("onnx", source, weights_of(module), tolerance=1e-5, num_threads=1)
    assert (backend.name, verification.chosen, verification.reports[0].num_rows) == ("onnx", "onnx", 20)
    assert {error.path for error in verification.reports[0].outputs} == {"logits", "rest/0", "rest/1"}
    assert backend.run(backend.load(weights_of(module)), (row,), {"mask": mask})["none"] is None


def test_int8_is_held_to_its_tolerance_and_refused_with_the_error_of_each_output(
    caplog: pytest.LogCaptureFixture,
) -> None:
    weights = weights_of(net(1))
    with caplog.at_level(logging.WARNING):
        backend, verification = verify.choose("int8", SOURCE, weights, tolerance=1e-6, num_threads=1)
    assert (backend.name, verification.chosen, verification.asked) == ("eager", "eager", "int8")
    report = verification.reports[0]
    assert not report.is_verified
    assert [error.path for error in report.outputs] == ["0", "1"]
    assert report.outputs[0].max_abs > 1e-6
    assert "0 is off by" in report.reason
    assert "more than the tolerance 1e-06" in caplog.text
    backend, verification = verify.choose("int8", SOURCE, weights, tolerance=0.2, num_threads=1)
    assert (backend.name, verification.chosen) == ("int8", "int8")
    again = verify.Verification.from_nest(verification.to_nest())
    assert again == verification


def test_auto_takes_the_fastest_that_verifies_and_says_so() -> None:
    backend, verification = verify.choose("auto", SOURCE, weights_of(net(1)), tolerance=1e-4, num_threads=1)
    rates = {report.backend: report.rows_per_s for report in verification.reports if report.is_verified}
    assert set(rates) >= {"eager", "onnx"}
    assert backend.name == verification.chosen == max(rates, key=lambda name: rates[name])
    assert "rows/s" in str(verification)


def test_what_cannot_be_exported_runs_eagerly_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    class Unexportable(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvalsh(x)

    x = np.eye(3, dtype=np.float32)[None]
    backend, verification = verify.choose(
        "onnx", Source(module=Unexportable(), args=(x,)), {}, tolerance=1e-4, num_threads=1
    )
    assert backend.name == "eager"
    assert "cannot be exported" in verification.reports[0].reason
    assert "eager is" in caplog.text


def test_backends_need_an_example_and_compile_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnx", "int8", "compile"):
        with pytest.raises(BackendUnavailable, match="forward_args"):
            prepare(name, Source(module=net(1)))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BackendUnavailable, match="no-such-compiler"):
        prepare("compile", SOURCE)


def test_a_backend_that_answers_with_another_shape_is_refused() -> None:
    class Off:
        name = "off"

        def load(self, weights: object) -> object:
            return None

        def run(self, handle: object, args: tuple, kwargs: dict) -> object:
            return np.zeros((len(args[0]), 4), np.float32), np.zeros(len(args[0]), np.float32)

    eager = prepare("eager", SOURCE)
    reference = eager, eager.load(weights_of(net(1)))
    report = verify.compare(reference, (Off(), None), verify.example_calls((IMAGE[None],), {}), tolerance=1.0)
    assert not report.is_verified
    assert "float32[1, 4] where eager's is float32[1, 3]" in report.reason


def test_the_export_is_made_once_for_all_processes_of_a_trial(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 1, backend="onnx")
    Kernel.of(folder).prepare()
    before = folder.onnx_path.stat().st_mtime_ns
    kernel = Kernel.of(folder)
    assert kernel.prepare().chosen == "onnx"
    assert folder.onnx_path.stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.sha256"])
@pytest.mark.parametrize("damage", [lambda _: b"", lambda c: c[: len(c) // 2], lambda c: c[:-9] + b"damaged!" + c[-1:]])
def test_an_export_that_was_damaged_is_noticed_and_made_again(
    name: str, damage: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = make(tmp_path, 1, backend="onnx")
    Kernel.of(folder).prepare()
    path = folder.onnx_path.with_name(name)
    intact = path.read_bytes()
    path.write_bytes(damage(intact))
    assert Kernel.of(folder).prepare().chosen == "onnx"
    assert "model.onnx is damaged, or its checksum is: the module is exported again" in caplog.text
    assert path.read_bytes() == intact


def test_a_version_that_a_backend_runs_too_far_from_eager_is_run_by_eager(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Branching(torch.nn.Module):
        """An export follows one branch; which is right depends on the weights."""

        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.gain if bool(self.gain > 0) else x - 10.0

    folder = ModelFolder(tmp_path, "branching")
    folder.create(
        Definition(module=Branching(), forward_args=(np.ones(2, np.float32),)), {"backend": "onnx", "keep": 9}
    )
    kernel, outcomes = Kernel.of(folder), Outcomes()
    assert kernel.prepare().chosen == "onnx"
    kernel._store.publish("branching", {"gain": np.array([-1.0], np.float32)}, number=1)
    for number in (0, 1):
        kernel.submit(number, (np.ones(2, np.float32),), {}, outcomes, number)
    run_all(kernel, outcomes, 2)
    assert [outcomes.found[number].tolist() for number in (0, 1)] == [[1.0, 1.0], [-9.0, -9.0]]
    assert kernel.stats().num_refused_versions == 1
    assert "version 1 of branching is run by eager" in caplog.text


def test_what_was_seen_is_what_it_is_verified_on_later(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 1, backend="onnx")
    kernel, outcomes = Kernel.of(folder), Outcomes()
    first = kernel.prepare()
    for index, row in enumerate(images(100)):
        kernel.submit(0, (row,), {}, outcomes, index)
        run_all(kernel, outcomes, index + 1)
    again = kernel.prepare()
    assert (first.reports[0].num_rows, again.reports[0].num_rows) == (20, 84)
    assert again.chosen == "onnx"


def test_calls_by_a_version_that_is_ready_do_not_wait_for_one_that_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = make(tmp_path, 1, 2, backend="onnx")
    woken = threading.Event()
    kernel, outcomes = Kernel.of(folder, wake=woken.set), Outcomes()
    kernel.prepare()
    kernel.load(0)
    may_load = threading.Event()
    load = OnnxBackend.load

    def slow(self: OnnxBackend, weights: dict) -> object:
        assert may_load.wait(30)
        return load(self, weights)

    monkeypatch.setattr(OnnxBackend, "load", slow)
    kernel.submit(1, (IMAGE,), {}, outcomes, "one")
    kernel.submit(0, (IMAGE,), {}, outcomes, "zero")
    kernel.submit(7, (IMAGE,), {}, outcomes, "none")
    kernel.run_pending()
    kernel.submit(1, (IMAGE,), {}, outcomes, "another")
    kernel.run_pending()
    assert set(outcomes.found) == {"zero"}
    assert kernel.stats().num_pending == 3
    may_load.set()
    assert woken.wait(30)
    run_all(kernel, outcomes, 4)
    np.testing.assert_allclose(outcomes.found["one"][0], expected(2, IMAGE[None])[0][0], atol=1e-4)
    np.testing.assert_allclose(outcomes.found["another"][0], outcomes.found["one"][0])
    assert "no version 7" in str(outcomes.found["none"])
    kernel.close()


def test_waiters_for_a_version_are_notified_when_the_kernel_is_closed(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 1, backend="onnx")
    kernel, outcomes = Kernel.of(folder), Outcomes()
    kernel.prepare()
    kernel.submit(0, (IMAGE,), {}, outcomes, "asked")
    kernel.run_pending()
    kernel.close()
    assert isinstance(outcomes.found["asked"], errors.Unreachable | tuple)


def test_what_a_runtime_has_no_kernels_for_is_run_by_eager_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = torch.nn.Conv1d(2, 2, 1).double()
    x = np.ones((1, 2, 4))
    source = Source(module=module, args=(x,), kwargs={})
    for asked in ("onnx", "auto"):
        with caplog.at_level(logging.INFO):
            backend, verification = verify.choose(asked, source, weights_of(module), tolerance=1e-6, num_threads=1)
        assert (backend.name, verification.chosen) == ("eager", "eager")
        assert "it cannot run this module: NotImplemented" in str(verification)
    assert "the backend onnx is not used, eager is: it cannot run this module" in caplog.text


@pytest.mark.parametrize("asked", ["onnx", "int8", "auto"])
def test_linear_layers_of_other_floats_are_not_quantised(asked: str) -> None:
    module = torch.nn.Linear(4, 2).double()
    source = Source(module=module, args=(np.ones((1, 4)),), kwargs={})
    backend, verification = verify.choose(asked, source, weights_of(module), tolerance=1e-6, num_threads=1)
    assert backend.name != "int8"
    for report in verification.reports:
        assert report.is_verified == (report.backend != "int8")
        assert report.is_verified or "int8 is for linear layers of float32" in report.reason


def test_a_version_that_its_backend_cannot_load_is_run_by_eager(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = make(tmp_path, 1, 2, backend="onnx", tolerance=1e-3)
    kernel, outcomes = Kernel.of(folder), Outcomes()
    assert kernel.prepare().chosen == "onnx"

    def fail(*_given: object) -> None:
        raise RuntimeError("out of sessions")

    monkeypatch.setattr(OnnxBackend, "load", fail)
    kernel.submit(1, (IMAGE,), {}, outcomes, 0)
    run_all(kernel, outcomes, 1)
    np.testing.assert_allclose(outcomes.found[0][0], expected(2, IMAGE[None])[0][0], atol=1e-4)
    assert kernel.stats().num_refused_versions == 1
    assert (
        "version 1 of net is run by eager, not by onnx: it cannot run this module: RuntimeError: out of" in caplog.text
    )
