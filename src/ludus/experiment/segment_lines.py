"""Lines: how the segments of sessions come to the trainers' buffers.

    line = lines.take()                     # a session begins
    full = line.writer.see(obs)
    await line.push(full)                   # at once, unless the segment before it has not been queued yet
    lines.give_back(line)                   # the session is over; the next one goes on where it ended

A line is what a row of a simulator is: episodes follow each other in it, so no step of a segment is empty, and its
segments reach one trainer in their order. A session has a line to itself.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence

from ludus import errors
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.data.trajectory import RowWriter
from ludus.rpc.aio import AsyncRpcClient

__all__ = ["Line", "Lines"]

_LOG = logging.getLogger(__name__)
_CALL_S = 60.0
_RETRY_AFTER_S = 0.05


class Line:
    """Pushes one segment at a time. Made by `Lines`."""

    def __init__(self, rank: int, client: AsyncRpcClient, worker: str, writer: RowWriter) -> None:
        self.rank = rank
        self.writer = writer
        self._client = client
        self._producer = f"{worker}-{uuid.uuid4().hex[:12]}"
        self._number = 0
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False

    async def push(self, segment: Segment) -> None:
        """Have it queued, once the segment before it is. So a session is at most one segment ahead of its trainer."""
        if self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])  # a cancelled caller does not cancel the sending
        if self._is_closed:
            return
        self._number += 1
        sending = self._send(segment.to_nest(), f"{self._producer}/{self._number}")
        self._sending = asyncio.get_running_loop().create_task(sending)

    async def _send(self, segment: Nest, segment_id: str) -> None:
        while not self._is_closed:
            try:
                await self._client.call("push", [segment, segment_id], timeout_s=_CALL_S)
                return
            except errors.UNANSWERED as error:
                _LOG.info("segment %s is pushed again: %s", segment_id, error)
                await asyncio.sleep(_RETRY_AFTER_S)
            except errors.LudusError as error:
                _LOG.warning("segment %s was refused and is lost: %s", segment_id, error)
                return

    def close(self) -> None:
        """Push nothing from now on, also what is on its way; who waits for it goes on."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.cancel()


class Lines:
    """One trainer's buffer for each of `addresses`. Lives on one event loop."""

    def __init__(
        self, worker: str, addresses: Sequence[str], make_writer: Callable[[], RowWriter], *, secret: str | None
    ) -> None:
        self._worker = worker
        self._make_writer = make_writer
        self._clients = [AsyncRpcClient(address, secret=secret) for address in addresses]
        self._idle: list[list[Line]] = [[] for _ in addresses]
        self._live: set[Line] = set()
        self._num_taken = [0] * len(addresses)
        self._is_closed = False

    def __len__(self) -> int:
        """Of sessions that play."""
        return len(self._live)

    def take(self) -> Line:
        """A line to the trainer that has the fewest, in turn where they have as many."""
        num_live = [sum(line.rank == rank for line in self._live) for rank in range(len(self._clients))]
        rank = min(range(len(self._clients)), key=lambda rank: (num_live[rank], self._num_taken[rank]))
        self._num_taken[rank] += 1
        line = self._idle[rank].pop() if self._idle[rank] else self._make(rank)
        self._live.add(line)
        return line

    def give_back(self, line: Line) -> None:
        """Its session is over. If its episode has no end in it, the line has none either: another takes its place."""
        self._live.discard(line)
        if not self._is_closed and not line.writer.has_started and not line.writer.is_torn:
            self._idle[line.rank].append(line)

    def close(self) -> None:
        """Nothing more is learnt from: drop what is on its way."""
        self._is_closed = True
        for line in (*self._live, *(line for idle in self._idle for line in idle)):
            line.close()

    def _make(self, rank: int) -> Line:
        line = Line(rank, self._clients[rank], self._worker, self._make_writer())
        if self._is_closed:
            line.close()
        return line
