"""Where the versions of a trial are: its folder says it to every process that opens them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from discovery import servers
from ludus import errors
from ludus.models.pools import place as places
from ludus.models.pools.place import Place
from ludus.models.pools.redis_pool import RedisPool

PASSWORD = "p@ss:word"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = servers.free_port()
    command = [*servers.redis_command(port), "--requirepass", PASSWORD]
    with servers.running(command, port=port, folder=tmp_path_factory.mktemp("redis")):
        yield port


def weights(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full(3, value, np.float32)}


def test_a_trial_that_says_nothing_has_its_versions_in_its_folder(tmp_path: Path) -> None:
    assert places.find_place(tmp_path) is None
    assert not places.is_in_redis(tmp_path)
    places.expect_in_folder(tmp_path, "main")
    with contextlib.closing(places.open_pool_of(tmp_path)) as pool:
        pool.put("main", weights(1))
    assert (tmp_path / "models" / "main").is_dir()


def test_a_trial_that_says_where_in_redis_is_opened_there_with_its_password(port: int, tmp_path: Path) -> None:
    place = Place(f"redis://127.0.0.1:{port}/0", "monday")
    with contextlib.closing(RedisPool(f"redis://:p%40ss%3Aword@127.0.0.1:{port}/0", prefix="monday")) as pool:
        pool.put("main", weights(2))
    places.write_place(tmp_path, place, password=PASSWORD)
    places.write_place(tmp_path, place)
    assert places.find_place(tmp_path) == place
    assert PASSWORD not in (tmp_path / "league" / "pool.json").read_text()
    with contextlib.closing(places.open_pool_of(tmp_path)) as pool:
        assert pool.get("main")[1]["w"][0] == 2
        assert (pool.numbers("main"), pool.models()) == ([0], ["main"])
    places.expect_in_folder(tmp_path, "mine")
    with pytest.raises(errors.ConfigError, match=rf"'main' are in Redis at redis://127\.0\.0\.1:{port}/0, where"):
        places.expect_in_folder(tmp_path, "main")
    places.write_place(tmp_path, Place(place.url, "tuesday"))
    with (
        contextlib.closing(places.open_pool_of(tmp_path)) as pool,
        pytest.raises(errors.DataError, match="is gone: the server was started without its data"),
    ):
        pool.latest("main")


def test_a_server_that_is_gone_is_named_and_waited_for_only_so_long(tmp_path: Path) -> None:
    port = servers.free_port()
    places.write_place(tmp_path, Place(f"redis://127.0.0.1:{port}", "monday"))
    began = time.monotonic()
    with (
        contextlib.closing(places.open_pool_of(tmp_path, timeout_s=0.1)) as pool,
        pytest.raises(errors.Unreachable, match=rf"Redis at redis://127\.0\.0\.1:{port} gave no answer within 0\.1 s"),
    ):
        pool.models()
    assert time.monotonic() - began < 10.0


def test_what_cannot_be_read_is_no_reason_to_look_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "league").mkdir()
    for damaged in ("", "[]", '{"url": "redis://cache"}', "{"):
        (tmp_path / "league" / "pool.json").write_text(damaged)
        assert places.is_in_redis(tmp_path)
        for ask in (places.find_place, places.open_pool_of):
            with pytest.raises(errors.ConfigError, match=r"pool\.json says where in Redis .* cannot be read"):
                ask(tmp_path)
