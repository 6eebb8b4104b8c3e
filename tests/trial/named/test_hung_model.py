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


def test_calls_go_on_while_a_worker_of_a_model_hangs_and_it_is_replaced(trial, tmp_path):
    model = ludus.RemoteModel("m", Hangs(tmp_path / "flag"), (ROW,), num_workers=2, max_busy_s=12.0, timeout_s=120.0)

    async def forward_all(num):
        outputs = await asyncio.gather(*(model.forward(ROW) for _ in range(num)))
        assert [output.shape for output in outputs] == [(2,)] * num

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
    num_rounds = 0
    while not any(worker.restarts for worker in workers()):
        assert time.monotonic() < until + 120
        asyncio.run(forward_all(8))
        num_rounds += (tmp_path / "flag").exists()
        time.sleep(0.02)
    assert num_rounds >= 2, "all calls were answered while it hung, before it was replaced"
    assert (tmp_path / "flag").exists()
