"""The champion of a league as the model `policy` of its trial, so that it is served like any other policy.

crowned = publish_champion(folder)                 # the network of main-3 is version 2 of `policy`
crowned.player, crowned.version
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import NamedTuple

from ludus import envs
from ludus.errors import ConfigError
from ludus.experiment import wiring
from ludus.league import config as configs
from ludus.league.folder import FOLDER
from ludus.league.live import champion_of
from ludus.league.players import Player, player_of
from ludus.league.pools import open_pool
from ludus.league.seats import NO_VERSION, Seats
from ludus.league.view import VIEW_FILE, expect_view
from ludus.learn.policies.served import ServedPolicy
from ludus.models.adoption import read_adoption, write_adoption
from ludus.models.definition import Definition, ModelFolder
from ludus.models.versions.store import VersionStore
from ludus.serving import promotion
from ludus.trial.trained import MODEL

__all__ = ["Published", "crown", "crown_champion", "publish_champion"]

_MODELS = "models"


class Published(NamedTuple):
    player: str
    version: int  # of the model `policy`


def publish_champion(folder: Path, player: Player | None = None) -> Published:
    """The network of the champion, or of this player, as a version of `policy`; once for the same weights.

    Sessions play it when it is crowned. Raises `ConfigError` if it has no network, and `DataError` if its weights are
    gone.
    """
    config = configs.load(folder)
    player = player or _champion(folder)
    training = config.training
    env = envs.spec(training.train.env, **training.env_args)
    policy = ServedPolicy(wiring.make_policy_spec(training, env), has_mask=env.has_mask)
    with contextlib.closing(open_pool(config, folder)) as pool:
        number = Seats(pool, policy.spec, config.game, training.env_args).version_of(player)
        if number == NO_VERSION or player.model is None:
            raise ConfigError(
                f"{player.name!r} is a {player.role} and has no network that could be served. Train the league first, "
                "or promote another player: `ludus league promote TRIAL NAME`"
            )
        if player.model == MODEL:
            raise ConfigError(f"the model of {player.name!r} is called {MODEL!r}, as what is served; rename it")
        policy.load_weights(pool.get(player.model, number)[1])
    models = folder / _MODELS
    definition = Definition(module=policy, forward_args=policy.example())
    ModelFolder(models, MODEL).adopt(definition, {"local_mode": True}, number=None)
    return Published(player.name, _as_newest(models))


def _as_newest(models: Path) -> int:
    """The number of what was adopted last. A champion of before that comes back gets another: the newest is served."""
    adopted, store = read_adoption(models / MODEL), VersionStore(models)
    assert adopted is not None, "it was written just now"
    if store.latest(MODEL) != adopted.number:
        made = store.publish(MODEL, store.get(MODEL, adopted.number)[1], number=None)
        adopted = dataclasses.replace(adopted, number=made.number)
        write_adoption(models / MODEL, adopted)
    return adopted.number


def crown(folder: Path, player: Player) -> Published:
    """`publish_champion`, and new sessions of a server play it from now on."""
    found = publish_champion(folder, player)
    promotion.promote(folder, MODEL, found.version)
    return found


def crown_champion(folder: Path) -> Published:
    """`crown` of who is champion now. If nobody was promoted, until another one is rated higher."""
    found = publish_champion(folder)
    is_promoted = found.player == expect_view(folder / FOLDER / VIEW_FILE).get("champion")
    promotion.promote(folder, MODEL, found.version, by_default=not is_promoted)
    return found


def _champion(folder: Path) -> Player:
    view = expect_view(folder / FOLDER / VIEW_FILE)
    fields = ("name", "role", "model", "version", "parent", "step", "sides", "search")
    players = [{"player": {field: each[field] for field in fields}} for each in view["players"]]
    found = champion_of(players, view.get("champion"))
    if found is None:
        raise ConfigError(f"nobody in the league {folder.name!r} could be served: all its players are bots or people")
    return player_of(found)
