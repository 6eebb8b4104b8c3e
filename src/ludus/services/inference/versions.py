"""The versions of a model that are ready to run: a few policies of one structure, each with its own weights."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.learn.policies.runner import Runner
from ludus.models.versions.client import WeightsClient

__all__ = ["LoadedVersions", "ServedPolicy"]


class ServedPolicy(Protocol):
    """What is needed of a policy to serve it; `ludus.learn.policies.Policy` has it."""

    memory_spec: Nest

    def runner(self) -> Runner: ...

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None: ...


class LoadedVersions:
    """Loads on demand; of more than `keep` the one that was not asked for the longest makes room."""

    def __init__(self, weights: WeightsClient, model: str, build: Callable[[], ServedPolicy], *, keep: int) -> None:
        self._weights = weights
        self._model = model
        self._build = build
        self._keep = keep
        self._loaded: OrderedDict[int, tuple[ServedPolicy, Runner]] = OrderedDict()
        self._num_rewinds = 0
        self.num_loads = 0

    def __len__(self) -> int:
        return len(self._loaded)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Those that are loaded, the last asked for last."""
        return tuple(self._loaded)

    def resolve(self, version: int | str) -> int:
        """The number that is meant now. Raises `DataError` if there is none."""
        return self._weights.resolve(self._model, version)

    def runner(self, number: int) -> Runner:
        """The forward pass of that version. Raises `DataError` if it is neither loaded nor kept by the store."""
        num_rewinds = self._weights.num_rewinds(self._model)
        if num_rewinds != self._num_rewinds:  # numbers may stand for other weights now
            self._loaded.clear()
            self._num_rewinds = num_rewinds
        known = self._loaded.get(number)
        if known is None:
            known = self._load(number)
        self._loaded.move_to_end(number)
        return known[1]

    def _load(self, number: int) -> tuple[ServedPolicy, Runner]:
        _version, weights = self._weights.get(self._model, number)
        if len(self._loaded) < self._keep:
            policy = self._build()
        else:
            _oldest, (policy, _runner) = self._loaded.popitem(last=False)  # its memory is used again
        policy.load_weights(weights)
        self._loaded[number] = policy, policy.runner()
        self.num_loads += 1
        return self._loaded[number]
