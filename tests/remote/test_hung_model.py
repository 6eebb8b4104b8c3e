"""A worker of a model whose forward pass never ends: calls are answered by another, and it is replaced."""

import asyncio
import contextlib
import threading
import time
from pathlib import Path

import numpy as np
import torch

import ludus

ROW = np.ones(3, np.float32)


class Hangs(torch.nn.Module):
    """Once `flag.now` is there, the first process to run it again never comes back from that; the others do."""

    def __init__(self, flag):
        super().__init__()
        self.flag = str(flag)
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        if Path(f"{self.flag}.now").exists():
            with contextlib.suppress(FileExistsError):
                Path(self.flag).touch(exist_ok=False)
                threading.Event().wait()
        return self.linear(x)


def test_a_hung_worker_of_a_model_costs_seconds_once_and_is_replaced(trial, tmp_path):
    model = ludus.RemoteModel("m", Hangs(tmp_path / "flag"), (ROW,), num_workers=2, max_busy_s=8.0, timeout_s=60.0)

    async def forward_all(num):
        """The longest time that one took."""

        async def forward():
            began = time.monotonic()
            assert (await model.forward(ROW)).shape == (2,)
            return time.monotonic() - began

        return max(await asyncio.gather(*(forward() for _ in range(num))))

    def workers():
        return [worker for worker in trial.workers() if worker.name.startswith("model-m")]

    asyncio.run(forward_all(2))
    until = time.monotonic() + 60
    while len(trial.remote("model-m").solver.replicas("model-m")) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    for _ in range(10):  # both have run it: their first time is over
        asyncio.run(forward_all(8))
    Path(f"{tmp_path / 'flag'}.now").touch()
    slowest = []
    while not any(worker.restarts for worker in workers()):
        assert time.monotonic() < until + 60
        slowest.append(asyncio.run(forward_all(8)))
        time.sleep(0.02)
    assert max(slowest) < 8.0
    assert sum(seconds > 2.0 for seconds in slowest) <= 2, "after the first few seconds it is out of rotation"
    assert (tmp_path / "flag").exists()
