"""Versions of a league that has them in Redis, on its page; also when the server is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from discovery import servers
from ludus.clock import FakeClock
from ludus.models.pools import place
from ludus.models.pools.place import Place
from ludus.models.pools.redis_pool import RedisPool
from ludus.page import pooled_versions
from ludus.page.app import make_app
from ludus.page.pooled_versions import PooledVersions
from ludus.page.site import Site
from ludus.program.folder import TrialFolder

from .requests import ask
from .running import publish_versions


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = servers.free_port()
    with servers.running(servers.redis_command(port), port=port, folder=tmp_path_factory.mktemp("redis")):
        yield f"redis://127.0.0.1:{port}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return TrialFolder.create(tmp_path, "monday").path


def show(folder: Path) -> str:
    site = Site(folder.parent)
    answer = ask(make_app(site), f"/trials/{folder.name}/versions", x_ludus_part="1")
    site.close()
    assert answer.status == 200, answer.text
    return answer.text


def test_the_versions_of_players_are_shown_as_they_are_in_redis(url: str, folder: Path) -> None:
    pool = RedisPool(url, prefix="monday")
    for value in range(14):
        pool.put("main", {"w": np.full(250, value, np.float64)})
    pool.put("exploiter", {"w": np.zeros(3)}, number=4)
    pool.close()
    place.write_place(folder, Place(url, "monday"))
    text = show(folder)
    assert "Versions of main" in text
    assert f"12 of 14 versions, in Redis at {url}" in text
    assert text.count("2,000 B") == 12
    assert "Versions of exploiter" in text
    assert "Promote" not in text, "nothing serves them from there"
    publish_versions(folder)  # of the champion that is served
    text = show(folder)
    assert "Have production be version 3 of policy" in text
    assert "Versions of main" in text


def test_a_server_that_is_gone_is_named_and_holds_the_page_up_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooled_versions, "_ANSWER_S", 0.1)
    url = f"redis://127.0.0.1:{servers.free_port()}"
    place.write_place(folder, Place(url, "monday"))
    publish_versions(folder)
    text = show(folder)
    assert f"Versions in Redis are not shown: Redis at {url} gave no answer" in text
    assert "Have production be version 3 of policy" in text
    clock = FakeClock(100.0)
    versions, asked = PooledVersions(clock), []
    look = pooled_versions._look
    monkeypatch.setattr(pooled_versions, "_look", lambda *args: (asked.append(1), look(*args))[1])
    for _ in range(3):
        assert versions.look(folder).problem  # type: ignore[union-attr]
    assert len(asked) == 1
    clock.advance(11.0)
    versions.look(folder)
    assert len(asked) == 2


def test_a_place_that_cannot_be_read_is_said_and_a_trial_without_one_has_no_pool(folder: Path) -> None:
    assert PooledVersions().look(folder) is None
    (folder / "league").mkdir()
    (folder / "league" / "pool.json").write_text("{")
    assert "pool.json says where in Redis" in show(folder)
