from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from discovery import servers
from ludus import errors
from ludus.models.pools import redis_pool
from ludus.models.pools.redis_pool import RedisPool
from ludus.testing.model_pools import ModelPoolConformance

Server = tuple[str, "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = servers.free_port()
    folder = tmp_path_factory.mktemp("redis")
    with servers.running(servers.redis_command(port), port=port, folder=folder) as process:
        yield f"redis://127.0.0.1:{port}", process


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with redis.Redis.from_url(server[0]) as client:
        yield client
        client.config_set("maxmemory", 0)
        client.flushall()


class TestRedisPool(ModelPoolConformance):
    @pytest.fixture
    def where(self, server: Server, client: Any) -> str:
        return server[0]

    def damage(self, pool: Any, model: str, number: int) -> None:
        key = pool._version(model, number)
        client = pool._server.once(lambda client: client)
        content = bytearray(client.hget(key, "1.0"))
        content[-1] ^= 0xFF
        client.hset(key, "1.0", bytes(content))


@pytest.fixture
def pool(server: Server, client: Any) -> Iterator[RedisPool]:
    pool = RedisPool(server[0], prefix="tests")
    yield pool
    pool.close()


def weights(value: float, size: int = 4) -> dict[str, np.ndarray]:
    return {"w": np.full(size, value, np.float32)}


def test_pools_with_other_prefixes_do_not_see_each_other(pool: RedisPool, server: Server) -> None:
    other = RedisPool(server[0], prefix="other")
    pool.put("main", weights(1))
    assert (other.latest("main"), other.models()) == (None, [])
    other.close()
    with pytest.raises(errors.ConfigError, match="cannot be a prefix"):
        RedisPool(server[0], prefix="a:b")


def test_a_version_that_was_never_finished_is_not_there_and_expires(
    pool: RedisPool, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.put("main", weights(1))
    monkeypatch.setattr(redis_pool.redis_scripts, "COMMIT", "return redis.error_reply('TORN')")
    monkeypatch.setattr(pool, "_forget", lambda part: None)  # as if it was killed
    with pytest.raises(errors.DataError, match="not put; try again"):
        pool.put("main", weights(2))
    assert pool.numbers("main") == [0]
    (part,) = client.keys("*:part:*")
    assert 0 < client.pttl(part) <= 60_000
    assert client.pttl(pool._version("main", 0)) == -1, "one that is whole stays"


def test_a_put_whose_answer_was_lost_is_made_once(pool: RedisPool, monkeypatch: pytest.MonkeyPatch) -> None:
    write, lost = pool._write, []

    def losing(*args: Any) -> Any:
        answer = write(*args)
        if not lost:
            lost.append(answer)
            raise redis.exceptions.ConnectionError("the answer got lost")
        return answer

    monkeypatch.setattr(pool, "_write", losing)
    assert pool.put("main", weights(1)).number == 0
    assert (len(lost), pool.numbers("main"), pool.num_published("main")) == (1, [0], 1)


def test_a_full_server_says_so_and_keeps_what_it_has(pool: RedisPool, client: Any) -> None:
    pool.put("main", weights(1))
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 2_000_000)
    with pytest.raises(errors.Overloaded, match=r"no memory left.*Nothing was stored"):
        for value in range(5):
            pool.put("main", weights(value, 1_000_000))
    assert pool.numbers("main") == [0]
    assert pool.get("main")[1]["w"][0] == 1
    client.config_set("maxmemory", 0)
    assert pool.put("main", weights(2)).number == 1


def test_removed_parts_and_foreign_content_are_damage(pool: RedisPool, client: Any) -> None:
    for value in range(4):
        pool.put("main", weights(value))
    client.hdel(pool._version("main", 0), "1.0")
    client.hset(pool._version("main", 1), "record", b"\x81\xa1")
    client.set(pool._version("main", 2), "somebody's")
    for number in range(3):
        with pytest.raises(errors.DataError, match=r"damaged|refuses"):
            pool.get("main", number)
    assert pool.get("main")[0].number == 3


def test_a_record_that_claims_more_than_there_is_allocates_nothing(pool: RedisPool, client: Any) -> None:
    pool.put("main", weights(1))
    key = pool._version("main", 0)
    record = redis_pool._Record(digest="0" * 32, nbytes=1, created=0.0, frames=[1 << 60, 1])
    client.hset(key, "record", redis_pool.msgspec.msgpack.encode(record))
    with pytest.raises(errors.DataError, match="damaged"):
        pool.get("main")


def test_a_version_that_is_removed_while_it_is_read_is_missing_not_torn(
    pool: RedisPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in range(2):
        pool.put("main", weights(value, 20_000_000))
    read = pool._read_frames

    def removing(key: str, sizes: Any) -> Any:
        pool.remove("main", 0)
        return read(key, sizes)

    monkeypatch.setattr(pool, "_read_frames", removing)
    with pytest.raises(errors.DataError, match="no version 0"):
        pool.get("main", 0)
    assert pool.get("main")[1]["w"][-1] == 1


def test_a_server_that_lost_its_data_is_noticed(pool: RedisPool, client: Any, server: Server) -> None:
    pool.put("main", weights(1))
    client.flushall()
    for ask in (lambda: pool.latest("main"), lambda: pool.get("main"), lambda: pool.put("main", weights(2))):
        with pytest.raises(errors.DataError, match="is gone: the server was started without its data"):
            ask()
    again = RedisPool(server[0], prefix="tests", create=False)
    with pytest.raises(errors.DataError, match="is gone"):
        again.latest("main")
    again.close()


def test_a_server_that_is_stopped_for_a_moment_is_waited_for_and_one_that_is_gone_is_not(tmp_path: Path) -> None:
    port = servers.free_port()
    command = servers.redis_command(port)
    pool = RedisPool(f"redis://127.0.0.1:{port}", timeout_s=5.0)
    with servers.running(command, port=port, folder=tmp_path) as process:
        pool.put("main", weights(1))
        os.kill(process.pid, signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (process.pid, signal.SIGCONT)).start()
        assert pool.get("main")[1]["w"][0] == 1
    gone = RedisPool(f"redis://:secret@127.0.0.1:{port}", timeout_s=0.3)
    began = time.monotonic()
    with pytest.raises(errors.Unreachable, match=r"gave no answer within 0\.3 s") as raised:
        gone.put("main", weights(1))
    assert time.monotonic() - began < 3.0
    assert "secret" not in str(raised.value) + repr(gone)
    for each in (pool, gone):
        each.close()


def test_a_pool_goes_on_after_its_server_was_restarted_with_its_data(tmp_path: Path) -> None:
    port = servers.free_port()
    command = [*servers.redis_command(port), "--appendonly", "yes", "--dir", str(tmp_path)]
    pool = RedisPool(f"redis://127.0.0.1:{port}")
    with servers.running(command, port=port, folder=tmp_path):
        assert pool.put("main", weights(1)).number == 0
    with servers.running(command, port=port, folder=tmp_path):
        assert pool.put("main", weights(2)).number == 1
        assert [pool.get("main", number)[1]["w"][0] for number in (0, 1)] == [1, 2]
    pool.close()


def test_a_password_is_needed_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = servers.free_port()
    url = f"redis://127.0.0.1:{port}"
    with servers.running([*servers.redis_command(port), "--requirepass", "p@ss/word"], port=port, folder=tmp_path):
        for wrong in (url, f"redis://:wrong-one@127.0.0.1:{port}"):
            denied = RedisPool(wrong)
            with pytest.raises(errors.Unauthorised, match="LUDUS_REDIS_PASSWORD") as raised:
                denied.latest("main")
            assert "wrong-one" not in str(raised.value)
            denied.close()
        monkeypatch.setenv("LUDUS_REDIS_PASSWORD", "p@ss/word")
        pool = RedisPool(url)
        assert pool.put("main", weights(1)).number == 0
        assert "p@ss" not in repr(pool)
        pool.close()
