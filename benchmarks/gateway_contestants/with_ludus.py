"""Ludus: one gateway worker, as `GatewayService` runs it, with its journal, leases and tick numbers.

with_ludus.py echo
with_ludus.py cnn THREADS
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

from announce import Announcer, bench_folder

from ludus.gateway.actor import Actor
from ludus.gateway.gateway import Gateway, GatewayOptions
from ludus.gateway.loop import new_event_loop


class Echo(Actor):
    def tick(self, data: bytes) -> bytes:
        return data


def serve(make_actor: Callable[[], Actor], name: str) -> Gateway:
    """A gateway on a thread's event loop, as in a worker; it lives as long as the process."""
    gateway = Gateway(make_actor, GatewayOptions(folder=bench_folder() / name))
    is_up = threading.Event()

    def live() -> None:
        loop = new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(gateway.start())
        is_up.set()
        loop.run_forever()

    threading.Thread(target=live, name="gateway", daemon=True).start()
    if not is_up.wait(30.0):
        raise RuntimeError("the gateway does not listen")
    return gateway


def serve_echo(announcer: Announcer) -> None:
    gateway = serve(Echo, "ludus-echo")
    announcer.hello("ludus", "uvloop", "httptools", port=gateway.port)
    wait_for_the_end(announcer)


def serve_cnn(announcer: Announcer, threads: int) -> None:
    import numpy as np
    from nature_cnn import SHAPE, make_model

    import ludus

    trial = ludus.init(project=str(bench_folder() / f"ludus-cnn-{threads}"), trial="bench")
    example = np.zeros(SHAPE, np.uint8)
    model = ludus.RemoteModel(
        "nature",
        make_model(),
        forward_args=(example,),
        local_mode=True,
        max_batch=64,
        num_threads=threads,
        backend="auto",
    )

    class Player(Actor):
        async def tick(self, data: bytes) -> bytes:
            observation = np.frombuffer(data, np.uint8).reshape(SHAPE)
            logits, _value = await model.forward(observation)
            return bytes((int(logits.argmax()),))

    gateway = serve(Player, f"ludus-cnn-{threads}-gateway")
    facts: dict[str, Any] = {"backend": model.backend}
    announcer.hello("ludus", "uvloop", "httptools", "torch", "numpy", "onnxruntime", port=gateway.port, **facts)
    wait_for_the_end(announcer)
    trial.close()


def wait_for_the_end(announcer: Announcer) -> None:
    for _ in announcer.orders():
        pass


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        serve_echo(Announcer())
    else:
        serve_cnn(Announcer(), int(sys.argv[2]))
