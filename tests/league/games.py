"""What tests of leagues share: settings of small ones, and leagues that need not train to have players."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from ludus import envs
from ludus.experiment import saved_config, wiring
from ludus.league import config as configs
from ludus.league.config import LeagueRunConfig
from ludus.league.pools import open_pool
from ludus.league.running import make_service
from ludus.learn.policies.policy import Policy

SMALL: dict[str, Any] = {
    "num_envs": 8,
    "num_steps": 16,
    "minibatch_size": 128,
    "num_epochs": 1,
    "hidden": (16,),
    "games_per_match": 2,
    "turn_updates": 1,
    "snapshot_steps": 200,
    "bots": (),
}
GAME = "board:tic_tac_toe"


def own_game(name: str) -> str:
    """A game of `own_games.py`."""
    return f"{Path(__file__).with_name('own_games.py')}:{name}"


def new_league(folder: Path, game: str, **settings: Any) -> LeagueRunConfig:
    """The trial of a league that nobody has run yet, with the players that it begins with."""
    config = configs.resolve(game, {**SMALL, **settings}, algorithm="ppo")
    folder.mkdir(parents=True)
    saved_config.write_trial(folder, config.training)
    config.write(folder)
    config = dataclasses.replace(config, folder=folder)
    make_service(config, folder).close()
    return config


def policy_of(config: LeagueRunConfig, *, seed: int = 0, favours: int | None = None) -> Policy:
    """A network of the league. `favours`: it always does this; -1: it does anything, all alike."""
    env = envs.spec(config.game, **config.training.env_args)
    policy = Policy(wiring.make_policy_spec(config.training, env), seed=seed)
    if favours is not None:
        weights = {name: np.zeros_like(leaf) for name, leaf in policy.weights().items()}
        [bias] = [
            name for name, leaf in weights.items() if name.endswith("bias") and len(leaf) == policy.head.num_outputs
        ]
        if favours >= 0:
            weights[bias][favours] = 30.0
        policy.load_weights(weights)
    return policy


def add_frozen(config: LeagueRunConfig, name: str, policy: Policy) -> None:
    """These weights are a model of the league's pool, and a player of this name."""
    assert config.folder is not None
    with contextlib.closing(open_pool(config, config.folder)) as pool:
        pool.put(name, policy.weights(), number=0)
    with contextlib.closing(make_service(config, config.folder)) as service:
        service.add_player({"name": name, "role": "frozen", "model": name, "version": 0})
