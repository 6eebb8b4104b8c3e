"""What runs on Ray Serve: an echo, and the Nature CNN behind `@serve.batch`. Started by `with_ray_serve.py`."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import ray
from announce import Announcer, bench_folder, free_port
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

FOLDER = bench_folder()
MAX_BATCH = 64
PLAYERS = [("torch", 1), ("onnx", 1), ("onnx", 2)]
QUIET = {"enable_access_log": False}
KIND = "application/octet-stream"


@serve.deployment(num_replicas=1, max_ongoing_requests=1000, ray_actor_options={"num_cpus": 1}, logging_config=QUIET)
class Echo:
    def __init__(self) -> None:
        self._steps: dict[str, int] = {}

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        session = request.headers.get("session", "")
        self._steps[session] = self._steps.get(session, 0) + 1
        return Response(body, media_type=KIND)


@serve.deployment(num_replicas=1, max_ongoing_requests=1000, ray_actor_options={"num_cpus": 1}, logging_config=QUIET)
class Player:
    def __init__(self, backend: str, threads: int, contestants: str, onnx: str) -> None:
        sys.path.insert(0, contestants)
        import torch
        from nature_cnn import SHAPE, load_onnx, make_model

        torch.set_num_threads(threads)
        self._shape = SHAPE
        self._thread = ThreadPoolExecutor(1)
        model = make_model()

        def eager(batch: np.ndarray) -> Any:
            with torch.inference_mode():
                return [output.numpy() for output in model(torch.from_numpy(batch))]

        self._forward = load_onnx(Path(onnx), threads=threads) if backend == "onnx" else eager
        if backend == "torch":  # threads are set for each thread that computes
            self._thread.submit(torch.set_num_threads, threads).result()

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=0.002)
    async def act(self, observations: list[np.ndarray]) -> list[bytes]:
        """In a thread of its own, so that the event loop goes on taking requests."""
        batch = np.stack(observations)
        logits, _ = await asyncio.get_running_loop().run_in_executor(self._thread, self._forward, batch)
        return [bytes((int(action),)) for action in logits.argmax(1)]

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        if not body:  # the start or the end of a session
            return Response(b"", media_type=KIND)
        return Response(await self.act(np.frombuffer(body, np.uint8).reshape(self._shape)), media_type=KIND)


def main() -> None:
    announcer = Announcer()
    port = free_port()
    ray.init(
        num_cpus=1 + len(PLAYERS),
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=256 << 20,
        _temp_dir=str(FOLDER / f"ray-{sys.argv[1]}"),
        _node_ip_address="127.0.0.1",
    )
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config=QUIET)
        serve.run(Echo.bind(), name="echo", route_prefix="/echo")
        paths = {"echo": "/echo"}
        here, onnx = str(Path(__file__).resolve().parent), str(FOLDER / "nature.onnx")
        for backend, threads in PLAYERS:
            name = f"{backend}-{threads}"
            serve.run(Player.bind(backend, threads, here, onnx), name=name, route_prefix=f"/{name}")
            paths[f"{backend}, {threads} threads"] = f"/{name}"
        announcer.hello("ray", "torch", "numpy", "onnxruntime", "starlette", "uvicorn", port=port, paths=paths)
        for _ in announcer.orders():
            pass
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
