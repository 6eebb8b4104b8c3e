"""The policy of a training run as the model `policy` of its trial, for `ludus.init`, `ludus serve` and `ludus promote`.

A run whose simulators are processes of their own publishes its versions to `models/policy` as it trains; any run
writes checkpoints. What is missing for others to use it is written here, when they first ask, while it trains or later:
the definition of the model, and the newest checkpoint as a version.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ludus import errors, files

__all__ = ["MODEL", "is_published", "publish", "publish_if_trained"]

MODEL = "policy"
_MODELS, _OLD_VERSIONS = "models", "versions"
_LOG = logging.getLogger(__name__)


def publish(folder: Path) -> None:
    """Have the run's policy in the trial's models, by its newest version or checkpoint, whichever is later.

    Safe beside others that do the same, and beside the run itself. Raises `ConfigError` if the run names code that is
    not this user's own, and `CheckpointError` if it has neither a version nor a valid checkpoint.
    """
    from ludus import envs
    from ludus.experiment.checkpoints import CheckpointStore
    from ludus.experiment.saved_config import load_config
    from ludus.experiment.wiring import make_policy_spec  # brings torch
    from ludus.learn.policies.served import ServedPolicy
    from ludus.models.definition import Definition, ModelFolder
    from ludus.models.versions.store import VersionStore

    config = load_config(folder)
    env = envs.spec(config.train.env, **config.env_args)
    checkpoints, number = CheckpointStore(folder / "checkpoints"), None
    if checkpoints.is_empty and _has_versions(folder):  # it trains, and has written none yet
        version, weights = VersionStore(folder / _MODELS).get(MODEL)
        number = version.number
    else:
        content = checkpoints.load()[1]
        weights = content["weights"]
        number = None if config.is_embedded else int(content["learner"]["version"])
    policy = ServedPolicy(make_policy_spec(config, env), has_mask=env.has_mask)
    policy.load_weights(weights)
    _take_over_old_versions(folder)
    definition = Definition(module=policy, forward_args=policy.example())
    ModelFolder(folder / _MODELS, MODEL).adopt(definition, {"local_mode": True}, number=number)


def publish_if_trained(folder: Path) -> None:
    """`publish`, where there is something to publish. What hinders it is logged: the trial can be used without."""
    if is_published(folder):
        return
    try:
        publish(folder)
    except (errors.LudusError, OSError) as error:
        _LOG.warning("the policy of training run %r cannot be used as model %r: %s", folder.name, MODEL, error)


def is_published(folder: Path) -> bool:
    """Whether nothing is left for `publish` to do, or nothing can be done yet. Reads small files only."""
    from ludus.experiment.checkpoints import CheckpointStore  # these bring NumPy
    from ludus.models.adoption import read_adoption
    from ludus.models.versions.store import VersionStore

    if not (folder / "config.json").is_file():
        return True
    saved = CheckpointStore(folder / "checkpoints").records()
    if not saved and not _has_versions(folder):
        return True
    if (folder / _OLD_VERSIONS).is_dir() or not (folder / _MODELS / f"{MODEL}.definition").is_file():
        return False
    if not saved:
        return True
    try:
        newest = VersionStore(folder / _MODELS).get(MODEL)[0]
    except errors.DataError:
        return False
    adoption, digest = read_adoption(folder / _MODELS / MODEL), saved[-1].weights
    return digest is not None and adoption is not None and adoption.covers(digest, newest)


def _has_versions(folder: Path) -> bool:
    from ludus.models.versions.store import VersionStore

    return VersionStore(folder / _MODELS).latest(MODEL) is not None


def _take_over_old_versions(folder: Path) -> None:
    """Versions with a tag that a run left in `versions/`, where Ludus once had a second store; done once.

    Each keeps its number, unless that stands for other weights in `models/`.
    """
    from ludus.models.versions.store import VersionStore

    path = folder / _OLD_VERSIONS
    if not path.is_dir():
        return
    old, store = VersionStore(path), VersionStore(folder / _MODELS)
    known = store.tags(MODEL)
    for tag, number in sorted(old.tags(MODEL).items()):
        if tag in known:
            continue  # moved since, or taken over before a kill
        try:
            version, weights = old.get(MODEL, number)
        except errors.DataError as error:
            _LOG.warning("%s was not taken over from %s: %s", tag, path, error)
            continue
        there = {each.number: each.digest for each in store.versions(MODEL)}
        is_free = there.get(number) in (None, version.digest)
        made = store.publish(MODEL, weights, number=number if is_free else None, keep=len(there) + 1)
        store.tag(MODEL, tag, made.number)
    files.move(path, path.with_name(f"{_OLD_VERSIONS}.old"))
