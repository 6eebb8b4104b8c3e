from __future__ import annotations

import asyncio
import functools
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

from ludus import errors, launch
from ludus.gateway import session as sessions
from ludus.gateway.session import Session
from ludus.models.service import ModelService
from ludus.program import Program, RestartPolicy
from ludus.trial.named import model as models
from ludus.trial.named.model import RemoteModel, get_torch_model_weights
from ludus.workers.remote import Remote

IMAGE = np.arange(2 * 6 * 6, dtype=np.uint8).reshape(2, 6, 6)


class Net(torch.nn.Module):
    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3)
        self.hidden = torch.nn.Linear(64, hidden)
        self.policy = torch.nn.Linear(hidden, 3)
        self.value = torch.nn.Linear(hidden, 1)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        if image.dtype == torch.uint8 and bool((image == 255).all(-1).all(-1).any()):
            raise ArithmeticError("a white image")
        x = torch.relu(self.hidden(torch.relu(self.conv(image / 255.0)).flatten(1)))
        return {"logits": self.policy(x), "value": self.value(x).squeeze(1)}


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file


def net(number: int) -> Net:
    module = Net()
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.5)
    return module


eager = functools.cache(net)


def expected(number: int, row: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        logits: np.ndarray = eager(number)(torch.from_numpy(row[None]))["logits"][0].numpy()
    return logits


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 250, (count, 2, 6, 6), np.uint8)


