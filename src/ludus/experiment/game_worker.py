"""Gateway workers of a training run: games call them, and what they play is learnt from.

    game ──HTTP──▶ GameActor ──obs──▶ kernel, in this process, on the trainer's newest weights ──▶ action ──▶ game
                       └── segments ──▶ Line ──▶ the buffer of a trainer

A session plays the newest version from one segment to the next, as a simulator does, unless its game asks for a certain
one. In the evaluation at the end of the run new sessions are greedy, and nothing is learnt any more.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.data.trajectory import RowWriter
from ludus.discovery import names as naming
from ludus.errors import DataError, InvalidObservation
from ludus.experiment.game_evaluation import EvaluationLog, Played
from ludus.experiment.policy_session import PolicySession
from ludus.experiment.segment_lines import Line, Lines
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.service import GatewayService
from ludus.gateway.session import FOLLOW, LATEST, Session, current
from ludus.learn.policies.policy import PolicySpec
from ludus.learn.policies.served import ServedPolicy
from ludus.models.definition import Definition
from ludus.models.kernel import Kernel
from ludus.models.kernel_threads import KernelThreads, LoopSink
from ludus.models.settings import ModelSettings
from ludus.models.versions.client import FarVersions, connect
from ludus.models.versions.store import VersionStore
from ludus.workers import context
from ludus.workers.register import register
from ludus.workers.server import WorkerServer

__all__ = ["GameActor", "GameSettings", "GameWorker", "SegmentVersions"]

_MAX_BATCH = 1024
_KEEP_VERSIONS = 8  # ready to run; sessions that are in the middle of their segments play older ones
_TRAINER_UP_S = 120.0


@dataclass(frozen=True, kw_only=True)
class GameSettings:
    """The settings of a gateway worker."""

    policy: PolicySpec
    has_mask: bool
    num_steps: int
    seed: int
    num_trainers: int
    model: str


class SegmentVersions:
    """The policy, run by a kernel in this process: a session keeps its version until `renew`, at its segment's end.

    One whose game asked for a number or a tag keeps that to its end; one that asked to `follow` has the newest in each
    step. A version that is gone, because many newer ones were published, is replaced by the newest.
    """

    def __init__(self, name: str, versions: VersionStore | FarVersions, kernel: KernelThreads) -> None:
        self.name = name
        self._versions = versions
        self._kernel = kernel
        self._sink: LoopSink | None = None

    async def forward(self, *args: Any) -> Nest:
        session = current.get()
        assert session is not None, "actors are called in sessions"
        wanted = session.wanted(self.name)
        number = session.versions.get(self.name)
        if number is None or wanted == FOLLOW:
            number = self._pin(session, LATEST if wanted == FOLLOW else wanted)
        try:
            return await self._run(number, args)
        except DataError:
            if wanted not in (LATEST, FOLLOW) or self._versions.latest(self.name) == number:
                raise
        return await self._run(self._pin(session, LATEST), args)

    def renew(self, session: Session) -> None:
        """A segment is full: the next is by the newest version."""
        if session.wanted(self.name) == LATEST:
            self._pin(session, LATEST)

    def _pin(self, session: Session, wanted: int | str) -> int:
        number = self._versions.resolve(self.name, wanted)
        session.pin(self.name, number)
        return number

    async def _run(self, number: int, args: tuple[Any, ...]) -> Nest:
        loop = asyncio.get_running_loop()
        if self._sink is None:
            self._sink = LoopSink(loop)
        future: asyncio.Future[Nest] = loop.create_future()
        self._kernel.submit(number, args, {}, self._sink, future)
        return await future


class GameActor(PolicySession):
    """Behind one session of a game that is learnt from, or that is played greedily in the evaluation.

    A tick without a session is answered greedily, and is not learnt from.
    """

    def __init__(self, worker: GameWorker) -> None:
        super().__init__(worker.policy, worker.model, greedy=True, seed=worker.settings.seed)
        self._worker = worker
        self._line: Line | None = None
        self._played: Played | None = None

    async def start(self, session: Session, data: bytes) -> bytes:
        log = self._worker.evaluation
        if log is None:
            line = self._line = self._worker.lines.take()
            session.add_done_callback(lambda: self._worker.lines.give_back(line))
            self._writer, self._is_greedy = line.writer, False
        else:
            self._writer = self._worker.make_writer()  # it counts; its segments go nowhere
            played = self._played = log.begin()
            if played is not None:
                session.add_done_callback(lambda: played.end(is_whole=False))
        return await super().start(session, data)

    async def tick(self, data: bytes) -> bytes:
        answer = await super().tick(data)
        if self._line is None and self._writer is not None and self._worker.evaluation is not None:
            self._worker.evaluation.note_step()
            if self._played is not None:
                self._played.note(self._writer.total_reward, self._writer.num_active)
        return answer

    async def end(self, data: bytes, reason: str = "asked") -> bytes:
        if reason == "shutdown":  # the run ends or is stopped: nobody learns from it
            return b""
        answer = await super().end(data)
        if self._played is not None:
            self._played.end(is_whole=reason == "asked")
        return answer

    async def keep(self, segment: Segment) -> None:
        if self._line is not None:
            await self._line.push(segment)
            self._worker.model.renew(self._session)

    def on_episode(self, total: float, length: int) -> None:
        if self._played is not None:
            self._played.note(total, length)

    def _mask(self, body: dict[str, Any]) -> Any:
        if body.get("mask") is not None and self._writer is not None and not self._policy.has_mask:
            raise InvalidObservation('this game has masks, and its spec does not say so: it must have "mask": true')
        return super()._mask(body)


class GameWorker(GatewayService):
    """Worker i of the `size` that games call on one port. `weights` is the remote of the trainer's `WeightsService`."""

    def __init__(
        self, server: WorkerServer, options: GatewayOptions, settings: GameSettings, weights: Any, *, size: int = 1
    ) -> None:
        super().__init__(server, options, self._make_game_actor, size=size)
        self.settings = settings
        self.policy = ServedPolicy(settings.policy, has_mask=settings.has_mask, has_value=False)
        self.evaluation: EvaluationLog | None = None
        self._weights = weights
        self._incarnation = uuid.uuid4().hex
        self._threads: KernelThreads | None = None

    def _start(self) -> None:
        """Wait for the trainers, then open the doors; until then games wait at the port."""
        versions = connect(self._weights)
        kernel = Kernel(
            self.settings.model,
            Definition(module=self.policy, forward_args=self.policy.example()),
            versions,
            settings=ModelSettings(backend="numpy", max_batch=_MAX_BATCH),
            keep_versions=_KEEP_VERSIONS,
        )
        self._threads = KernelThreads(kernel)
        self._threads.start()
        self._threads.wait_ready()
        self.model = SegmentVersions(self.settings.model, versions, self._threads)
        here = context.current()
        buffers = [
            here.names.wait(naming.worker(here.experiment, here.trial, f"buffer/{rank}"), _TRAINER_UP_S)
            for rank in range(self.settings.num_trainers)
        ]
        self.lines = Lines(self.server.worker_name, buffers, self.make_writer, secret=here.secret)
        super()._start()

    def make_writer(self) -> RowWriter:
        return RowWriter(
            num_steps=self.settings.num_steps,
            obs=self.policy.spec.obs,
            action=self.policy.spec.action,
            state=self.policy.state_spec,
            has_mask=self.policy.has_mask,
        )

    def _make_game_actor(self) -> GameActor:
        return GameActor(self)

    @register
    def evaluate(self, episodes: int, max_steps: int) -> dict[str, Any]:
        """Have sessions that begin from now on played greedily, and learn no more; what was played so far."""

        def look() -> dict[str, Any]:
            if self.evaluation is None:
                self.evaluation = EvaluationLog(episodes=episodes, max_steps=max_steps)
                self.lines.close()
            return {**self.evaluation.to_nest(), "incarnation": self._incarnation}

        answer: dict[str, Any] = self._thread.call(look)
        return answer

    def _stats(self) -> Mapping[str, Any]:
        if self._threads is None:
            return {}
        return {**super()._stats(), "num_learnt_from": len(self.lines), "model": self._threads.stats()}

    def _exit(self) -> None:
        super()._exit()
        if self._threads is not None:
            self._threads.close()
