"""`RemoteTrainer`: a train function in processes of its own, which learn together and end together."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus import errors
from ludus.trial import current as trials

from .drivers import finish, is_alive, mentioning, start, wait_until

PUSH = """
import sys, numpy as np, ludus
trial = ludus.init(sys.argv[1], "t")
buffer = ludus.RemoteBuffer("b")
for n in range(200):
    buffer.push({"obs": np.full(4, n % 8, np.float32)}, drop=False)
"""


def learn(buffer: str, out: str, num_steps: int) -> None:
    """Two ranks, each with batches of its own, that must come to the same weight."""
    import torch

    weight = torch.zeros(4)
    ahead = ludus.PrefetchBuffer(ludus.TorchTensorBuffer(ludus.BatchBuffer(ludus.RemoteBuffer(buffer), batch_size=4)))
    for _step, batch in zip(range(num_steps), ahead, strict=False):
        weight += 0.1 * ludus.all_reduce(batch["obs"].mean(0) - weight, op="mean")
        ludus.merge("weight", float(weight.mean()), rank=ludus.rank())
    ranks = ludus.all_reduce(np.array([1, ludus.rank()]))
    numbers = (ludus.all_reduce(2), ludus.all_reduce(1.5, op="mean"), ludus.world_size())
    Path(out, f"rank-{ludus.rank()}").write_text(repr((weight.tolist(), ranks.tolist(), numbers)))


def fail_in_one(folder: str) -> None:
    Path(folder, f"pid-{ludus.rank()}").write_text(str(os.getpid()))
    ludus.all_reduce(1.0)
    if ludus.rank() == 1:
        raise ValueError("rank one had enough")
    for _ in range(1000):
        ludus.all_reduce(1.0)  # waits for the other, which will not come


def forever(folder: str) -> None:
    Path(folder, "began").touch()
    for _item in ludus.RemoteBuffer("nothing"):
        raise AssertionError("there is nothing in it")
    Path(folder, "ended").write_text(str(ludus.should_stop()))


def deaf(folder: str) -> None:
    Path(folder, "began").touch()
    time.sleep(1000)


def note(folder: str, **arguments: Any) -> None:
    trial = ludus.init(Path(folder).parent, "t")
    Path(folder, "arguments").write_text(
        repr((arguments, str(trial.folder), trial.is_driver, ludus.rank(), ludus.world_size()))
    )


def fail(folder: str) -> None:
    raise ValueError("the first attempt")


def leave(folder: str) -> None:
    sys.exit(0)


def reduce_many(folder: str) -> None:
    """What two ranks make of values of many types."""
    import torch

    def reduced(value: Any, op: str) -> str:
        try:
            made = ludus.all_reduce(value, op=op)
        except errors.DataError as error:
            return f"DataError: {error}"
        kind = str(made.dtype) if hasattr(made, "dtype") else type(made).__name__
        return f"{made.tolist() if hasattr(made, 'tolist') else made} {kind}"

    values = {
        "bool": ludus.rank() == 0,
        "bools": np.array([True, ludus.rank() == 0]),
        "tensor": torch.tensor([True, True]),
        "uint16": np.full(1, 40_000, np.uint16),
        "int16": torch.full((1,), 3, dtype=torch.int16),
        "swapped": np.ones(1, ">f4"),
        "texts": np.array(["a"]),
        "long": np.ones(1, np.longdouble),
        "eighth": torch.ones(1).to(torch.float8_e4m3fn),
        "list": [1, 2],
    }
    found = {name: (reduced(value, "sum"), reduced(value, "mean")) for name, value in values.items()}
    if ludus.rank() == 0:
        Path(folder, "found").write_text(repr(found))
    from ludus.training.policy_trainer import train_policy

    try:
        train_policy("model", "buffer")
    except errors.ConfigError as error:
        Path(folder, f"refused-{ludus.rank()}").write_text(str(error))


def test_two_ranks_add_up_whatever_can_be_added(trial: trials.Trial, tmp_path: Path) -> None:
    trainer = ludus.RemoteTrainer(use_gpu=False, num_workers=2)
    trainer.train(train=reduce_many, folder=str(tmp_path))
    assert trainer.wait(60)
    found = eval((tmp_path / "found").read_text())
    assert found["bool"] == ("1 int", "0.5 float")
    assert found["bools"] == ("[2, 1] int64", "[1.0, 0.5] float64")
    assert found["tensor"] == ("[2, 2] torch.int64", "[1.0, 1.0] torch.float32")
    assert found["uint16"][0] == f"[{80_000 - 65_536}] uint16", "as NumPy's own sum would be"
    assert found["int16"] == ("[6] torch.int16", "[3.0] torch.float32")
    assert found["swapped"][0].startswith("[2.0] float32")
    for name in ("texts", "long", "eighth", "list"):
        assert all(answer.startswith("DataError") for answer in found[name]), found[name]
    for rank in range(2):
        assert "one worker" in (tmp_path / f"refused-{rank}").read_text(), "train_policy is not for several"


def test_a_failure_that_was_handled_does_not_end_the_trial(trial: trials.Trial, tmp_path: Path) -> None:
    trainer = ludus.RemoteTrainer(use_gpu=False)
    trainer.train(train=fail, folder=str(tmp_path))
    with pytest.raises(errors.ProgramError, match="the first attempt"):
        trainer.wait(60)
    trainer.train(train=leave, folder=str(tmp_path))
    ludus.run_until_asked_to_stop(timeout_s=60)
    assert '"ended": "trained"' in (trial.folder / "trial.json").read_text(), "by sys.exit(0), which is no failure"


def test_two_ranks_learn_together_from_what_a_joined_process_pushes(trial: trials.Trial, tmp_path: Path) -> None:
    trainer = ludus.RemoteTrainer(use_gpu=False, num_workers=2)
    ludus.RemoteBuffer("b", capacity=64)
    pusher = start(PUSH, tmp_path)
    trainer.train(train=learn, buffer="b", out=str(tmp_path), num_steps=20)
    assert trainer.wait(90)
    finish(pusher)
    first, second = (eval((tmp_path / f"rank-{index}").read_text()) for index in range(2))
    assert first == second, "the same weights, though each had other batches"
    assert 1.0 < first[0][0] < 7.0
    assert first[1] == [2, 1]
    assert first[2] == (4, 1.5, 2)
    ludus.run_until_asked_to_stop(timeout_s=30)
    assert '"ended": "trained"' in (trial.folder / "trial.json").read_text()
    assert "weight/rank=1" in (trial.folder / "metrics.jsonl").read_text()


def test_a_rank_that_raises_ends_the_others_and_its_traceback_is_reported(trial: trials.Trial, tmp_path: Path) -> None:
    ludus.RemoteTrainer(use_gpu=False, num_workers=2).train(train=fail_in_one, folder=str(tmp_path))
    with pytest.raises(errors.ProgramError, match=r"(?s)fail_in_one.*rank one had enough|other of the 2 ranks"):
        ludus.run_until_asked_to_stop(timeout_s=90)
    for index in range(2):
        assert not is_alive(int((tmp_path / f"pid-{index}").read_text()))
    log = (trial.folder / "logs" / "trainer-1.log").read_text()
    assert "rank one had enough" in log


def test_a_trainer_gets_its_arguments_and_the_trial(trial: trials.Trial) -> None:
    trainer = ludus.RemoteTrainer(use_gpu=False)
    assert trainer.name == "trainer"
    with pytest.raises(errors.WorkerError, match="call train"):
        trainer.wait()
    trainer.train(train=note, folder=str(trial.folder), rate=0.5)
    assert trainer.wait(60)
    result = eval((trial.folder / "arguments").read_text())
    assert result == ({"rate": 0.5}, str(trial.folder), False, 0, 1)
    trainer.train(train=note, folder=str(trial.folder), rate=0.25)
    assert trainer.wait(60), "once it is done it can train again"
    assert "0.25" in (trial.folder / "arguments").read_text()


def test_a_stopped_trainer_comes_back_from_its_loop(trial: trials.Trial, tmp_path: Path) -> None:
    trainer = ludus.RemoteTrainer(use_gpu=False)
    trainer.train(train=forever, folder=str(tmp_path))
    with pytest.raises(errors.ProgramError, match="is training"):
        trainer.train(train=forever, folder=str(tmp_path))
    wait_until(lambda: (tmp_path / "began").exists() and trial.remote("trainer").ping()["status"] == "running")
    assert not trainer.wait(0.01)
    trainer.stop()
    assert (tmp_path / "ended").read_text() == "True"
    assert not trial.is_stopping, "only the trainer was stopped"


def test_a_trainer_that_does_not_listen_is_killed(trial: trials.Trial, tmp_path: Path) -> None:
    trainer = ludus.RemoteTrainer(use_gpu=False)
    trainer.train(train=deaf, folder=str(tmp_path))
    wait_until(lambda: (tmp_path / "began").exists())
    trial.close(grace_s=0.3)
    assert not mentioning(str(tmp_path))


def test_outside_of_a_trainer_there_is_one_rank() -> None:
    assert (ludus.rank(), ludus.world_size(), ludus.should_stop()) == (0, 1, False)
    array = np.arange(3)
    assert ludus.all_reduce(array) is array
    with pytest.raises(errors.DataError, match="not a list"):
        ludus.all_reduce([1, 2])
    with pytest.raises(errors.ConfigError, match="'sum' or 'mean'"):
        ludus.all_reduce(1.0, op="max")
