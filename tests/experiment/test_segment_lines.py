"""Lines: segments of sessions on their way to the trainers' buffers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.data.trajectory import RowWriter
from ludus.experiment.segment_lines import Lines
from ludus.rpc.server import RpcServer
from ludus.services.buffer.service import BufferService

OBS = ArraySpec((1,), np.float32)
SPECS: dict[str, Any] = {"obs": OBS, "action": Discrete(2)}


def make_writer() -> RowWriter:
    return RowWriter(num_steps=2, **SPECS)


def segment(value: float) -> Segment:
    made = Segment.allocate(2, 1, **SPECS)
    made.reward[:] = value
    return made


@contextmanager
def buffers(*capacities: int) -> Iterator[tuple[list[BufferService], list[str]]]:
    """Real ones, each behind a real server; the addresses to reach them at."""
    services = [BufferService(capacity) for capacity in capacities]
    servers = [RpcServer(0) for _ in services]
    is_over = threading.Event()

    def serve(server: RpcServer) -> None:
        while not is_over.is_set():
            server.handle_requests(timeout_s=0.05)

    threads = [threading.Thread(target=serve, args=(server,)) for server in servers]
    for service, server in zip(services, servers, strict=True):
        server.register_handler("push", service.push)
        server.start()
    for thread in threads:
        thread.start()
    try:
        yield services, [server.address for server in servers]
    finally:
        is_over.set()
        for thread, server in zip(threads, servers, strict=True):
            thread.join()
            server.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.002)


def rewards(service: BufferService) -> list[float]:
    return [float(item.segment.reward[0, 0]) for item in service.buffer.take(1)]


def test_a_session_is_at_most_one_segment_ahead_of_its_trainer() -> None:
    async def play() -> None:
        line = Lines("gateway/0", addresses, make_writer, secret=None).take()
        await line.push(segment(1))
        await line.push(segment(2))
        await until(lambda: service.buffer.statistics().num_waiting_producers == 1)
        third = asyncio.get_running_loop().create_task(line.push(segment(3)))
        await asyncio.sleep(0.05)
        assert not third.done(), "the buffer is full, and the second waits there"
        assert rewards(service) == [1]
        await third
        for value in (2, 3):
            await until(lambda: len(service.buffer) == 1)
            assert rewards(service) == [value]
        assert service.buffer.statistics().num_duplicates == 0

    with buffers(1) as ([service], addresses):
        asyncio.run(play())


def test_waiters_go_on_when_nothing_is_learnt_any_more() -> None:
    async def play() -> None:
        lines = Lines("gateway/0", addresses, make_writer, secret=None)
        line = lines.take()
        for value in (1, 2):
            await line.push(segment(value))
        await until(lambda: service.buffer.statistics().num_waiting_producers == 1)
        third = asyncio.get_running_loop().create_task(line.push(segment(3)))
        await asyncio.sleep(0)
        lines.close()
        async with asyncio.timeout(60):
            await third
            await line.push(segment(4))
            await lines.take().push(segment(5))
        assert rewards(service) == [1]

    with buffers(1) as ([service], addresses):
        asyncio.run(play())


def test_the_trainer_with_the_fewest_sessions_gets_the_next() -> None:
    async def play() -> None:
        lines = Lines("gateway/0", addresses, make_writer, secret=None)
        first, second, third = (lines.take() for _ in range(3))
        assert (first.rank, second.rank, third.rank) == (0, 1, 0)
        lines.give_back(first)
        lines.give_back(third)
        assert len(lines) == 1
        again = lines.take()
        assert again in (first, third), "a line goes on where its last session ended"
        lines.give_back(again)
        lines.give_back(second)
        assert [lines.take().rank for _ in range(4)].count(1) == 2

    with buffers(4, 4) as (_, addresses):
        asyncio.run(play())


def test_an_episode_without_an_end_is_the_last_of_its_line() -> None:
    async def play() -> None:
        lines = Lines("gateway/0", addresses, make_writer, secret=None)
        line = lines.take()
        line.writer.see(np.zeros(1, np.float32))
        line.writer.act(0, 0.0, 1)
        lines.give_back(line)
        other = lines.take()
        assert other is not line
        assert not other.writer.has_started

    with buffers(4) as (_, addresses):
        asyncio.run(play())
