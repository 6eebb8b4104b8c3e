"""`RemoteTrainer`: a user's train function in processes of its own, one or many that learn together.

    def train(model, buffer, num_steps):
        ...
        for batch in ludus.TorchTensorBuffer(ludus.BatchBuffer(ludus.RemoteBuffer(buffer), batch_size=64)):
            gradient = ludus.all_reduce(gradient, op="mean")        # over all ranks

    ludus.RemoteTrainer(num_workers=2).train(train=train, model="pong", buffer="pong", num_steps=1000)
    ludus.run_until_asked_to_stop()

With several workers torch.distributed is ready inside `train`: torch's DistributedDataParallel works there as well.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ludus import errors, launch
from ludus.core import WorkerStatus
from ludus.discovery import names as naming
from ludus.program.program import Program, Resources, RestartPolicy
from ludus.rpc import address
from ludus.trial import current as trials
from ludus.trial.driver import Stage, check_count, check_name
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["RankWorker", "RemoteTrainer", "all_reduce", "rank", "should_stop", "world_size"]

_LOG = logging.getLogger(__name__)
_MAX_END_S = 60.0  # its run kills it sooner, at the end of the grace


class RemoteTrainer:
    """Where a train function runs. Nothing runs before `train`.

    use_gpu: a GPU for each worker; by default if this machine has one. num_workers: the ranks. name: of the workers,
    `trainer/0` and so on; two trainers of one trial have two names.
    """

    def __init__(
        self,
        *,
        use_gpu: bool | None = None,
        num_workers: int = 1,
        cpus_per_worker: float = 1,
        name: str = "trainer",
    ) -> None:
        check_name("trainer", name)
        self.name = name
        self._use_gpu = Path("/dev/nvidia0").exists() if use_gpu is None else use_gpu
        self._num_workers = check_count("num_workers", num_workers)
        self._cpus = cpus_per_worker
        self._run: launch.Run | None = None
        self._trial: trials.Trial | None = None  # that the run is of

    def train(self, train: Callable[..., Any], **kwargs: Any) -> None:
        """Start the workers, each of which calls `train(**kwargs)`; returns at once. For the driver of the trial.

        The named things of the trial can be used inside. When one worker raises, all are ended, and `wait` and
        `run_until_asked_to_stop` raise `ProgramError` with its traceback.
        """
        trial = trials.current()
        if self._run is not None and not self._run.is_over:
            raise errors.ProgramError(f"{self.name!r} is training; wait for it, or stop it first")
        program = Program(trials.EXPERIMENT)
        program.add(
            self.name,
            RankWorker,
            train,
            kwargs,
            size=self._num_workers,
            meeting=f"{self.name}-{uuid.uuid4().hex[:8]}",
            use_gpu=self._use_gpu,
            replicas=self._num_workers,
            resources=Resources(cpus=self._cpus, gpus=float(self._use_gpu)),
            restarts=RestartPolicy(max_restarts=0),
        )
        self._run, self._trial = trial.run(program, stage=Stage.TRAINERS), trial

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until `train` has returned everywhere; says whether it has. Raises `ProgramError` if one raised.

        To catch it is to handle it: the trial goes on, and the trainer can train again.
        """
        run = self._started()
        try:
            return run.wait(timeout_s)
        except errors.ProgramError:
            assert self._trial is not None
            self._trial.driver.note_failure_reported(run)
            raise

    def stop(self, grace_s: float = 5.0) -> None:
        """Have `should_stop` be true and buffers end in all workers; those still there after `grace_s` are killed."""
        if self._run is not None:
            self._started().stop(grace_s)

    def workers(self) -> list[launch.WorkerRecord]:
        """Each rank as the driver sees it."""
        return self._started().workers()

    def _started(self) -> launch.Run:
        if self._run is None or self._trial is None:
            raise errors.WorkerError(f"{self.name!r} has nothing to train: call train(train=...) first")
        self._trial.expect_own()
        return self._run


# -- inside a train function ------------------------------------------------------------------------------------

_rank = 0
_size = 1
_device = "cpu"
_ranks: Any = None  # `TorchRanks`, if there are others


def rank() -> int:
    """Which of the trainer's workers this is; 0 outside of a trainer."""
    return _rank


def world_size() -> int:
    """How many workers the trainer has; 1 outside of a trainer."""
    return _size


