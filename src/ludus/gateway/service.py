"""The gateway as a worker: its event loop is a thread of its own, and it is controlled like any other worker.

The main thread has nothing to do with steps. It shows that the process lives (`beat.py`), and sees to it that an event
loop that is held up does not stay so: in the end the worker is replaced. Until then, new connections go to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus import errors
from ludus.gateway.actor import ActorLike
from ludus.gateway.beat import EVERY_S, Beat
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.metrics import counts
from ludus.gateway.session_core import Observer
from ludus.gateway.thread import GatewayThread
from ludus.gateway.watch import LoopWatch
from ludus.telemetry.counts import Counts
from ludus.workers.register import register
from ludus.workers.server import WorkerServer
from ludus.workers.worker import Worker

__all__ = ["GatewayService"]

_LOOK_S = 1.0  # that a loop which is held up may keep those waiting who look at sessions


class GatewayService(Worker):
    """Worker i of the `size` on one port. Each session has an actor of its own: `actor(*args, **kwargs)`."""

    idle_s = EVERY_S

    def __init__(
        self,
        server: WorkerServer,
        options: GatewayOptions,
        actor: Callable[..., ActorLike],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        size: int = 1,
        make_observer: Callable[[int], Observer] | None = None,
        grace_s: float = 3.0,
    ) -> None:
        super().__init__(server)
        index = int(server.worker_name.rpartition("/")[2])
        self._options = options
        self._index = index
        self._beat: Beat | None = None
        self._loop_watch = LoopWatch(max_block_s=options.max_block_s)
        self._is_hung = False
        self._actor: Callable[[], ActorLike] = lambda: actor(*args, **(kwargs or {}))
        self._thread = GatewayThread(
            self._make_actor,
            options,
            index=index,
            size=size,
            observer=make_observer(index) if make_observer is not None else None,
            grace_s=grace_s,
        )
        server.register_service(self)

    def _make_actor(self) -> ActorLike:
        made = self._actor()
        self.note_work()  # it serves: from here on a death is a payload's fault, and no reason to give up on the worker
        return made

    def _start(self) -> None:
        self._beat = Beat(self._options.beat_path(self._index))
        self._thread.start()

    @register
    def where(self) -> dict[str, Any]:
        """The port it listens on."""
        return {"host": self._options.host, "port": self._thread.port}

    @register
    def sessions(self, most: int = 50) -> dict[str, Any]:
        """The newest sessions of this worker, and the shares of versions: see `Gateway.look`."""
        found: dict[str, Any] = self._ask_loop(lambda: self._thread.gateway.look(most))
        return found

    @register
    def steps(self, session: str, most: int = 32) -> dict[str, Any] | None:
        """One session and its last steps since somebody asks for them; `None` if it is not live here."""
        found: dict[str, Any] | None = self._ask_loop(lambda: self._thread.gateway.sessions.looks.steps(session, most))
        return found

    def _ask_loop(self, function: Callable[[], Any]) -> Any:
        try:
            return self._thread.call(function, patience_s=_LOOK_S)
        except TimeoutError:
            raise errors.WorkerError(
                "the gateway's event loop is held up, so it cannot say which sessions it has; an actor blocks it"
            ) from None

    def _poll(self) -> int:
        if not self._thread.is_alive:
            raise self._thread.error or errors.WorkerError("the gateway's event loop has ended")
        gateway = self._thread.gateway
        assert self._beat is not None
        self._beat.beat(gateway.num_turns)
        try:
            self._loop_watch.check(gateway.num_turns, cpu_s=self._thread.cpu_s, thread=self._thread.ident)
        except errors.WorkerError:
            self._is_hung = True
            raise
        return 0

    def _stats(self) -> Mapping[str, Any]:
        return self._thread.gateway.stats()

    @staticmethod
    def metric_counts(stats: Mapping[str, Any]) -> Counts:
        return counts(stats)

    def _exit(self) -> None:
        if self._beat is not None:
            self._beat.close()  # nobody expects beats of a worker that leaves
        if not self._is_hung:  # a loop that is held up would not hear that it is to stop
            self._thread.stop()
