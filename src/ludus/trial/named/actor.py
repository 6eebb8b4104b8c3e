"""`RemoteActor`: a port where games find their actors.

ludus.init(project="./pong", trial="ppo-1")
actor = ludus.RemoteActor(port=8000)
actor.serve(Actor=PongActor, model="pong", buffer="pong")     # PongActor(model="pong", buffer="pong") for each session
ludus.run_until_asked_to_stop()
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus import errors
from ludus import secret as secrets
from ludus.gateway.actor import ActorLike
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.http.limits import HttpLimits
from ludus.gateway.record import Recorder
from ludus.gateway.session_core import SessionLimits
from ludus.launch.run import Run
from ludus.trial import current as trials
from ludus.trial import services
from ludus.trial.driver import Stage
from ludus.trial.held_port import HeldPort

__all__ = ["RemoteActor"]

_READY_S = 60.0


class RemoteActor:
    """`num_workers` processes share the port, and the `grpc_port` if there is one (0: any free one).

    Beyond loopback a `token` or a `secret` is needed; see docs/protocol.md.
    Either may come from a file (`token_file`, `secret_file`) or the environment (`LUDUS_TOKEN`, `LUDUS_SECRET`).
    `record`: whether all sessions are written down, in `recordings/` of the trial. `route`: what sessions play that do
    not ask for a version, as tags with their shares. `max_block_s`: for how long an actor's ordinary method may wait,
    and hold up all other sessions of its worker, before the worker is replaced and its sessions are lost; it may
    compute six times as long.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        grpc_port: int | None = None,
        host: str = "127.0.0.1",
        num_workers: int = 1,
        token: str | None = None,
        secret: str | None = None,
        token_file: str | Path | None = None,
        secret_file: str | Path | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        lease_s: float = 60.0,
        max_sessions: int = 10_000,
        max_body_bytes: int = 16 * 1024 * 1024,
        max_buffered_bytes: int = 256 * 1024 * 1024,
        record: bool = False,
        route: Mapping[str, float] | None = None,
        max_block_s: float = 10.0,
    ) -> None:
        self._trial = trials.current()
        self._num_workers = num_workers
        self._is_recorded = record
        self._options = GatewayOptions(
            host=host,
            port=port or _free_port(host),
            grpc_port=_free_port(host) if grpc_port == 0 else grpc_port,
            token=secrets.find("token", token, token_file),
            secret=secrets.find("secret", secret, secret_file),
            tls_cert=tls_cert and str(Path(tls_cert).absolute()),
            tls_key=tls_key and str(Path(tls_key).absolute()),
            folder=self._trial.folder / "gateway",
            route=dict(route or {}),
            sessions=SessionLimits(lease_s=lease_s, max_sessions=max_sessions),
            http=HttpLimits(max_body_bytes=max_body_bytes, max_buffered_bytes=max_buffered_bytes),
            max_block_s=max_block_s,
        )
        self._run: Run | None = None
        self._held: HeldPort | None = None

    @property
    def port(self) -> int:
        return self._options.port

    @property
    def url(self) -> str:
        scheme = "https" if self._options.tls_cert else "http"
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def grpc_url(self) -> str:
        """Raises `ConfigError` if games cannot come by gRPC."""
        if self._options.grpc_port is None:
            raise errors.ConfigError("this actor has no gRPC door; give RemoteActor a grpc_port")
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        return f"{'grpcs' if self._options.tls_cert else 'grpc'}://{host}:{self._options.grpc_port}"

    @property
    def node(self) -> str:
        """The name of its workers."""
        return f"actor-{self.port}"

    def serve(self, Actor: Callable[..., ActorLike], *args: Any, **kwargs: Any) -> None:
        """Answer games from now on: each session gets an `Actor(*args, **kwargs)`. Comes back when the port is open.

        Raises `ConfigError` if the port is taken.
        """
        if self._run is not None:
            raise errors.ConfigError(f"port {self.port} is served already; use another RemoteActor for another actor")
        held = self._held = HeldPort(self._options, self.node, num_workers=self._num_workers)
        program = services.gateway_program(
            self.node,
            self._options,
            Actor,
            args,
            kwargs,
            num_workers=self._num_workers,
            make_observer=_RecorderMaker(self._trial.folder, self.node) if self._is_recorded else None,
        )
        try:
            self._run = self._trial.run(program, stage=Stage.GATEWAYS)
        except BaseException:
            held.close()
            raise
        held.watch(self._run)
        self._wait_ready(self._run)
        if not held.num_lent:  # the workers are on another host, and have bound the port there
            held.close()

    def _wait_ready(self, run: Run) -> None:
        until = time.monotonic() + _READY_S
        remote = self._trial.remote(self.node)
        for index in range(self._num_workers):
            while True:
                try:
                    remote.replica(index).submit("where").result()
                    break
                except (errors.Unreachable, errors.NameNotFound, errors.DeadlineExceeded, errors.OutcomeUnknown):
                    failed = [w for w in run.workers() if w.status.is_final]
                    if failed or time.monotonic() > until:
                        raise
                time.sleep(0.02)

    def statistics(self) -> list[dict[str, Any]]:
        """The stats of each worker."""
        remote = self._trial.remote(self.node)
        return [remote.replica(index).submit("stats").result() for index in range(self._num_workers)]

    def stop(self, grace_s: float = 5.0) -> None:
        """End all sessions (their actors' `end` is called with the reason `shutdown`) and close the port."""
        if self._run is not None:
            self._run.stop(grace_s)
            self._run = None
        if self._held is not None:
            self._held.close()
            self._held = None


@dataclass(frozen=True)
class _RecorderMaker:
    """Makes the recorder of a worker, in its own process."""

    folder: Path
    node: str

    def __call__(self, index: int) -> Recorder:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        path = self.folder / "recordings" / f"{self.node}-{index}-{stamp}.sessions"
        return Recorder(path, {"trial": str(self.folder), "worker": f"{self.node}/{index}"})


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
