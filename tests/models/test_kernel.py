from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch

from ludus import errors
from ludus.data import nest as nests
from ludus.data.rows import MAX_LAYOUTS
from ludus.models.backends.eager import EagerBackend
from ludus.models.definition import Definition, ModelFolder
from ludus.models.kernel import Kernel
from ludus.models.kernel_threads import KernelThreads, LoopSink
from ludus.models.ready_versions import Holds
from ludus.models.versions.store import VersionStore

from .nets import IMAGE, Nested, Outcomes, expected, images, make, net, weights_of


def kernel_of(folder: ModelFolder, **options) -> Kernel:
    kernel = Kernel.of(folder, **options)
    kernel.prepare()
    return kernel


def agrees(seed: int, row: np.ndarray, outcome: object) -> bool:
    policy, value = expected(seed, row[None])
    assert isinstance(outcome, tuple), outcome
    return bool(np.allclose(outcome[0], policy[0], atol=1e-5) and np.allclose(outcome[1], value[0], atol=1e-5))


def test_what_is_pending_is_run_together_and_each_by_its_own_version(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 10, 11, 12)
    kernel, outcomes, rows = kernel_of(folder), Outcomes(), images(9)
    for i, row in enumerate(rows):
        kernel.submit(i % 3, (row,), {}, outcomes, i)
    assert kernel.run_pending() == 9
    assert all(agrees(10 + i % 3, rows[i], outcomes.found[i]) for i in range(9))
    stats = kernel.stats()
    assert (stats.num_batches, stats.num_rows, outcomes.num_reported) == (3, 9, 3)
    assert (stats.versions, stats.num_pending, stats.mean_batch_rows) == ((0, 1, 2), 0, 3.0)
    assert kernel.run_pending() == 0


def test_answers_stay_what_they_were_when_the_next_batch_runs(tmp_path: Path) -> None:
    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    folder = ModelFolder(tmp_path, "same")
    folder.create(Definition(module=Same()), {})
    kernel, outcomes = kernel_of(folder), Outcomes()
    for i in range(4):
        kernel.submit(0, (np.full(3, i),), {}, outcomes, i)
        kernel.run_pending()
    assert [outcomes.found[i].tolist() for i in range(4)] == [[i] * 3 for i in range(4)]


class Sharing(torch.nn.Module):
    """Outputs that are memory of its weights, of its input, of each other, and rows that are one row."""

    def __init__(self) -> None:
        super().__init__()
        self.log_std = torch.nn.Parameter(torch.zeros(3))
        self.start = torch.zeros(1, 700)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        mean = x * 2
        state = self.start.expand(x.shape[0], 700)
        return {"std": self.log_std.expand_as(x), "same": x, "mean": mean, "twin": mean[:, :2], "state": state}


@pytest.mark.parametrize("backend", ["eager", "onnx"])
@pytest.mark.parametrize("num_calls", [1, 2])
def test_writing_to_an_answer_changes_no_other(tmp_path: Path, backend: str, num_calls: int) -> None:
    row = np.ones(3, np.float32)
    folder = ModelFolder(tmp_path, "sharing")
    folder.create(Definition(module=Sharing(), forward_args=(row,)), {"backend": backend})
    kernel, outcomes = kernel_of(folder), Outcomes()
    assert kernel.stats().backend == backend
    kernel.load(0)
    wanted = {"std": 0.0, "same": 1.0, "mean": 2.0, "twin": 2.0, "state": 0.0}

    def is_right(answer: dict[str, np.ndarray]) -> bool:
        return all(bool((leaf == wanted[name]).all()) for name, leaf in answer.items())

    for turn in range(3):
        for call in range(num_calls):
            kernel.submit(0, (row,), {}, outcomes, (turn, call))
        kernel.run_pending()
        answers = [outcomes.found[turn, call] for call in range(num_calls)]
        for name in wanted:
            assert all(is_right({key: answer[key] for key in list(wanted)}) for answer in answers)
            answers[0][name][:] = 9.0
            assert is_right({key: leaf for key, leaf in answers[0].items() if key != name}), name
            answers[0][name][:] = wanted[name]
        for leaf in answers[0].values():
            leaf[:] = 9.0
        assert all(is_right(answer) for answer in answers[1:])
    assert VersionStore(tmp_path).verify("sharing", 0).number == 0


