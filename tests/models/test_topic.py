"""Parameter topics: every subscriber is notified of every new version, on a host, between hosts, and through Redis."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discovery import servers
from ludus import errors, launch
from ludus.models.pools.pool import open_pool
from ludus.models.topic import Subscription, Topic, TopicSource, Update
from ludus.models.versions.client import connect
from ludus.models.versions.service import WeightsService
from ludus.models.versions.store import VersionStore
from ludus.program import Program

PATIENCE_S = 60.0


def weights(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full(8, value, np.float32)}


def wait_until(is_so: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.002)


class Subscriber:
    """Writes down its updates."""

    def __init__(self, source: TopicSource, *, max_pending: int = 8) -> None:
        self.updates: list[Update] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.subscription = Topic(source, "policy").subscribe(self.take, max_pending=max_pending)

    def take(self, update: Update) -> None:
        assert (update.weights["w"] == update.weights["w"][0]).all()
        self.updates.append(update)
        self.may_go.wait(PATIENCE_S)

    @property
    def numbers(self) -> list[int]:
        return [update.number for update in self.updates]

    @property
    def values(self) -> list[float]:
        return [float(update.weights["w"][0]) for update in self.updates]

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.may_go.set()
        self.subscription.close()


@pytest.fixture(params=["folder", "pool", "far", "redis"])
def open_source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], TopicSource]]:
    """Opens one more connection to the same versions at each call: on this host, or as if on another."""
    opened: list[Any] = []

    def kept(source: Any) -> Any:
        opened.append(source)
        return source

    folder = tmp_path / "versions"
    if request.param == "redis":
        port = servers.free_port()
        with servers.running(servers.redis_command(port), port=port, folder=tmp_path):
            yield lambda: kept(open_pool(f"redis://127.0.0.1:{port}"))
            for source in opened:
                source.close()
        return
    if request.param == "far":
        program = Program("weights")
        handle = program.add("weights", WeightsService, str(folder), keep=2)
        with launch.local(program, project=tmp_path / "trials", threads=True) as run:
            remote = run.remote(handle)
            yield lambda: kept(connect(remote, cache=tmp_path / f"cache-{len(opened)}", is_far=True))
            for source in opened:
                source.close()
        return
    yield lambda: VersionStore(folder, keep=2) if request.param == "folder" else open_pool(folder)


def test_every_subscriber_is_notified_of_every_version_in_order(open_source: Callable[[], TopicSource]) -> None:
    topic = Topic(open_source(), "policy")
    with Subscriber(open_source(), max_pending=100) as early:
        assert topic.publish(weights(0)) == 0
        wait_until(lambda: early.numbers == [0])
        with Subscriber(open_source(), max_pending=100) as late:
            wait_until(lambda: late.numbers == [0])
            for value in range(1, 40):
                assert topic.publish(weights(value)) == value
            for each in (early, late):
                wait_until(lambda each=each: each.numbers == list(range(40)))
                assert each.values == [float(value) for value in range(40)]
                assert {update.num_missed for update in each.updates} == {0}
                stats = each.subscription.stats()
                assert (stats.num_updates, stats.num_missed, stats.num_failed, stats.num_pending) == (40, 0, 0, 0)


def test_a_late_subscriber_begins_with_the_newest(open_source: Callable[[], TopicSource]) -> None:
    topic = Topic(open_source(), "policy")
    for value in range(3):
        topic.publish(weights(value))
    with Subscriber(open_source()) as late:
        wait_until(lambda: late.numbers == [2])
        topic.publish(weights(3))
        wait_until(lambda: late.numbers == [2, 3])
        assert [update.num_missed for update in late.updates] == [0, 0]


def test_a_slow_subscriber_holds_up_nobody_and_knows_what_it_missed(
    open_source: Callable[[], TopicSource],
) -> None:
    topic = Topic(open_source(), "policy")
    with Subscriber(open_source(), max_pending=3) as slow, Subscriber(open_source(), max_pending=100) as quick:
        slow.may_go.clear()
        topic.publish(weights(0))
        wait_until(lambda: slow.numbers == [0])
        for value in range(1, 20):
            topic.publish(weights(value))
        wait_until(lambda: quick.numbers == list(range(20)))
        wait_until(lambda: slow.subscription.stats().num_missed == 16)
        assert slow.subscription.stats().num_pending == 3
        slow.may_go.set()
        wait_until(lambda: slow.numbers == [0, 17, 18, 19])
        assert [update.num_missed for update in slow.updates] == [0, 16, 0, 0]


def test_a_rewind_brings_the_newest_again(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    with Subscriber(VersionStore(tmp_path)) as subscriber:
        for value in range(3):
            store.publish("policy", weights(value), number=value)
        wait_until(lambda: subscriber.numbers == [0, 1, 2])
        store.rewind("policy", 0)
        wait_until(lambda: subscriber.numbers == [0, 1, 2, 0])
        store.publish("policy", weights(9), number=1)
        wait_until(lambda: subscriber.numbers == [0, 1, 2, 0, 1])
        assert subscriber.values[-1] == 9


def test_versions_that_were_gone_before_they_were_read_are_counted(tmp_path: Path) -> None:
    pool = open_pool(tmp_path)
    pool.put("policy", weights(0))

    class Held(VersionStore):
        """Looks only when it may, as a process that was stopped."""

        may_look = threading.Event()

        def changes(self, model: str) -> Any:
            self.may_look.wait(PATIENCE_S)
            return super().changes(model)

    Held.may_look.set()
    with Subscriber(Held(tmp_path)) as subscriber:
        wait_until(lambda: subscriber.numbers == [0])
        Held.may_look.clear()
        for value in range(1, 6):
            pool.put("policy", weights(value))
        for number in (2, 3):
            pool.remove("policy", number)
        Held.may_look.set()
        wait_until(lambda: subscriber.numbers == [0, 1, 4, 5] or subscriber.numbers == [0, 4, 5])
        wait_until(lambda: subscriber.subscription.stats().num_missed == 2)


def test_a_callback_that_fails_is_logged_and_called_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topic, given = Topic(VersionStore(tmp_path), "policy"), queue.SimpleQueue[int]()

    def fail_first(update: Update) -> None:
        given.put(update.number)
        if update.number == 0:
            raise ArithmeticError("at the first")

    with topic.subscribe(fail_first) as subscription:
        for value in range(2):
            topic.publish(weights(value))
        assert [given.get(timeout=PATIENCE_S) for _ in range(2)] == [0, 1]
        assert subscription.stats().num_failed == 1
    assert "at the first" in caplog.text
    with pytest.raises(errors.ConfigError, match="at least 1"):
        topic.subscribe(fail_first, max_pending=0)


def test_a_subscription_may_be_closed_by_its_own_callback_and_is_silent_after(tmp_path: Path) -> None:
    topic, given = Topic(VersionStore(tmp_path), "policy"), list[int]()
    opened = threading.Event()

    def close(update: Update) -> None:
        given.append(update.number)
        opened.wait(PATIENCE_S)
        subscription.close()

    subscription: Subscription = topic.subscribe(close)
    opened.set()
    for value in range(5):
        topic.publish(weights(value))
    for thread in subscription._threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert len(given) == 1


PUBLISHER = """
import sys, numpy as np
from ludus.models.topic import Topic
from ludus.models.versions.store import VersionStore
topic = Topic(VersionStore(sys.argv[1], keep=2, durable=False), "policy")
for value in range(int(sys.argv[2]), 10**6):
    number = topic.publish({"w": np.full(100_000, value, np.float32)})
    print(number, flush=True)
    sys.stdin.readline()
