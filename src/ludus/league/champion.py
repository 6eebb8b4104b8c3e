"""The champion of a league as the model `policy` of its trial, so that it is served like any other policy.

crowned = publish_champion(folder)                 # the network of main-3 is version 2 of `policy`
crowned.player, crowned.version
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import NamedTuple, Protocol

from ludus import envs
from ludus.errors import ConfigError
from ludus.experiment import wiring
from ludus.league import config as configs
from ludus.league.config import LeagueRunConfig
from ludus.league.folder import FOLDER
from ludus.league.imported_networks import ImportedNetworks
from ludus.league.players import Player
from ludus.league.pools import open_pool
from ludus.league.seats import NO_VERSION, ReadPool
from ludus.league.view import VIEW_FILE, expect_view
from ludus.league.viewed_players import viewed_player
from ludus.learn.policies.served import ServedPolicy
from ludus.models.adoption import read_adoption, write_adoption
from ludus.models.definition import Definition, ModelFolder
from ludus.models.versions.store import VersionStore
from ludus.serving import promotion
from ludus.trial.trained import MODEL

__all__ = [
    "PromotesPlayers",
    "Published",
    "crown",
    "crown_champion",
    "publish_champion",
    "served_policy",
    "why_not_served",
]

_MODELS = "models"


class Published(NamedTuple):
    player: str
    version: int  # of the model `policy`


class PromotesPlayers(Protocol):
    """A `LeagueService`, or the remote of one."""

    def promote(self, name: str | None) -> None: ...


def publish_champion(folder: Path, player: Player | None = None) -> Published:
    """The network of the champion, or of this player, as a version of `policy`; once for the same weights.

    Sessions play it when it is crowned. Raises as `served_policy` does.
    """
    player = player or viewed_player(folder)
    policy = served_policy(folder, player)
    models = folder / _MODELS
    definition = Definition(module=policy, forward_args=policy.example())
    ModelFolder(models, MODEL).adopt(definition, {"local_mode": True}, number=None)
    return Published(player.name, _as_newest(models))


def served_policy(folder: Path, player: Player) -> ServedPolicy:
    """What sessions would play if it were the champion. Nothing is written.

    Raises `ConfigError` for what `why_not_served` says, and `DataError` if its weights are gone.
    """
    why_not = why_not_served(folder, player)
    if why_not is not None:
        raise ConfigError(f"{why_not}. Promote another player: `ludus league promote TRIAL NAME`")
    config = configs.load(folder)
    policy = _own_policy(config)
    with contextlib.closing(open_pool(config, folder)) as pool:
        policy.load_weights(pool.get(str(player.model), _version_of(player, pool))[1])
    return policy


def why_not_served(folder: Path, player: Player) -> str | None:
    """A sentence, for a player that cannot be served, though it may be the champion of its league."""
    config = configs.load(folder)
    if player.role in ("bot", "human") or player.model is None:
        return f"{player.name!r} is a {player.role} and has no network that could be served"
    if config.league.oracle == "exact":
        return f"{player.name!r} is a table, by oracle=exact, and has no network that could be served"
    if player.model == MODEL:
        return f"the model of {player.name!r} is called {MODEL!r}, as what is served"
    imported = ImportedNetworks(folder).open(player.model)
    if imported is not None and imported.spec != _own_policy(config).spec:
        return f"{player.name!r} was imported, with another network than the league's own, which is what is served"
    with contextlib.closing(open_pool(config, folder)) as pool:
        if _version_of(player, pool) == NO_VERSION:
            return f"{player.name!r} has no network that could be served yet: the league has to train first"
    return None


def _version_of(player: Player, pool: ReadPool) -> int:
    newest = pool.latest(str(player.model)) if player.version is None else player.version
    return NO_VERSION if newest is None else newest


def _own_policy(config: LeagueRunConfig) -> ServedPolicy:
    """The network of the league's learners."""
    training = config.training
    env = envs.spec(training.train.env, **training.env_args)
    return ServedPolicy(wiring.make_policy_spec(training, env), has_mask=env.has_mask)


def _as_newest(models: Path) -> int:
    """The number of what was adopted last. A champion of before that comes back gets another: the newest is served."""
    adopted, store = read_adoption(models / MODEL), VersionStore(models)
    assert adopted is not None, "it was written just now"
    if store.latest(MODEL) != adopted.number:
        made = store.publish(MODEL, store.get(MODEL, adopted.number)[1], number=None)
        adopted = dataclasses.replace(adopted, number=made.number)
        write_adoption(models / MODEL, adopted)
    return adopted.number


def crown(folder: Path, player: Player, league: PromotesPlayers | None = None) -> Published:
    """`publish_champion`, and new sessions of a server play it from now on. It is the champion of `league`, too.

    What cannot be served is not promoted: its weights are a version before the league is asked, and sessions play it
    when the league has agreed. After a kill in between, the same call does the rest.
    """
    found = publish_champion(folder, player)
    if league is not None:
        league.promote(player.name)
    promotion.promote(folder, MODEL, found.version)
    return found


def crown_champion(folder: Path) -> Published:
    """`crown` of who is champion now. If nobody was promoted, until another one is rated higher."""
    found = publish_champion(folder)
    is_promoted = found.player == expect_view(folder / FOLDER / VIEW_FILE).get("champion")
    promotion.promote(folder, MODEL, found.version, by_default=not is_promoted)
    return found