def test_calls_of_ever_new_shapes_are_answered_and_their_memory_is_let_go(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path, "any")
    folder.create(Definition(module=torch.nn.ReLU()), {})
    kernel, outcomes = kernel_of(folder), Outcomes()
    for size in range(1, 4 * MAX_LAYOUTS):
        for value in (-1.0, 2.0):
            kernel.submit(0, (np.full(size, value),), {}, outcomes, (size, value))
        assert kernel.run_pending() == 2
        assert outcomes.found[size, -1.0].tolist() == [0.0] * size
        assert outcomes.found[size, 2.0].tolist() == [2.0] * size
    assert len(kernel._memory) == MAX_LAYOUTS


def test_a_lane_leaves_the_others_their_share_but_no_crumbs(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 1)
    kernel, outcomes = kernel_of(folder, lanes=2), Outcomes()
    for i, row in enumerate(images(50)):
        kernel.submit(0, (row,), {}, outcomes, i)
    assert [kernel.run_pending() for _ in range(5)] == [25, 13, 12, 0, 0]


def test_several_lanes_answer_each_call_once_and_by_its_own_version(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 10, 11)
    rows = images(30)

    async def ask() -> list[object]:
        loop = asyncio.get_running_loop()
        sink = LoopSink(loop)
        with KernelThreads(Kernel.of(folder, lanes=3)) as thread:
            thread.wait_ready(60.0)
            outcomes: list[object] = []
            for _ in range(10):  # the lanes share each round
                futures = [loop.create_future() for _ in rows]
                for i, row in enumerate(rows):
                    thread.submit(i % 2, (row,), {}, sink, futures[i])
                outcomes += await asyncio.wait_for(asyncio.gather(*futures), 30.0)
            assert thread.kernel.stats().num_rows == 300
            return outcomes

    outcomes = asyncio.run(ask())
    assert all(agrees(10 + i % 2, rows[i], outcomes[turn * 30 + i]) for turn in range(10) for i in range(30))


def test_a_batch_has_no_more_rows_than_allowed_unless_one_call_has(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 1, max_batch=4)
    kernel, outcomes = kernel_of(folder), Outcomes()
    for i in range(6):
        kernel.submit(0, (IMAGE,), {}, outcomes, i)
    kernel.submit_rows(0, (images(3),), {}, outcomes, "three")
    kernel.submit_rows(0, (images(9),), {}, outcomes, "nine")
    assert [kernel.run_pending() for _ in range(5)] == [4, 2, 3, 9, 0]
    assert outcomes.found["nine"][0].shape == (9, 3)


def test_rows_and_single_calls_share_a_batch(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 1)
    kernel, outcomes, rows = kernel_of(folder), Outcomes(), images(6)
    kernel.submit(0, (rows[0],), {}, outcomes, "a")
    kernel.submit_rows(0, (rows[1:5],), {}, outcomes, "b")
    kernel.submit(0, (rows[5],), {}, outcomes, "c")
    assert (kernel.run_pending(), kernel.stats().num_batches) == (6, 1)
    assert agrees(1, rows[0], outcomes.found["a"])
    assert agrees(1, rows[5], outcomes.found["c"])
    np.testing.assert_allclose(outcomes.found["b"][0], expected(1, rows[1:5])[0], atol=1e-5)


def test_tags_and_latest_are_resolved_when_their_batch_is_taken(tmp_path: Path) -> None:
    folder, store = make(tmp_path, 10, 11)
    kernel, outcomes = kernel_of(folder), Outcomes()
    store.tag("net", "best", 0)
    for version in ("best", "latest", 2, "nobody"):
        kernel.submit(version, (IMAGE,), {}, outcomes, version)
    store.publish("net", weights_of(net(12)), number=2)
    store.tag("net", "best", 1)
    assert kernel.run_pending() == 4
    assert outcomes.versions == {"best": 1, "latest": 2, 2: 2}
    assert all(agrees(10 + number, IMAGE, outcomes.found[token]) for token, number in outcomes.versions.items())
    assert "no version 'nobody'" in str(outcomes.found["nobody"])
    assert kernel.stats().num_batches == 2, "latest and 2 are one version"


