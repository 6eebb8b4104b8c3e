"""Topics of the trial that `ludus.init` began: one for each model, also for one that is nothing but parameters.

ludus.topic("policy").publish(weights)                     # one version more, as `RemoteModel.publish_weights`
subscription = ludus.subscribe("policy", on_update)        # in any process of the trial on this host

A league may have its versions in Redis (`--pool redis://…`): then its players' topics are there, and so are those of
parameters without a model. A model that a script made is in the folder of the trial.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ludus.models.pools import place
from ludus.models.pools.pool import ModelPool
from ludus.models.topic import OnUpdate, Subscription, Topic
from ludus.models.versions.store import Version, VersionStore
from ludus.trial import current as trials
from ludus.trial.trained import MODEL
from ludus.trial.trial import Trial

__all__ = ["subscribe", "topic"]

_LOG = logging.getLogger(__name__)
_KEEP = 8


def topic(name: str, *, trial: Trial | None = None) -> Topic:
    """The topic of a model. If the model is there, what is published must fit it: arrays, tensors or a module.

    Of parameters without a model, which are arrays by name, the newest 8 versions stay; in Redis all of them, until
    somebody removes them.
    """
    own = trial if trial is not None else trials.current()
    pool = _pool_of(own, name)
    if pool is not None:
        return Topic(pool, name, publisher=lambda weights: pool.put(name, _arrays(weights)))
    models = Path(own.folder) / "models"
    store = VersionStore(models, keep=_KEEP)

    def publish(weights: Mapping[str, Any]) -> Version:
        if _is_plain(weights) and not (models / f"{name}.definition").exists():
            return store.publish(name, weights, number=None)
        from ludus.models import definition, registry  # brings torch, which plain parameters do not need

        arrays = _arrays(weights)
        if definition.ModelFolder(models, name).exists:
            return registry.find(models, name).publish(arrays)
        return store.publish(name, arrays, number=None)

    return Topic(store, name, publisher=publish)


def subscribe(name: str, callback: OnUpdate, *, max_pending: int = 8, trial: Trial | None = None) -> Subscription:
    """`Topic.subscribe`: the newest version, if there is one, and then each new one, until the trial is closed.

    Raises `Unreachable`, with the address, if they are in Redis and that gives no answer.
    """
    own = trial if trial is not None else trials.current()
    subscription = topic(name, trial=own).subscribe(callback, max_pending=max_pending)
    own.before_close(subscription.close)
    pool = _pool_of(own, name)
    if pool is not None and pool.latest(name) is None:
        _LOG.warning(
            "nobody has published %r to %s yet. If a RemoteModel is made by that name, its versions are in the trial's "
            "folder instead, and this subscriber is not notified: subscribe after that",
            name,
            pool,
        )
    return subscription


def _pool_of(trial: Trial, name: str) -> ModelPool | None:
    """The one in Redis that has this topic, for all topics of this process; `None`: it is in the trial's folder."""
    folder = Path(trial.folder)
    is_own_model = name == MODEL or (folder / "models" / f"{name}.definition").exists()
    if is_own_model or place.find_place(folder) is None:
        return None
    return trial.keep("pool", lambda: _opened(trial, folder))


def _opened(trial: Trial, folder: Path) -> ModelPool:
    pool = place.open_pool_of(folder)
    trial.before_close(pool.close)
    return pool


def _arrays(weights: Mapping[str, Any]) -> Mapping[str, Any]:
    if _is_plain(weights):
        return weights
    from ludus.models.torch_weights import as_arrays  # brings torch, which plain parameters do not need

    return as_arrays(weights)


def _is_plain(weights: object) -> bool:
    return isinstance(weights, Mapping) and all(isinstance(value, np.ndarray) for value in weights.values())
