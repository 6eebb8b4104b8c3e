"""`ludus serve`: a trained policy behind the gateway, from its trial's folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus import envs, errors
from ludus.data.digest import digest
from ludus.data.lookup import load_attribute
from ludus.experiment.checkpoints import CheckpointStore
from ludus.experiment.training import load_config
from ludus.experiment.wiring import MODEL, make_policy_spec
from ludus.learn.policies.served import ServedPolicy
from ludus.remote import promotion
from ludus.remote.actor import RemoteActor
from ludus.remote.model import RemoteModel
from ludus.remote.policy_actor import PolicyActor

__all__ = ["load_actor", "publish_trained", "serve", "shares_of"]


def publish_trained(folder: Path) -> RemoteModel:
    """The policy of a training run as a named model of its trial: its newest checkpoint is the newest version."""
    config = load_config(folder)
    world = envs.spec(config.train.env, **config.env_args)
    _step, content = CheckpointStore(folder / "checkpoints").load()
    policy = ServedPolicy(make_policy_spec(config, world), has_mask=world.has_mask)
    policy.load_weights(content["weights"])
    model = RemoteModel(MODEL, policy, forward_args=policy.example(), local_mode=True)
    weights = policy.weights()
    if model.versions()[-1].digest != digest(weights):
        model.publish_weights(weights)
    return model


def load_actor(text: str) -> Any:
    """`module:Class` or `path/to/file.py:Class`, so that workers in other processes can import it, too."""
    where, _, name = text.rpartition(":")
    if where.endswith(".py"):
        path = Path(where).resolve()
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        text = f"{path.stem}:{name}"
    return load_attribute(text, what="actor")


def shares_of(version: str, canary: Mapping[str, float]) -> dict[str, float]:
    """What new sessions play: the canaries' shares, and `version` for the rest."""
    rest = 1.0 - sum(canary.values())
    if rest < -1e-9 or min(canary.values(), default=0.0) < 0:
        raise errors.ConfigError(f"the canaries' shares {dict(canary)} are more than all sessions together")
    return {version: max(0.0, rest), **canary}


def serve(
    folder: Path,
    *,
    version: str = promotion.PRODUCTION,
    canary: Mapping[str, float] | None = None,
    actor: str | None = None,
    actor_args: Mapping[str, Any] | None = None,
    **gateway: Any,
) -> RemoteActor:
    """Serve a trial that `ludus.init` was called for; `gateway` are the arguments of `RemoteActor`.

    A training run is served by a `PolicyActor`; another trial needs its `actor`, as `module:Class`. The tag
    `production` stands for the newest version when a trial is served for the first time; `promote` moves it.
    """
    if actor is None:
        model = publish_trained(folder)
        if promotion.PRODUCTION not in model.tags():
            promotion.promote(folder, MODEL)
        for wanted in (version, *(canary or {})):
            if not wanted.isdigit() and wanted not in ("latest", "follow") and wanted not in model.tags():
                raise errors.ConfigError(f"there is no version {wanted!r} of this policy; its tags: {model.tags()}")
        made: Any = PolicyActor
        arguments: dict[str, Any] = {"model": MODEL, **(actor_args or {})}
        route = shares_of(version, canary or {})
    else:
        made = load_actor(actor)
        arguments = dict(actor_args or {})
        route = shares_of(version, canary or {}) if canary or version != promotion.PRODUCTION else {}
    remote = RemoteActor(route=route, **gateway)
    remote.serve(made, **arguments)
    return remote