def all_reduce(value: Any, op: str = "sum") -> Any:
    """The sum, or the mean, of a tensor, an array or a number over all ranks, of the same type; all must call it.

    Booleans are counted: their sum is whole numbers. The mean of whole numbers is floats. Alone it is the value itself.
    Raises `DataError` for anything else, and `TrainingError` if another rank is lost.
    """
    if op not in ("sum", "mean"):
        raise errors.ConfigError(f"op={op!r}: it is 'sum' or 'mean'")
    is_tensor = "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
    if not is_tensor and not isinstance(value, np.ndarray | np.generic | int | float | complex):
        raise errors.DataError(
            f"all_reduce takes a tensor, an array or a number, not a {type(value).__name__}. Reduce what is in it "
            "one by one, or np.asarray(...) of it."
        )
    if _ranks is None:
        return value
    if is_tensor:
        return _ranks.sum_of(value) / _size if op == "mean" else _ranks.sum_of(value)
    import torch

    array = np.asarray(value)
    try:
        tensor = torch.from_numpy(np.array(array, array.dtype.newbyteorder("="), order="C"))
    except TypeError:
        raise errors.DataError(f"all_reduce cannot add up an array of {array.dtype}") from None
    summed = _ranks.sum_of(tensor.to(_device)).cpu().numpy()
    if op == "mean":
        summed = (summed / _size).astype(array.dtype if array.dtype.kind in "fc" else np.float64)
    if isinstance(value, np.ndarray):
        return summed
    return summed[()] if isinstance(value, np.generic) else summed.item()


def should_stop() -> bool:
    """Whether the trial, or the trainer that this is part of, was asked to stop. Loops over buffers end by themselves.

    Ranks notice it in turn, not at once. Where they wait for each other at each step, let them agree on it:
    `all_reduce(float(ludus.should_stop())) > 0`.
    """
    try:
        return trials.current().is_stopping
    except errors.WorkerError:
        return False


class RankWorker(Worker):
    """One rank: a worker that calls `train(**kwargs)` in a thread and still answers calls."""

    idle_s = 0.2

    def __init__(
        self,
        server: WorkerServer,
        train: Callable[..., Any],
        kwargs: Mapping[str, Any],
        *,
        size: int,
        meeting: str,
        use_gpu: bool,
    ) -> None:
        """`meeting`: a name under which the ranks of this very run find each other."""
        super().__init__(server)
        self._train = train
        self._kwargs = kwargs
        self._size = size
        self._meeting = meeting
        self._use_gpu = use_gpu
        self._index = int(server.worker_name.rpartition("/")[2])
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name="train", daemon=True)

    def _start(self) -> None:
        self._trial = trials.current()
        self._thread.start()

    def _live(self) -> None:
        global _rank, _size, _device, _ranks
        _rank, _size = self._index, self._size
        try:
            _device = self._pick_device()
            if self._size > 1:
                _ranks = self._meet(_device)
            self._train(**self._kwargs)
        except SystemExit as error:
            if error.code not in (None, 0):  # sys.exit() is a way to come back
                self._error = errors.TrainingError(f"train() called sys.exit({error.code!r})")
        except BaseException as error:
            self._error = error
        finally:
            if _ranks is not None:
                _ranks.close()
            self.server.wake()

    def _pick_device(self) -> str:
        if not self._use_gpu:
            return "cpu"
        import torch

        if not torch.cuda.is_available():
            raise errors.TrainingError(
                "the trainer was given use_gpu=True and torch sees no GPU on this machine. Give use_gpu=False."
            )
        index = self._index % torch.cuda.device_count()
        torch.cuda.set_device(index)
        return f"cuda:{index}"

    def _meet(self, device: str) -> Any:
        import torch

        from ludus.services.trainer.ranks import TorchRanks

        if "OMP_NUM_THREADS" in os.environ:
            torch.set_num_threads(max(1, int(os.environ["OMP_NUM_THREADS"])))
        here = self._trial.context
        host = address.parse(self.server.address).tcp.rpartition(":")[0] or "127.0.0.1"
        key = naming.key(here.experiment, here.trial, "rendezvous", self._meeting)
        return TorchRanks(self._index, self._size, names=here.names, key=key, host=host, device=device)

    def _poll(self) -> int:
        if self._thread.is_alive():
            return 0
        if self._error is not None and not self._is_forgiven:
            raise self._error
        self.finish()
        return 1

    @property
    def _is_forgiven(self) -> bool:
        """Once the trial stops, ranks leave one by one, and what those that wait for them raise is no failure."""
        if self._size == 1 or not self._trial.is_stopping:
            return False
        _LOG.warning("the trial stops; until then, or because another rank has left: %r", self._error)
        return True

    def _exit(self) -> None:
        self._trial.note_stopping()
        self._thread.join(_MAX_END_S)
        if self._error is not None and self.status is not WorkerStatus.FAILED:
            _LOG.warning("train() was stopped and raised", exc_info=self._error)
