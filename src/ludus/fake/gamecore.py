"""A load generator: any number of games that play at once against a server, and what was measured.

report = FakeGamecore("http://127.0.0.1:8000", games=64, ticks=200).run()
print(report.text)
"""

from __future__ import annotations

import asyncio
import ssl
import time
import uuid
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ludus import errors
from ludus.fake.process import Usage, UsageMeter, is_here, listeners
from ludus.gateway.client import GameError, Place
from ludus.gateway.client.aio import AsyncGameClient
from ludus.gateway.loop import new_event_loop

__all__ = ["FakeGamecore", "LoadReport"]


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What was measured. Latencies are of ticks: with a `rate` from when one was due, else from when it was sent."""

    games: int
    num_requests: int  # that were answered as they should be
    num_ticks: int
    num_retries: int
    seconds: float
    requests_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    errors: Mapping[str, int]  # by code
    server: Usage | None  # `None`: unknown; the server is on another machine, or is another user's

    @property
    def num_errors(self) -> int:
        return sum(self.errors.values())

    @property
    def text(self) -> str:
        """For people."""
        server = "unknown"
        if self.server is not None:
            many = f" in {self.server.num_processes} processes" if self.server.num_processes > 1 else ""
            server = f"{self.server.cpu_percent:.0f} % CPU, {self.server.memory_mib:.0f} MiB{many}"
        counts = ", ".join(f"{code} {count}" for code, count in sorted(self.errors.items())) or "none"
        return (
            f"{self.games} games: {self.requests_per_s:,.0f} requests/s "
            f"({self.num_requests:,} in {self.seconds:.2f} s)\n"
            f"  tick latency  p50 {self.p50_ms:.2f} ms, p95 {self.p95_ms:.2f} ms, p99 {self.p99_ms:.2f} ms, "
            f"most {self.max_ms:.2f} ms\n"
            f"  errors        {counts}; sent again {self.num_retries}\n"
            f"  server        {server}"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class FakeGamecore:
    """`games` at once; each plays `episodes` of `ticks`, with bodies of `body_bytes` or with `body`.

    `rate`: ticks a second of all games together; without it each sends its next tick when the last is answered. A
    problem ends the episode it happens in and is counted. `check(answer)` may look at each tick's answer and returns
    whether it is right; a wrong one is counted as `wrong_answer`.
    """

    def __init__(
        self,
        url: str,
        games: int = 64,
        ticks: int = 200,
        *,
        episodes: int = 1,
        body_bytes: int = 1024,
        body: bytes | None = None,
        rate: float | None = None,
        numbered: bool = True,
        timeout_s: float = 10.0,
        retries: int = 5,
        token: str | None = None,
        secret: str | None = None,
        key: str = "game",
        session: str | None = None,
        context: ssl.SSLContext | None = None,
        check: Callable[[bytes], bool] | None = None,
    ) -> None:
        for name, value in (("games", games), ("ticks", ticks), ("episodes", episodes)):
            if value < 1:
                raise errors.ConfigError(f"{name} is {value}; it must be 1 or more")
        if body_bytes < 0:
            raise errors.ConfigError(f"body_bytes is {body_bytes}; it must be 0 or more")
        if rate is not None and not rate > 0:
            raise errors.ConfigError(f"rate is {rate}; it must be more than 0 ticks a second")
        self._place = Place(url)
        self._games = games
        self._ticks = ticks
        self._episodes = episodes
        self._body = bytes(body_bytes) if body is None else body
        self._interval_s = games / rate if rate is not None else None
        self._check = check
        self._prefix = session or f"fake-{uuid.uuid4().hex[:12]}"
        self._make: Callable[[str], AsyncGameClient] = lambda session: AsyncGameClient(
            url,
            session,
            numbered=numbered,
            timeout_s=timeout_s,
            retries=retries,
            token=token,
            secret=secret,
            key=key,
            context=context,
        )
        self.num_requests = 0  # so far: for progress
        self._latencies = array("d")
        self._errors: Counter[str] = Counter()
        self._num_retries = 0

    def run(self) -> LoadReport:
        """Play it all, on an event loop of its own."""
        loop = new_event_loop()
        try:
            return loop.run_until_complete(self.play())
        finally:
            loop.close()

    async def play(self) -> LoadReport:
        """Play it all, on this event loop."""
        self.num_requests = self._num_retries = 0
        self._latencies = array("d")
        self._errors = Counter()
        pids = listeners(self._place.port) if is_here(self._place.host) else []
        meter = UsageMeter(pids)
        began = time.perf_counter()
        await asyncio.gather(*(self._play_game(index) for index in range(self._games)))
        seconds = time.perf_counter() - began
        return self._report(seconds, meter.read())

    async def _play_game(self, index: int) -> None:
        client = self._make(f"{self._prefix}-{index}")
        offset_s = self._interval_s * index / self._games if self._interval_s is not None else 0.0
        try:
            for _ in range(self._episodes):
                try:
                    await self._play_episode(client, offset_s)
                except GameError as error:
                    self._errors[error.code] += 1
                except errors.Unreachable:
                    self._errors["unreachable"] += 1
                except errors.OutcomeUnknown:
                    self._errors["broken_connection"] += 1
        finally:
            self._num_retries += client.num_retries
            client.close()

    async def _play_episode(self, client: AsyncGameClient, offset_s: float) -> None:
        clock = time.perf_counter
        body, interval_s, check = self._body, self._interval_s, self._check
        await client.start(body)
        self.num_requests += 1
        due = clock() + offset_s
        for _ in range(self._ticks):
            began = clock()
            if interval_s is not None:
                if due > began:
                    await asyncio.sleep(due - began)
                began, due = due, due + interval_s
            answer = await client.tick(body)
            self._latencies.append(clock() - began)
            self.num_requests += 1
            if check is not None and not check(answer):
                self._errors["wrong_answer"] += 1
        await client.end(body)
        self.num_requests += 1

    def _report(self, seconds: float, usage: Usage | None) -> LoadReport:
        ordered = sorted(self._latencies)

        def percentile(share: float) -> float:
            if not ordered:
                return 0.0
            return round(1e3 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 4)

        return LoadReport(
            games=self._games,
            num_requests=self.num_requests,
            num_ticks=len(ordered),
            num_retries=self._num_retries,
            seconds=round(seconds, 4),
            requests_per_s=round(self.num_requests / max(seconds, 1e-9), 1),
            p50_ms=percentile(0.5),
            p95_ms=percentile(0.95),
            p99_ms=percentile(0.99),
            max_ms=percentile(1.0),
            errors=dict(self._errors),
            server=usage,
        )
