"""Leagues whose versions are in Redis: they begin, go on, and keep their password to themselves."""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import torch

import ludus
from discovery import servers
from ludus import errors
from ludus.league import api, config
from ludus.league.live import find_league
from ludus.league.pools import open_pool
from ludus.models.topic import Update

from .games import GAME, SMALL

PASSWORD = "p@ss:word"
ALONE = {**SMALL, "main_exploiters": 0, "league_exploiters": 0, "bots": ("random",)}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = servers.free_port()
    command = [*servers.redis_command(port), "--requirepass", PASSWORD]
    with servers.running(command, port=port, folder=tmp_path_factory.mktemp("redis")):
        yield port


def versions_of(client: Any, model: str) -> list[int]:
    (key,) = client.keys(f"*:numbers:{model}")
    return [int(number) for number in client.zrange(key, 0, -1)]


def test_a_league_in_redis_begins_and_goes_on_and_its_password_is_in_one_private_file(
    port: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"redis://:p%40ss%3Aword@127.0.0.1:{port}/0"
    settings = {**ALONE, "project": str(tmp_path), "trial": "ttt"}
    with redis.Redis(port=port, password=PASSWORD) as client:
        client.flushall()
        run = api.league(GAME, pool=url, steps=1500, **settings)
        first = versions_of(client, "main")
        assert len(first) > 4, "snapshots stay, and the newest; all else was removed"
        folder = run.trial_dir
        assert not (folder / "models").exists()
        again = api.league(GAME, steps=3000, **settings)  # neither the pool nor its password is given again
        assert again.result["steps"] >= 3000
        later = versions_of(client, "main")
        assert later[-1] > first[-1]
        _folder, found = find_league("ttt", project=tmp_path)
        with contextlib.closing(open_pool(found, folder)) as pool:
            named = [each["version"] for each in again.standings if each["role"] == "snapshot"]
            assert named
            for number in named:
                assert pool.get("main", number)[0].number == number
            assert len(later) <= len(named) + 4
    secret = folder / "league" / "pool.secret"
    assert secret.stat().st_mode & 0o077 == 0
    known = [path for path in folder.rglob("*") if path.is_file() and b"p%40ss" in path.read_bytes()]
    known += [path for path in folder.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert known == [secret]
    assert json.loads((folder / "league" / "config.json").read_text())["pool"] == f"redis://127.0.0.1:{port}/0"
    out = capfd.readouterr()
    assert PASSWORD not in out.out + out.err
    assert "p%40ss" not in out.out + out.err
    with pytest.raises(errors.ConfigError, match="and stay there: resume it with its --pool"):
        api.league(GAME, **{**settings, "pool": None})
    with contextlib.closing(ludus.init(tmp_path, "ttt")):
        given = queue.SimpleQueue[Update]()
        with ludus.subscribe("main", given.put):
            assert given.get(timeout=60.0).number == later[-1]
        with pytest.raises(errors.ConfigError, match="neither a RemoteModel nor a clone can run them"):
            ludus.RemoteModel("main", torch.nn.Linear(2, 2))
    shutil.rmtree(folder)  # one that begins again under its name has versions of its own
    assert api.league(GAME, pool=url, steps=200, **settings).result["steps"] < 1500


def test_a_pool_that_cannot_be_is_refused_before_there_is_a_trial(port: int, tmp_path: Path) -> None:
    settings = {**SMALL, "project": str(tmp_path), "trial": "ttt", "steps": 100}
    wrong = [
        ("mongodb://there", errors.ConfigError, "redis://HOST:PORT"),
        (f"redis://127.0.0.1:{port}", errors.Unauthorised, "LUDUS_REDIS_PASSWORD"),
        ("redis://:secret@", errors.ConfigError, "no URL of a Redis server"),
    ]
    for url, error, says in wrong:
        with pytest.raises(error, match=says) as raised:
            api.league(GAME, pool=url, **settings)
        assert "secret" not in str(raised.value)
    assert not (tmp_path / "ttt").exists()


def test_a_league_whose_place_in_redis_is_not_known_says_so(tmp_path: Path) -> None:
    found = config.resolve(GAME, {**SMALL, "pool": "redis://127.0.0.1:1"})
    with pytest.raises(errors.ConfigError, match=r"pool\.json says where in Redis"):
        open_pool(found, tmp_path)


def test_a_league_does_not_leave_its_versions_behind(port: int, tmp_path: Path) -> None:
    settings = {**ALONE, "project": str(tmp_path), "trial": "ttt", "steps": 100}
    api.league(GAME, **settings)
    with pytest.raises(errors.ConfigError, match="resume it without pool"):
        api.league(GAME, pool=f"redis://127.0.0.1:{port}", **settings)
