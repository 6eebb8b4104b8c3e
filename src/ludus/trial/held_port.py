"""The ports of gateway workers, held by the process that starts them: HTTP's is lent to each, even if one is replaced.

with HeldPort(options, "gateway", num_workers=2) as held:       # raises if the port is taken, before anything starts
    run = launch.local(program, …)
    held.watch(run)
"""

from __future__ import annotations

import importlib.util
import threading
import time

from ludus import errors
from ludus.gateway.beat import EVERY_S
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.port import Port, SharedPort
from ludus.gateway.watch import Watch
from ludus.launch.run import Run

__all__ = ["HeldPort"]


class HeldPort:
    """Raises `ConfigError` if the port is taken. `node` is the name of the workers."""

    def __init__(self, options: GatewayOptions, node: str, *, num_workers: int) -> None:
        self._options = options
        self._node = node
        self._num_workers = num_workers
        self._grpc_port = _share(options, num_workers)
        try:
            self._port = Port(options.host, options.port, options.port_path, backlog=options.backlog)
        except OSError as error:
            if self._grpc_port is not None:
                self._grpc_port.close()
            raise _taken(options.port, error) from None

    @property
    def num_lent(self) -> int:
        """How often workers of this host took it; those of another host bind the port there."""
        return self._port.num_lent

    def watch(self, run: Run) -> None:
        """From a thread: kill workers that hang, as long as there are any; their supervisor starts them again."""
        threading.Thread(target=self._watch, args=(run,), name=f"watch-{self._node}", daemon=True).start()

    def _watch(self, run: Run) -> None:
        beats = {f"{self._node}/{index}": self._options.beat_path(index) for index in range(self._num_workers)}
        watch = Watch(beats, max_block_s=self._options.max_block_s)
        while not run.is_over:
            watch.check()
            time.sleep(EVERY_S)
        self.close()

    def close(self) -> None:
        """Safe from any thread, and twice."""
        self._port.close()
        if self._grpc_port is not None:
            self._grpc_port.close()

    def __enter__(self) -> HeldPort:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _share(options: GatewayOptions, num_workers: int) -> SharedPort | None:
    """Hold the gRPC port for several workers; one alone has it to itself, if it is free."""
    if options.grpc_port is None:
        return None
    if importlib.util.find_spec("grpc") is None:
        raise errors.MissingExtra("grpc", extra="grpc")
    try:
        held = SharedPort(options.host, options.grpc_port)
    except OSError as error:
        raise _taken(options.grpc_port, error) from None
    if num_workers > 1:
        return held
    held.close()
    return None


def _taken(port: int, error: OSError) -> errors.ConfigError:
    return errors.ConfigError(f"port {port} cannot be served: {error.strerror}. Choose another, or stop who has it.")
