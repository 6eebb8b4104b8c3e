"""The model without a gateway: batches that are ready in memory, one forward after the other.

Makes what the others need, too: the observations and the ONNX file. A backend whose outputs differ from eager's by more
than 1e-4 does not run. int8 is not tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from announce import Announcer, bench_folder
from nature_cnn import export_onnx, load_onnx, make_model, make_observations

TOLERANCE = 1e-4
BATCHES = (16, 32, 64)
Forward = Callable[[np.ndarray], Any]


@cache
def forward_of(backend: str, threads: int) -> Forward:
    """A function from a batch of bytes to logits and values, as NumPy arrays."""
    if backend == "onnx":
        return load_onnx(bench_folder() / "nature.onnx", threads=threads)
    model = make_model()
    if backend == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    elif backend == "compile":
        model = torch.compile(model)

    def forward(batch: np.ndarray) -> Any:
        observation = torch.from_numpy(batch)
        if backend == "channels_last":
            observation = observation.contiguous(memory_format=torch.channels_last)
        with torch.inference_mode():
            logits, value = model(observation)
        return logits.numpy(), value.numpy()

    return forward


def difference(forward: Forward, observations: np.ndarray) -> float:
    """By how much it differs from eager at most."""
    with torch.inference_mode():
        right = [output.numpy() for output in make_model()(torch.from_numpy(observations))]
    return max(float(np.abs(a - b).max()) for a, b in zip(forward(observations), right, strict=True))


def rate(forward: Forward, batch: np.ndarray, seconds: float) -> float:
    """Observations a second."""
    for _ in range(3):
        forward(batch)
    begin = now = time.perf_counter()
    count = 0
    while now - begin < seconds:
        forward(batch)
        count += len(batch)
        now = time.perf_counter()
    return count / (now - begin)


def main() -> None:
    announcer = Announcer()
    folder = bench_folder()
    observations, actions = make_observations()
    observations_file = folder / "observations.bin"
    observations_file.write_bytes(observations.tobytes())
    export_onnx(folder / "nature.onnx")
    announcer.hello(
        "torch",
        "numpy",
        "onnx",
        "onnxruntime",
        observations=str(observations_file),
        actions=[int(action) for action in actions],
        num_actions_seen=len(set(actions.tolist())),
        batches=BATCHES,
    )
    for order in announcer.orders():
        threads, batch = order["threads"], order["batch"]
        torch.set_num_threads(threads)
        forward = forward_of(order["backend"], threads)
        off = difference(forward, observations[:batch])
        found = rate(forward, observations[:batch], order["seconds"]) if off <= TOLERANCE else 0.0
        announcer.send({"rate": found, "difference": off})


if __name__ == "__main__":
    main()
