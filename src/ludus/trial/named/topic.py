"""Topics of the trial that `ludus.init` began: one for each model, also for one that is nothing but parameters.

ludus.topic("policy").publish(weights)                     # one version more, as `RemoteModel.publish_weights`
subscription = ludus.subscribe("policy", on_update)        # in any process of the trial on this host
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ludus.models.topic import OnUpdate, Subscription, Topic
from ludus.models.versions.store import Version, VersionStore
from ludus.trial import current as trials
from ludus.trial.trial import Trial

__all__ = ["subscribe", "topic"]

_KEEP = 8


def topic(name: str, *, trial: Trial | None = None) -> Topic:
    """The topic of a model. If the model is there, what is published must fit it: arrays, tensors or a module.

    Of parameters without a model, which are arrays by name, the newest 8 versions stay.
    """
    models = Path((trial if trial is not None else trials.current()).folder) / "models"
    store = VersionStore(models, keep=_KEEP)

    def publish(weights: Mapping[str, Any]) -> Version:
        if _is_plain(weights) and not (models / f"{name}.definition").exists():
            return store.publish(name, weights, number=None)
        from ludus.models import definition, registry  # brings torch, which plain parameters do not need
        from ludus.models.torch_weights import as_arrays

        arrays = as_arrays(weights)
        if definition.ModelFolder(models, name).exists:
            return registry.find(models, name).publish(arrays)
        return store.publish(name, arrays, number=None)

    return Topic(store, name, publisher=publish)


def subscribe(name: str, callback: OnUpdate, *, max_pending: int = 8, trial: Trial | None = None) -> Subscription:
    """`Topic.subscribe`: the newest version, if there is one, and then each new one, until the trial is closed."""
    own = trial if trial is not None else trials.current()
    subscription = topic(name, trial=own).subscribe(callback, max_pending=max_pending)
    own.before_close(subscription.close)
    return subscription


def _is_plain(weights: object) -> bool:
    return isinstance(weights, Mapping) and all(isinstance(value, np.ndarray) for value in weights.values())
