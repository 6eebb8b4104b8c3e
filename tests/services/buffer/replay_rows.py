"""Rows whose columns must agree, a service in a process of its own, and clients in others."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.spec import ArraySpec
from ludus.rpc.server import RpcServer
from ludus.services.buffer.replay_service import ReplayService
from ludus.services.buffer.table import TableSettings
from ludus.workers.register import register_all

SPEC = {
    "number": ArraySpec((), np.dtype(np.int64)),
    "obs": ArraySpec((500,), np.dtype(np.float32)),
    "done": ArraySpec((), np.dtype(np.bool_)),
}


def rows(*numbers: int) -> dict[str, NDArray[Any]]:
    """Of each number a row; its columns follow from the number."""
    number = np.array(numbers, np.int64)
    obs = np.repeat(number.astype(np.float32)[:, None], 500, axis=1)
    return {"number": number, "obs": obs, "done": number % 2 == 0}


def numbers_of(batch: Mapping[str, NDArray[Any]]) -> list[int]:
    """The numbers of the rows. Fails for a torn row."""
    number = batch["number"]
    assert (batch["obs"] == number[:, None]).all(), "a torn row"
    assert (batch["done"] == (number % 2 == 0)).all(), "a torn row"
    numbers: list[int] = number.tolist()
    return numbers


@contextlib.contextmanager
def served(settings: TableSettings, *, num_slots: int, **options: Any) -> Iterator[str]:
    """The address of a service in a thread of this process, by unix socket and by TCP."""
    service = ReplayService(SPEC, settings, num_slots=num_slots, **options)
    server = RpcServer(0, transports=("unix", "zmq"))
    server.start()
    register_all(server, service)
    is_closing = threading.Event()

    def serve() -> None:
        while not is_closing.is_set():
            server.handle_requests(timeout_s=0.5)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.address
    finally:
        is_closing.set()
        server.wake()
        thread.join(10)
        service.close()
        server.close()


CLIENT = """
import json, sys
from tests.services.buffer.replay_rows import rows
from ludus.services.buffer.replay_client import connect

address, script = sys.argv[1:]
client = connect(address)
print("ready", flush=True)
exec(script)
"""


@contextlib.contextmanager
def client_process(address: str, script: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has `client` and `rows` and runs `script`. It is killed in the end."""
    root = Path(__file__).parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", CLIENT, address, script], cwd=root, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def line_of(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    return json.loads(child.stdout.readline())
