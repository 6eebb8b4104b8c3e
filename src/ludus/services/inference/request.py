"""A request for a forward pass, and whether it is what the policy can take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec, validate, with_leading
from ludus.errors import DataError, SpecError
from ludus.rpc.deferred import Deferred

__all__ = ["Request", "RequestSpec", "join"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """Rows that one caller wants the parameters of, by the version that it names."""

    version: int | str
    obs: Nest  # [n, ...]
    memory: Nest  # [n, ...], `None` if the policy has none
    first: NDArray[np.bool_]  # [n]
    answer: Deferred

    @property
    def num_rows(self) -> int:
        return len(self.first)


class RequestSpec:
    """What the requests to one policy look like: structure, shapes and dtypes. Bounds are not looked at."""

    def __init__(self, obs: Nest, memory: Nest) -> None:
        self._obs = nests.map(_unbounded, obs)
        self._memory = nests.map(_unbounded, memory)

    def check(self, version: Any, obs: Nest, memory: Nest, first: Any) -> None:
        """Raise `SpecError`, which names the leaf, or `DataError`, unless a policy could take this."""
        if type(version) not in (int, str):
            raise DataError(f"a version is a number, a tag or 'latest', not a {type(version).__name__}")
        if not isinstance(first, np.ndarray) or first.dtype != np.bool_ or first.ndim != 1 or not len(first):
            raise SpecError("it must be one boolean for each row, and there must be a row", path="first")
        validate({"obs": obs, "memory": memory}, with_leading({"obs": self._obs, "memory": self._memory}, len(first)))


def join(requests: list[Request]) -> tuple[Nest, Nest, NDArray[np.bool_]]:
    """`obs`, `memory` and `first` of all, one after the other. Those of one request alone are not copied."""
    if len(requests) == 1:
        return requests[0].obs, requests[0].memory, requests[0].first
    return (
        nests.concat([request.obs for request in requests]),
        nests.concat([request.memory for request in requests]),
        np.concatenate([request.first for request in requests]),
    )


def _unbounded(spec: ArraySpec | None) -> ArraySpec | None:
    return None if spec is None else replace(spec, minimum=None, maximum=None)
