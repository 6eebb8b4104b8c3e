"""A player of a league from elsewhere: weights of another trial, which may have another network.

    import_player("league-board-connect_four", "rival", "monday")              # the newest checkpoint of `ludus train`
    import_player("league-board-connect_four", "old", "other-league@main-3")

Weights and the definition of their network are copied, so that the other trial may be changed or removed. None of its
code is run that this user has not made, or trusted, on this machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus import envs, files
from ludus.core import EnvSpec
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.errors import ConfigError, DataError
from ludus.experiment import wiring
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.config import Config
from ludus.experiment.saved_config import load_config
from ludus.league import config as configs
from ludus.league.config import LeagueRunConfig
from ludus.league.folder import FOLDER
from ludus.league.imported_networks import ImportedNetworks
from ludus.league.live import find_league, open_league
from ludus.league.players import Player, player_to_nest
from ludus.league.pools import open_pool
from ludus.league.viewed_players import viewed_player
from ludus.learn.policies.served import ServedPolicy
from ludus.models.pools.folder_pool import FolderPool
from ludus.models.pools.pool import ModelPool
from ludus.models.versions.store import VersionStore
from ludus.trial.find import find
from ludus.trial.trained import MODEL

__all__ = ["import_player"]

_MODELS = "models"
_LOCK = ".lock"


class _Source(NamedTuple):
    policy: ServedPolicy  # with its weights
    name: str  # for messages


def import_player(
    trial: str | Path,
    name: str,
    source: str,
    *,
    project: str | Path = "trials",
    model: str | None = None,
    sides: Sequence[int] = (),
    search: int = 0,
    gumbel: bool = False,
) -> Player:
    """Add a player in the role `frozen` to a league that runs or not. `model`: what it is called in the pool.

    `source` is TRIAL, TRIAL@VERSION (a number or a tag of its model `policy`), LEAGUE (its champion) or LEAGUE@PLAYER.
    Raises `ConfigError` or `DataError` for one that does not fit the league's game, is not there, or has no network;
    the league has no new player then. Called again after a kill, it does what was left to do.
    """
    folder, config = find_league(trial, project=project)
    if config.league.oracle == "exact":
        raise ConfigError(f"the players of {folder.name!r} are tables (oracle=exact): it takes none with a network")
    player = Player(
        name, role="frozen", model=model or name, version=0, sides=tuple(sides), search=search, gumbel=gumbel
    )
    found = _read(source, project)
    training = config.training
    _expect_fits(found, envs.spec(training.train.env, **training.env_args), folder)
    networks = ImportedNetworks(folder)
    files.make_folder(networks.folder)
    with (
        files.lock(networks.folder / _LOCK),
        contextlib.closing(_durable_pool(config, folder)) as pool,
        open_league(folder) as league,
    ):
        _expect_free(player, league.players(), networks, pool)
        version = _put(pool, str(player.model), found.policy.weights())
        networks.add(str(player.model), found.policy)
        player = Player(**{**vars(player), "version": version})
        league.add_player(player_to_nest(player))
    return player


def _durable_pool(config: LeagueRunConfig, folder: Path) -> ModelPool:
    """The league's. After a power cut nothing else has these weights, as a learner's checkpoint has its own."""
    return FolderPool(folder / _MODELS, durable=True) if config.league.pool is None else open_pool(config, folder)


def _expect_free(player: Player, players: Sequence[Nest], networks: ImportedNetworks, pool: ModelPool) -> None:
    """Raise `ConfigError` if its name, or that of its model, is another's."""
    if any(each["name"] == player.name for each in players):
        raise ConfigError(f"there is a player {player.name!r} already; nothing was added. Give another name")
    model = str(player.model)
    owner = next((each["name"] for each in players if each["model"] == model), None)
    is_left_over = model in networks  # of an import that was broken off, or of a player that was removed
    if owner is not None or (pool.latest(model) is not None and not is_left_over):
        of = "versions of a player that was removed" if owner is None else f"that of {owner!r}"
        raise ConfigError(f"the model {model!r} is {of}; nothing was added. Give another with --model NAME")


def _put(pool: ModelPool, model: str, weights: Mapping[str, NDArray[Any]]) -> int:
    """Its number in the pool: another one only for other weights."""
    newest = pool.latest(model)
    if newest is not None:
        there = pool.get(model)[1]
        if there.keys() == weights.keys() and all(np.array_equal(there[key], weights[key]) for key in weights):
            return newest
    return int(pool.put(model, weights, number=0 if newest is None else newest + 1).number)


# --- where it comes from


def _read(source: str, project: str | Path) -> _Source:
    of_trial, _, which = source.partition("@")
    folder = find(of_trial, project=project).path
    if (folder / FOLDER).is_dir():
        return _of_league(folder, which or None)
    return _of_training(folder, which or None)


def _of_league(folder: Path, name: str | None) -> _Source:
    config = configs.load(folder)
    player = viewed_player(folder, name)
    if player.role in ("bot", "human") or player.model is None:
        what = "a person" if player.role == "human" else "a bot: --role bot --model adds such a one"
        raise ConfigError(f"{player.name!r} of {folder.name!r} has no network, it is {what}. Nothing was added")
    if config.league.oracle == "exact":
        raise ConfigError(f"{player.name!r} of {folder.name!r} is a table (oracle=exact). Nothing was added")
    with contextlib.closing(open_pool(config, folder)) as pool:
        number = pool.latest(player.model) if player.version is None else player.version
        if number is None:
            raise DataError(f"{player.name!r} of {folder.name!r} has no version yet: let it train first")
        weights = pool.get(player.model, number)[1]
    policy = ImportedNetworks(folder).open(player.model)
    if not isinstance(policy, ServedPolicy):
        policy = _policy_of(config.training)
    policy.load_weights(weights)
    return _Source(policy, f"{player.name!r} of {folder.name!r}")


def _of_training(folder: Path, version: str | None) -> _Source:
    policy = _policy_of(load_config(folder))
    checkpoints = CheckpointStore(folder / "checkpoints")
    if version is None and not checkpoints.is_empty:
        weights = checkpoints.load()[1]["weights"]
    else:
        wanted = version or "latest"
        weights = VersionStore(folder / _MODELS).get(MODEL, int(wanted) if wanted.isdecimal() else wanted)[1]
    policy.load_weights(weights)
    return _Source(policy, f"the policy of {folder.name!r}")


def _policy_of(config: Config) -> ServedPolicy:
    env = envs.spec(config.train.env, **config.env_args)
    return ServedPolicy(wiring.make_policy_spec(config, env), has_mask=env.has_mask)


def _expect_fits(source: _Source, env: EnvSpec, folder: Path) -> None:
    """Raise `ConfigError` if it sees or does something else than players of the league's game."""
    spec = source.policy.spec
    for what, own, needed in (
        ("sees", _spelt(spec.obs), _spelt(env.obs)),
        ("does", repr(spec.action), repr(env.action)),
    ):
        if own != needed:
            raise ConfigError(
                f"{source.name} does not fit {env.name}, the game of {folder.name!r}: it {what} {own}, and a player of "
                f"that game {what} {needed}. Nothing was added"
            )


def _spelt(obs: Nest) -> str:
    return str(nests.map(lambda leaf: None if leaf is None else f"{leaf.dtype}{list(leaf.shape)}", obs))