class OwnTrial:
    """A trial whose models' workers are programs of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: dict[str, launch.Run] = {}
        self._kept: dict[str, Any] = {}
        self._before_close: list[Callable[[], None]] = []

    def remote(self, node: str) -> Remote:
        return self.runs[node].remote(node)

    def ask_driver(self, command: str, *args: Any, **kwargs: Any) -> Any:
        assert command == "start_model"
        name, num_workers, max_batch, num_threads = args
        if f"model-{name}" in self.runs:
            return
        program = Program("ludus")
        program.add(
            f"model-{name}",
            ModelService,
            self.folder,
            name,
            max_batch=max_batch,
            num_threads=num_threads,
            replicas=num_workers,
            restarts=RestartPolicy(backoff_s=0.05),
        )
        self.runs[f"model-{name}"] = launch.local(program, project=self.folder / "runs")

    def keep(self, key: str, make: Callable[[], Any]) -> Any:
        return self._kept[key] if key in self._kept else self._kept.setdefault(key, make())

    def before_close(self, callback: Callable[[], None]) -> None:
        self._before_close.append(callback)

    def pids(self, name: str) -> list[int]:
        return [worker.pid for worker in self.runs[f"model-{name}"].workers() if worker.pid is not None]

    def close(self) -> None:
        for callback in self._before_close:
            callback()
        for run in self.runs.values():
            run.stop()


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnTrial]:
    own = OwnTrial(tmp_path / "trial")
    monkeypatch.setattr(models.trials, "current", lambda: own)
    yield own
    own.close()


def wait_until(is_so: Callable[[], Any], timeout_s: float = 30.0) -> None:
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.01)


def in_session(session: Session | None, call: Callable[[], Any]) -> Any:
    """`await call()` as the gateway would for a session."""

    async def run() -> Any:
        token = sessions.current.set(session)
        try:
            return await call()
        finally:
            sessions.current.reset(token)

    return run()


def forward(model: RemoteModel, row: np.ndarray = IMAGE, session: Session | None = None) -> Any:
    async def run() -> Any:
        return await asyncio.wait_for(in_session(session, lambda: model.forward(row)), 30)

    return asyncio.run(run())


# ---- names


def test_a_model_is_found_by_its_name_and_called_without_the_batch_axis(trial: OwnTrial) -> None:
    RemoteModel("net", net(0), (IMAGE,), local_mode=True)
    answer = forward(RemoteModel("net"))
    assert set(answer) == {"logits", "value"}
    assert (answer["logits"].shape, answer["value"].shape) == ((3,), ())
    np.testing.assert_allclose(answer["logits"], expected(0, IMAGE), atol=1e-5)


def test_a_name_that_is_not_there_is_answered_with_the_nearest(
    trial: OwnTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    RemoteModel("atari_model", net(0), local_mode=True)
    monkeypatch.setattr(models, "_APPEARS_WITHIN_S", 0.1)
    with pytest.raises(errors.NameTimeout, match="Did you mean 'atari_model'"):
        RemoteModel("atari_modle")


def test_a_name_that_is_made_later_is_waited_for(trial: OwnTrial) -> None:
    maker = threading.Timer(0.3, lambda: RemoteModel("net", net(0), local_mode=True))
    maker.start()
    assert RemoteModel("net").step == 0
    maker.join()


def test_all_handles_of_a_process_share_what_runs_it(trial: OwnTrial) -> None:
    RemoteModel("net", net(0), (IMAGE,), local_mode=True)
    began = time.perf_counter()
    handles = [RemoteModel("net") for _ in range(200)]
    assert time.perf_counter() - began < 10.0
    for handle in handles[:3]:
        forward(handle)
    assert len({id(handle._runner) for handle in handles[:3]}) == 1
    assert handles[0].statistics()["num_calls"] == 3


def test_a_handle_travels_by_its_name(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0), local_mode=True)
    found = pickle.loads(cloudpickle.dumps(model))  # noqa: S301
    assert (found.name, found.settings.local_mode, found.step) == ("net", True, 0)


def test_mistakes_are_reported_at_once(trial: OwnTrial) -> None:
    with pytest.raises(errors.ConfigError, match="Did you mean 'onnx'"):
        RemoteModel("net", net(0), backend="onxx")
    with pytest.raises(errors.ConfigError, match=r"write \(x,\)"):
        RemoteModel("net", net(0), IMAGE)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match=r"torch\.nn\.Module"):
        RemoteModel("net", {"w": 1})  # type: ignore[arg-type]
    RemoteModel("net", net(0), local_mode=True)
    with pytest.raises(errors.DataError, match="another architecture"):
        RemoteModel("net", Net(hidden=8))


# ---- versions


def test_weights_are_published_got_and_tagged(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0).train(), (IMAGE,), local_mode=True, keep=2)
    assert model.publish_weights(get_torch_model_weights(net(1)), tag="champion") == 1
    assert [model.publish_weights(net(number)) for number in (2, 3, 4)] == [2, 3, 4]
    assert model.step == RemoteModel("net").step == 4
    assert (model.tags(), [version.number for version in model.versions()]) == ({"champion": 1}, [1, 3, 4])
    own = model.get_model("champion")
    assert own.training
    assert torch.equal(own.policy.bias, net(1).policy.bias)
    assert model.get_model() is not model.get_model()
    model.tag("best")
    assert model.tags()["best"] == 4
    np.testing.assert_allclose(forward(model)["logits"], expected(4, IMAGE), atol=1e-5)
    with pytest.raises(errors.DataError, match="another architecture"):
        model.publish_weights(Net(hidden=8))


def test_a_clone_with_a_name_begins_with_a_versions_weights_and_goes_its_own_way(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0), (IMAGE,), local_mode=True)
    model.publish_weights(net(1))
    clone = model.clone(name="net-1")
    assert (clone.name, clone.step, clone.settings.local_mode) == ("net-1", 0, True)
    model.publish_weights(net(2))
    np.testing.assert_allclose(forward(clone)["logits"], expected(1, IMAGE), atol=1e-5)
    assert clone.publish_weights(net(5)) == 1
    assert model.clone(1, name="net-1").step == 1, "it is there already"
    model.tag("champion", 0)
    assert model.clone("champion", name="old").name == "old"
    with pytest.raises(errors.DataError, match="did not begin with version 2"):
        model.clone(2, name="old")


def test_checkpoints_are_tagged_by_steps_and_by_seconds(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0), local_mode=True, checkpoint_steps=3, keep=1)
    for number in range(1, 8):
        model.publish_weights(net(number))
    assert model.tags() == {"checkpoint-3": 3, "checkpoint-6": 6}
    assert [version.number for version in model.versions()] == [3, 6, 7]
    timed = RemoteModel("timed", net(0), local_mode=True, checkpoint_seconds=0.05)
    time.sleep(0.06)
    timed.publish_weights(net(1))
    assert timed.tags() == {"checkpoint-1": 1}
    seldom = RemoteModel("seldom", net(0), local_mode=True, checkpoint_seconds=3600.0)
    seldom.publish_weights(net(1))
    assert seldom.tags() == {}


def test_a_backend_is_verified_and_said(trial: OwnTrial) -> None:
    model = RemoteModel("net", torch.nn.Linear(4, 2), (np.ones(4, np.float32),), local_mode=True, backend="onnx")
    assert model.backend == "onnx"
    assert model.verification.reports[0].is_verified
    assert forward(model, np.ones(4, np.float32)).shape == (2,)
    assert model.verify().reports[0].num_rows == 21
    refused = RemoteModel("net", backend="int8", tolerance=1e-9)
    assert refused.backend == "eager"
    assert "more than the tolerance" in refused.verification.reports[0].reason


# ---- sessions


def test_a_session_plays_one_version_to_its_end_and_lets_it_go(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0), (IMAGE,), local_mode=True, keep=1)
    session, later = Session("a"), Session("b")
    forward(model, session=session)
    for number in (1, 2, 3):
        model.publish_weights(net(number))
    np.testing.assert_allclose(forward(model, session=session)["logits"], expected(0, IMAGE), atol=1e-5)
    np.testing.assert_allclose(forward(model, session=later)["logits"], expected(3, IMAGE), atol=1e-5)
    assert (session.versions, later.versions) == ({"net": 0}, {"net": 3})
    assert [version.number for version in model.versions()] == [0, 3]
    session.run_done_callbacks()
    model.publish_weights(net(4))
    assert [version.number for version in model.versions()] == [3, 4]


def test_a_session_plays_what_its_game_asked_for(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0), (IMAGE,), local_mode=True)
    model.publish_weights(net(1), tag="champion")
    model.publish_weights(net(2))
    for wanted, number in (("0", 0), ("champion", 1), ("latest", 2)):
        session = Session("s", wants={"net": wanted})
        np.testing.assert_allclose(forward(model, session=session)["logits"], expected(number, IMAGE), atol=1e-5)
        assert session.versions == {"net": number}
    follows = Session("f", wants={"": "follow"})
    for number in (3, 4):
        model.publish_weights(net(number))
        np.testing.assert_allclose(forward(model, session=follows)["logits"], expected(number, IMAGE), atol=1e-5)
        assert follows.versions == {"net": number}
    with pytest.raises(errors.DataError, match="no version 'nobody'"):
        forward(model, session=Session("n", wants={"net": "nobody"}))


@pytest.mark.parametrize(("backend", "num_threads"), [("eager", 1), ("eager", 3), ("onnx", 2)])
def test_answers_are_their_versions_own_while_others_are_published(
    trial: OwnTrial, backend: str, num_threads: int
) -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(72, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))

    def version(number: int) -> torch.nn.Module:
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for tensor in module.parameters():
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.3)
        return module

    rows = np.random.default_rng(0).standard_normal((64, 2, 6, 6)).astype(np.float32)
    model = RemoteModel(
        "mlp", version(0), (rows[0],), local_mode=True, backend=backend, num_threads=num_threads, keep=2
    )
    done = threading.Event()
    published = [get_torch_model_weights(version(0))]

    def publish() -> None:
        while not done.wait(0.02):
            published.append(get_torch_model_weights(version(len(published))))
            assert model.publish_weights(published[-1]) == len(published) - 1

    found: list[tuple[int, int, np.ndarray]] = []

    async def caller(index: int) -> None:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            session = Session(f"{index}")
            numbers = set()
            for _ in range(20):
                answer = await in_session(session, lambda: model.forward(rows[index]))
                numbers.add(session.versions["mlp"])
                found.append((session.versions["mlp"], index, answer))
                await asyncio.sleep(0)
            assert len(numbers) == 1
            session.run_done_callbacks()

    async def run() -> None:
        await asyncio.wait_for(asyncio.gather(*[caller(index) for index in range(64)]), 60)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        asyncio.run(run())
    finally:
        done.set()
        publisher.join()
    assert len({number for number, _, _ in found}) > 5
    by_version: dict[int, list[tuple[int, np.ndarray]]] = {}
    for number, index, answer in found:
        by_version.setdefault(number, []).append((index, answer))
    alone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(72, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    for number, answers in by_version.items():
        alone.load_state_dict({name: torch.from_numpy(array) for name, array in published[number].items()})
        with torch.inference_mode():
            wanted = alone(torch.from_numpy(rows)).numpy()
        indices = [index for index, _ in answers]
        np.testing.assert_allclose(np.stack([answer for _, answer in answers]), wanted[indices], atol=1e-5)
    model.publish_weights(published[0])
    assert len(model.versions()) == 2, "no session holds any"


# ---- workers


def test_workers_of_its_own_answer_many_callers(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0), (IMAGE,), num_workers=2, backend="onnx", tolerance=1e-3)
    model.publish_weights(net(1))
    rows = images(300)

    async def run() -> list[Any]:
        calls = [model.forward(row) for row in rows] + [model.forward_version(0, row) for row in rows[:50]]
        return await asyncio.wait_for(asyncio.gather(*calls), 60)

    answers = asyncio.run(run())
    for row, answer in zip(rows, answers[:300], strict=True):
        np.testing.assert_allclose(answer["logits"], expected(1, row), atol=1e-4, rtol=1e-4)
    for row, answer in zip(rows[:50], answers[300:], strict=True):
        np.testing.assert_allclose(answer["logits"], expected(0, row), atol=1e-4, rtol=1e-4)
    assert answers[0]["value"].shape == ()
    assert model.statistics()["backend"] in ("onnx", "eager")
    assert model.verification.asked == "onnx"


def test_what_is_wrong_with_one_call_is_reported_to_its_caller_only(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0), (IMAGE,))
    white = np.full_like(IMAGE, 255)

    async def run() -> list[Any]:
        rows = [IMAGE, white, IMAGE, IMAGE.astype(np.float32)]
        calls = [model.forward(row) for row in rows]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)

    good, bad, also_good, misshapen = asyncio.run(run())
    np.testing.assert_allclose(good["logits"], also_good["logits"])
    assert isinstance(bad, ArithmeticError)
    assert "a white image" in str(bad)
    assert isinstance(misshapen, errors.SpecError)


def test_calls_that_a_killed_worker_had_are_answered_by_its_successor(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0), (IMAGE,), keep=1)
    rows = images(32)
    answered: list[bool] = []
    killed = threading.Event()
    session = Session("s")
    forward(model, session=session)
    for number in range(1, 4):
        model.publish_weights(net(number))

    async def caller(index: int) -> None:
        num_after = 0
        while num_after < 10:
            num_after += killed.is_set()
            answer = await in_session(session, lambda: model.forward(rows[index]))
            answered.append(bool(np.allclose(answer["logits"], expected(0, rows[index]), atol=1e-4)))

    async def run() -> None:
        callers = [asyncio.ensure_future(caller(index)) for index in range(32)]
        await asyncio.to_thread(wait_until, lambda: len(answered) > 100)
        (pid,) = trial.pids("net")
        os.kill(pid, signal.SIGKILL)
        killed.set()
        await asyncio.wait_for(asyncio.gather(*callers), 30)

    asyncio.run(run())
    assert all(answered)
    assert session.versions == {"net": 0}


def test_without_workers_a_call_ends_with_its_time(trial: OwnTrial) -> None:
    model = RemoteModel("net", net(0), (IMAGE,), timeout_s=2.0)
    forward_once = forward(RemoteModel("net"))
    assert forward_once["logits"].shape == (3,)
    trial.runs["model-net"].stop()
    model.close()
    began = time.monotonic()
    with pytest.raises(errors.LudusError):
        forward(model)
    assert time.monotonic() - began < 10
