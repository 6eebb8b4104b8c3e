"""A policy's definition without any code: its spec as a nest, and back."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any

from ludus import errors, options
from ludus.data import nest as nests
from ludus.data.actions import ActionSpec
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import PolicySpec
from ludus.learn.policies.served import ServedPolicy

__all__ = ["from_nest", "is_plain", "to_nest"]

_ACTIONS = {kind.__name__: kind for kind in typing.get_args(ActionSpec)}


def is_plain(module: Any) -> bool:
    """Whether it can be built from its spec alone: a policy of ours, whose network and head are not a user's."""
    return type(module) is ServedPolicy and module.spec.network.model is None and _is_ours(module.spec.head)


def to_nest(policy: ServedPolicy) -> Nest:
    spec = {field.name: getattr(policy.spec, field.name) for field in dataclasses.fields(policy.spec)}
    spec["obs"] = nests.map(_array_text, policy.spec.obs)
    spec["action"] = {"kind": type(policy.spec.action).__name__, **dataclasses.asdict(policy.spec.action)}
    spec["network"] = dataclasses.asdict(policy.spec.network)
    return {"spec": spec, "has_mask": policy.has_mask, "training": policy.training}


def from_nest(nest: Nest) -> ServedPolicy:
    """Runs no code but Ludus's own, whatever the nest says. Raises `DataError` or `ConfigError` for what is none."""
    try:
        spec = dict(nest["spec"])
        action = dict(spec["action"])
        spec["action"] = _ACTIONS[action.pop("kind")](**action)
        spec["obs"] = nests.map(_array_spec, spec["obs"])
        spec["network"] = options.replace(NetworkConfig(), spec["network"])
        if spec["network"].model is not None or not _is_ours(spec.get("head")):
            raise errors.DataError("it names a network or a head of a user's own, which is code")
        policy = ServedPolicy(PolicySpec(**spec), has_mask=bool(nest["has_mask"]))
        policy.train(bool(nest["training"]))
        return policy
    except (KeyError, TypeError, AttributeError) as error:
        raise errors.DataError(f"it is not the definition of a policy: {error!r}") from None


def _is_ours(head: str | None) -> bool:
    """A user's own is `module:Class`."""
    return head is None or ":" not in head


def _array_text(spec: ArraySpec | None) -> str | None:
    """A leaf of the nest, as text: so no nest of observations is taken for a part of it."""
    if spec is None:
        return None
    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    return json.dumps({**fields, "dtype": spec.dtype.str})


def _array_spec(text: str | None) -> ArraySpec | None:
    if text is None:
        return None
    fields: Mapping[str, Any] = json.loads(text)
    return ArraySpec(**fields)
