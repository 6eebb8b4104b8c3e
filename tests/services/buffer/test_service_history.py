"""Histories: many clients at once, services that are killed and come back; what was recorded is checked afterwards."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import errors, launch
from ludus.program import Program, RestartPolicy
from ludus.services.buffer.buffer_settings import BufferSettings
from ludus.services.buffer.limiters import SamplesPerInsert
from ludus.services.buffer.replay_client import ReplayClient
from ludus.services.buffer.replay_service import ReplayService
from ludus.services.buffer.selectors import Prioritised
from ludus.services.buffer.service import BufferService
from ludus.services.buffer.table import TableSettings
from ludus.workers.remote import Remote

from .replay_rows import SPEC, numbers_of, rows
from .segments import wait_until

NUM_KILLS = 2


def in_threads(*functions: Callable[[], None]) -> Callable[[], None]:
    """Starts them all; what is returned waits for them and raises what one of them raised."""
    raised: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()

    def join() -> None:
        for thread in threads:
            thread.join(120)
        if raised:
            raise raised[0]

    return join


def kill(run: launch.Run) -> None:
    """The one worker, once it is there."""
    wait_until(lambda: any(worker.pid for worker in run.workers()))
    (pid,) = [worker.pid for worker in run.workers()]
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.chaos
def test_a_queue_that_persists_gives_each_item_once_in_the_order_of_its_producer(tmp_path: Path) -> None:
    num_producers, num_each = 3, 120
    program = Program("buffer")
    handle = program.add(
        "buffer",
        BufferService,
        BufferSettings(capacity=20),
        of="nest",
        folder=tmp_path / "kept",
        restarts=RestartPolicy(backoff_s=0.02),
    )
    acknowledged: list[list[int]] = [[] for _ in range(num_producers)]
    taken: list[list[tuple[int, int]]] = [[], []]
    num_unknown = [0, 0]  # takes whose answers were lost
    is_over = threading.Event()

    def produce(index: int, remote: Remote) -> None:
        push = 0
        for number in range(num_each):
            is_queued = False
            while not is_queued:
                push += 1
                is_queued = bool(push_once(remote, [index, number], f"p{index}/{push}"))
            acknowledged[index].append(number)

    def push_once(remote: Remote, item: list[int], push_id: str) -> int:
        while True:
            try:
                return int(remote.submit("push_many", [item], push_id, 0.2).result())
            except errors.UNANSWERED:
                continue

    def consume(index: int, remote: Remote) -> None:
        while not is_over.is_set():
            try:
                items = remote.submit("take_some", 1, 0.2).result()
            except errors.UNANSWERED:
                num_unknown[index] += 1
                continue
            taken[index] += [(producer, number) for producer, number in items]

    with launch.local(program, project=tmp_path) as run:
        remotes = [run.remote(handle) for _ in range(num_producers + 2)]
        join_producers = in_threads(
            *(lambda index=index: produce(index, remotes[index]) for index in range(num_producers))
        )
        join_consumers = in_threads(*(lambda index=index: consume(index, remotes[3 + index]) for index in range(2)))
        for number in range(1, NUM_KILLS + 1):
            wait_until(lambda number=number: sum(map(len, acknowledged)) > number * 60)
            kill(run)
        join_producers()
        wait_until(lambda: run.remote(handle).statistics()["size"] == 0)
        is_over.set()
        join_consumers()
    counts = Counter(entry for each in taken for entry in each)
    assert max(counts.values()) == 1, "each is taken once"
    expected = {(index, number) for index in range(num_producers) for number in acknowledged[index]}
    assert counts.keys() <= expected
    assert len(expected - counts.keys()) <= sum(num_unknown), "only what was on its way to a consumer can be lost"
    for each in taken:
        for index in range(num_producers):
            numbers = [number for producer, number in each if producer == index]
            assert numbers == sorted(numbers)


@pytest.mark.chaos
def test_replay_that_persists_keeps_its_band_its_counts_and_every_acknowledged_row(tmp_path: Path) -> None:
    ratio, min_size, tolerance, times, n = 2.0, 20, 40.0, 3, 4
    settings = TableSettings(
        sampler=Prioritised(exponent=0.5),
        limiter=SamplesPerInsert(ratio=ratio, min_size=min_size, tolerance=tolerance),
        max_times_sampled=times,
    )
    program = Program("replay")
    handle = program.add(
        "replay",
        ReplayService,
        SPEC,
        settings,
        num_slots=20_000,
        folder=tmp_path / "kept",
        persist=True,
        restarts=RestartPolicy(backoff_s=0.02),
    )
    acknowledged: list[list[int]] = [[], []]
    sampled: list[list[int]] = [[], []]
    num_repeated = [0, 0]
    is_inserted, is_over = threading.Event(), threading.Event()

    def insert(index: int, client: ReplayClient) -> None:
        rng = random.Random(index)
        number = index * 1_000_000
        while not is_inserted.is_set():
            numbers = list(range(number, number + rng.randint(1, 5)))
            number += len(numbers)
            client.insert(rows(*numbers), [rng.random() + 0.1 for _ in numbers])
            client.flush()
            acknowledged[index] += numbers

    def sample(index: int, client: ReplayClient) -> None:
        rng = np.random.default_rng(index)
        while not is_over.is_set():
            try:
                batch, keys, _ = client.sample(n, timeout_s=0.2)
            except errors.DeadlineExceeded:
                continue
            sampled[index] += numbers_of(batch)
            client.update_priorities(keys, rng.random(n) + 0.1)
        num_repeated[index] = client.client_stats().num_repeated

    with launch.local(program, project=tmp_path) as run:
        clients = [ReplayClient(run.remote(handle), num_ahead=0, credits=1) for _ in range(4)]
        join_samplers = in_threads(*(lambda index=index: sample(index, clients[2 + index]) for index in range(2)))
        join_inserters = in_threads(*(lambda index=index: insert(index, clients[index]) for index in range(2)))
        for number in range(1, NUM_KILLS + 1):
            wait_until(lambda number=number: sum(map(len, sampled)) > number * 150)
            kill(run)
        wait_until(lambda: sum(map(len, sampled)) > (NUM_KILLS + 1) * 150)
        is_inserted.set()
        join_inserters()  # which may wait for samples
        is_over.set()
        join_samplers()
        stats = run.remote(handle).statistics()
        there: dict[str, Any] = run.remote(handle).gather(np.arange(stats["num_inserted"] + 1000))
    stored = there["rows"]["number"][there["is_there"]].tolist()
    known = {number for each in acknowledged for number in each}
    assert len(stored) == len(set(stored)), "no row twice"
    assert set(stored) == known, "and all that were acknowledged, and no others: the ring has room for all"
    counts = Counter(number for each in sampled for number in each)
    assert max(counts.values()) <= times
    assert counts.keys() <= known
    # A call that was lost with the service may have drawn, or not have counted, up to `n`.
    lost = n * (sum(num_repeated) + NUM_KILLS)
    balance = stats["num_inserted"] * ratio - stats["num_sampled"]
    assert abs(balance - min_size * ratio) <= tolerance + lost
    num_gone = len(known) - stats["size"]
    assert num_gone * times <= counts.total() + lost, "what is gone was sampled as often as it may be"
