"""A trained policy that plays: observations in, actions out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import envs, errors, spelling
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.saved_config import load_config
from ludus.learn.policies.policy import Policy
from ludus.learn.policies.served import ServedPolicy

__all__ = ["Player", "load_model_player", "load_player", "open_policy"]


class Player:
    """Plays one episode at a time: `act` for each observation, `reset` between episodes."""

    def __init__(self, policy: Policy, *, num_steps: int = 0, seed: int = 0) -> None:
        self.policy = policy
        self.num_steps = num_steps  # it was trained for
        self._rng = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """The next observation begins an episode: recurrent state is cleared."""
        self._state = self.policy.initial_state(1)
        self._is_first = True

    def act(self, obs: Nest, *, mask: NDArray[np.bool_] | None = None, greedy: bool = True) -> Any:
        """The action for one observation, as the environment takes it."""
        spec = self.policy.spec.obs
        if isinstance(spec, ArraySpec):
            obs = np.asarray(obs, spec.dtype)  # a plain list will do
        row = nests.map(lambda leaf, spec: np.asarray(leaf, spec.dtype).reshape(1, *spec.shape), obs, spec)
        masks = None if mask is None else np.asarray(mask, np.bool_).reshape(1, -1)
        action, _, self._state = self.policy.act(
            row, self._state, np.array([self._is_first]), self._rng, masks, greedy=greedy
        )
        self._is_first = False
        return action[0]


def load_player(folder: Path) -> Player:
    """The newest weights of a trial. Raises `CheckpointError` if there is no valid checkpoint."""
    from ludus.experiment.wiring import make_policy_spec

    config = load_config(folder)
    step, content = CheckpointStore(folder / "checkpoints").load()
    policy = Policy(make_policy_spec(config, envs.spec(config.train.env, **config.env_args)))
    policy.load_weights(content["weights"])
    return Player(policy, num_steps=step)


def load_model_player(folder: Path, model: str) -> Player:
    """The newest version of a policy that a script made as a model of its trial. Raises as `open_policy` does."""
    from ludus.models.versions.store import VersionStore

    policy = open_policy(folder, model)
    policy.load_weights(VersionStore(folder / "models").get(model)[1])
    return Player(policy)


def open_policy(folder: Path, model: str) -> ServedPolicy:
    """A policy that is a model of its trial, with the weights that it was made with.

    Raises `ConfigError` if there is no such model, or if it is not a policy.
    """
    from ludus.models.definition import ModelFolder

    models = ModelFolder(folder / "models", model)
    if not models.exists:
        raise errors.ConfigError(
            f"trial {folder.name!r} was not made by `ludus train`, and has no model {model!r}. "
            f"{spelling.nearest(model, models.others())} Choose one with --model"
        )
    module = models.definition().module
    if not isinstance(module, ServedPolicy):
        raise errors.ConfigError(
            f"the model {model!r} of trial {folder.name!r} is a {type(module).__name__}, not a policy (`ServedPolicy`)"
        )
    return module