"""


def test_a_publisher_that_is_killed_and_restarted_is_followed(tmp_path: Path) -> None:
    with Subscriber(VersionStore(tmp_path), max_pending=100) as subscriber:
        expected = 0
        for _ in range(2):
            words = [sys.executable, "-c", PUBLISHER, str(tmp_path), str(expected)]
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as publisher:
                assert publisher.stdin is not None
                assert publisher.stdout is not None
                for _step in range(5):
                    assert int(publisher.stdout.readline()) == expected
                    expected += 1
                    if _step < 4:
                        publisher.stdin.write(b"\n")
                        publisher.stdin.flush()
                os.kill(publisher.pid, signal.SIGKILL)
        wait_until(lambda: subscriber.numbers == list(range(10)))
        assert subscriber.subscription.stats().num_missed == 0


def test_a_server_that_was_away_is_followed_again(tmp_path: Path) -> None:
    port = servers.free_port()
    command = [*servers.redis_command(port), "--appendonly", "yes", "--dir", str(tmp_path)]
    url = f"redis://127.0.0.1:{port}"
    pool, other = open_pool(url), open_pool(url)
    with servers.running(command, port=port, folder=tmp_path):
        Topic(pool, "policy").publish(weights(0))
        subscriber = Subscriber(other)
        wait_until(lambda: subscriber.numbers == [0])
    with servers.running(command, port=port, folder=tmp_path), subscriber:
        for value in (1, 2):
            Topic(pool, "policy").publish(weights(value))
        wait_until(lambda: subscriber.numbers == [0, 1, 2])
    for each in (pool, other):
        each.close()


class Gone(VersionStore):
    """A source that does not answer: first it raises, then it keeps its caller until it is released."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.num_asked = 0
        self.released = threading.Event()

    def num_published(self, model: str) -> int:
        self.num_asked += 1
        if self.num_asked > 1:
            assert self.released.wait(PATIENCE_S)
        raise errors.Unreachable("gone")


def test_who_closes_does_not_wait_for_a_source_that_is_gone(tmp_path: Path) -> None:
    gone = Gone(tmp_path)
    subscription = Topic(gone, "policy").subscribe(print)
    wait_until(lambda: gone.num_asked == 2)
    subscription.close()
    looking, calling = subscription._threads
    assert (looking.is_alive(), calling.is_alive()) == (True, False)
    gone.released.set()
    looking.join(PATIENCE_S)
    assert (looking.is_alive(), gone.num_asked) == (False, 2)