class WritesToItsInput(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


def test_a_module_that_writes_to_its_input_changes_no_callers_row(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path, "writes")
    folder.create(Definition(module=WritesToItsInput()), {})
    kernel, outcomes, row = kernel_of(folder), Outcomes(), np.ones(3)
    for turn in range(2):
        kernel.submit(0, (row,), {}, outcomes, turn)
        kernel.run_pending()
    assert (row.tolist(), outcomes.found[1].tolist()) == ([1.0] * 3, [2.0] * 3)


@pytest.mark.parametrize("change", ["", "reversed", "read-only", "two"])
def test_a_lone_call_of_rows_is_not_copied_unless_torch_could_not_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    folder, _ = make(tmp_path, 1)
    kernel, outcomes, rows = kernel_of(folder), Outcomes(), images(4)
    given: list[np.ndarray] = []
    run = EagerBackend.run

    def watched(self: EagerBackend, handle: object, args: tuple, kwargs: dict) -> object:
        given.extend(args)
        return run(self, handle, args, kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(EagerBackend, "run", watched)
    asked = rows[::-1] if change == "reversed" else rows
    asked.flags.writeable = change != "read-only"
    kernel.submit_rows(0, (asked,), {}, outcomes, 0)
    if change == "two":
        kernel.submit_rows(0, (rows,), {}, outcomes, 1)
    kernel.run_pending()
    assert np.shares_memory(given[0], rows) is (change == "")
    np.testing.assert_allclose(outcomes.found[0][0], expected(1, asked.copy())[0], atol=1e-5)


def test_nests_of_arguments_and_outputs_keep_their_structure(tmp_path: Path) -> None:
    module = Nested()
    folder = ModelFolder(tmp_path, "nested")
    row = {"place": np.ones(4, np.float32), "goal": np.zeros(4, np.float32)}
    mask = np.array([True, False, True, True])
    folder.create(Definition(module=module, forward_args=(row,), forward_kwargs={"mask": mask}), {})
    kernel, outcomes = kernel_of(folder), Outcomes()
    kernel.submit(0, (dict(reversed(row.items())),), {"mask": mask}, outcomes, 0)
    kernel.submit(0, (row,), {"mask": ~mask}, outcomes, 1)
    assert kernel.run_pending() == 2
    found = outcomes.found[0]
    assert nests.paths(found) == ["logits", "rest/0", "rest/1", "none"]
    assert (found["rest"][1].tolist(), found["none"]) == ([1.0] * 4, None)
    assert (found["logits"] < -1e8).tolist() == [False, True, False, False]
    assert (outcomes.found[1]["logits"] < -1e8).tolist() == [True, False, True, True]


def test_one_row_that_fails_does_not_fail_its_neighbours(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path, "table")
    folder.create(Definition(module=torch.nn.Embedding(4, 2), forward_args=(np.int64(0),)), {})
    kernel, outcomes = kernel_of(folder), Outcomes()
    for index in (1, 99, 3):
        kernel.submit(0, (np.int64(index),), {}, outcomes, index)
    kernel.run_pending()
    assert (outcomes.found[1].shape, outcomes.found[3].shape) == ((2,), (2,))
    assert isinstance(outcomes.found[99], IndexError)
    assert kernel.stats().num_failed == 1


def test_a_version_that_is_gone_is_reported_to_those_who_ask_for_it(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, *range(6), keep=2)
    kernel, outcomes = kernel_of(folder), Outcomes()
    for number in (0, 5):
        kernel.submit(number, (IMAGE,), {}, outcomes, number)
    kernel.run_pending()
    assert isinstance(outcomes.found[0], errors.DataError)
    assert "there are: 4, 5" in str(outcomes.found[0])
    assert agrees(5, IMAGE, outcomes.found[5])


def test_what_is_held_stays_ready_and_the_rest_makes_room(tmp_path: Path) -> None:
    folder, store = make(tmp_path, 0, keep=2)
    holds = Holds(store, "net")
    kernel, outcomes = kernel_of(folder, keep_versions=2, holds=holds), Outcomes()
    assert holds.hold("latest") == 0
    for number in range(1, 8):
        store.publish("net", weights_of(net(number)), number=number)
        kernel.submit(0, (IMAGE,), {}, outcomes, "held")
        kernel.submit(number, (IMAGE,), {}, outcomes, number)
        kernel.run_pending()
        assert agrees(0, IMAGE, outcomes.found["held"])
        assert agrees(number, IMAGE, outcomes.found[number])
    assert kernel.stats().versions == (6, 0, 7)
    assert [version.number for version in store.versions("net")] == [0, 6, 7]
    holds.release(0)
    store.publish("net", weights_of(net(8)), number=8)
    assert [version.number for version in store.versions("net")] == [7, 8]


def test_after_a_rewind_a_number_is_loaded_again(tmp_path: Path) -> None:
    folder, store = make(tmp_path, 0, 1)
    kernel, outcomes = kernel_of(folder), Outcomes()
    kernel.submit(1, (IMAGE,), {}, outcomes, "before")
    kernel.run_pending()
    store.rewind("net", 0)
    store.publish("net", weights_of(net(21)), number=1)
    kernel.submit(1, (IMAGE,), {}, outcomes, "after")
    kernel.run_pending()
    assert agrees(1, IMAGE, outcomes.found["before"])
    assert agrees(21, IMAGE, outcomes.found["after"])


def test_a_module_that_writes_to_its_buffers_harms_nobody(tmp_path: Path) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    folder = ModelFolder(tmp_path, "counting")
    folder.create(Definition(module=Counting()), {})
    kernel, outcomes = kernel_of(folder), Outcomes()
    for i in range(3):
        kernel.submit(0, (np.zeros(1, np.float32),), {}, outcomes, i)
        kernel.run_pending()
    assert VersionStore(tmp_path).verify("counting", 0).number == 0


def test_a_thousand_calls_of_one_loop_are_answered_in_few_batches(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 3)
    rows = images(1000)

    async def run() -> list:
        loop = asyncio.get_running_loop()
        sink = LoopSink(loop)
        futures = [loop.create_future() for _ in rows]
        for row, future in zip(rows, futures, strict=True):
            thread.submit(0, (row,), {}, sink, future)
        return await asyncio.wait_for(asyncio.gather(*futures), 30)

    with KernelThreads(Kernel.of(folder)) as thread:
        outcomes = asyncio.run(run())
        stats = thread.kernel.stats()
    policy, value = expected(3, rows)
    np.testing.assert_allclose(np.stack([outcome[0] for outcome in outcomes]), policy, atol=1e-5)
    np.testing.assert_allclose(np.stack([outcome[1] for outcome in outcomes]), value, atol=1e-5)
    assert stats.num_batches <= 30
    assert stats.num_rows == 1000


def test_waiters_are_notified_when_it_is_closed(tmp_path: Path) -> None:
    folder, _ = make(tmp_path, 3)
    thread, outcomes = KernelThreads(Kernel.of(folder)), Outcomes()
    thread.submit(0, (IMAGE,), {}, outcomes, "early")
    thread.close()
    thread.submit(0, (IMAGE,), {}, outcomes, "late")
    assert all(isinstance(outcomes.found[when], errors.Unreachable) for when in ("early", "late"))


def test_a_kernel_that_cannot_be_prepared_tells_every_caller_why(tmp_path: Path) -> None:
    folder, store = make(tmp_path, 3)
    outcomes = Outcomes()
    thread = KernelThreads(Kernel.of(folder))
    store.rewind("net", None)
    thread.start()
    with pytest.raises(errors.DataError, match="no version"):
        thread.wait_ready(10)
    with pytest.raises(errors.DataError, match="no version"):
        thread.submit(0, (IMAGE,), {}, outcomes, 0)
    thread.close()
