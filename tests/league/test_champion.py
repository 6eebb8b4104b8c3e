"""A league's champion is a model of its trial, and what sessions play."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.errors import ConfigError
from ludus.experiment.player import open_policy
from ludus.league import api
from ludus.league.champion import crown, publish_champion
from ludus.league.players import Player
from ludus.league.view import read_view
from ludus.models.versions.store import VersionStore
from ludus.serving import promotion

from .games import GAME, SMALL


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("project")
    settings = {**SMALL, "main_exploiters": 0, "league_exploiters": 0, "bots": ("random",), "steps": 300}
    return api.league(GAME, project=str(project), trial="kept", **settings).trial_dir


def weights(folder: Path, model: str, version: int) -> list[bytes]:
    return [leaf.tobytes() for leaf in VersionStore(folder / "models").get(model, version)[1].values()]


def test_a_champion_is_served_by_its_own_weights_and_published_once(folder: Path) -> None:
    first = publish_champion(folder)
    view = read_view(folder / "league" / "view.json")
    assert view is not None
    (champion,) = [player for player in view["players"] if player["name"] == first.player]  # by luck: main or its past
    version = VersionStore(folder / "models").latest("main") if champion["version"] is None else champion["version"]
    assert version is not None
    assert weights(folder, "policy", first.version) == weights(folder, "main", version)
    assert publish_champion(folder) == first
    assert open_policy(folder, "policy").spec.action.num_choices == 9


def test_a_champion_of_before_that_comes_back_is_the_newest_again(folder: Path) -> None:
    numbers = VersionStore(folder / "models").versions("main")
    assert len(numbers) >= 2
    old, new = (
        Player(f"main-{each.number}", role="snapshot", model="main", version=each.number) for each in numbers[-2:]
    )
    versions = [publish_champion(folder, player).version for player in (old, new, old)]
    assert versions[0] < versions[1] < versions[2]
    assert weights(folder, "policy", versions[0]) == weights(folder, "policy", versions[2])
    assert publish_champion(folder, old).version == versions[2]


def test_who_is_crowned_is_in_production_from_then_on(folder: Path) -> None:
    newest = VersionStore(folder / "models").latest("main")
    found = crown(folder, Player("main-1", role="snapshot", model="main", version=newest))
    assert promotion.is_chosen(folder, "policy")
    assert VersionStore(folder / "models").tags("policy")["production"] == found.version


def test_a_bot_has_nothing_to_serve(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no network that could be served"):
        publish_champion(folder, Player("random", role="bot", model="random"))
