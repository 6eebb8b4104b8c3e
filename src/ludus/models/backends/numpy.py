"""A policy's small MLPs in NumPy: for few rows, calls into torch cost more than the arithmetic.

Other policies are run by torch, as eager does. It is compared with eager once, not for each version: the weights are
used as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from ludus.data.nest import Nest
from ludus.learn.policies.runner import MAX_NUMPY_ROWS, NumpyRunner
from ludus.learn.policies.served import ServedPolicy
from ludus.models.backends.backend import BackendUnavailable, Source
from ludus.models.backends.eager import EagerBackend

__all__ = ["NumpyBackend"]


class NumpyBackend(EagerBackend):
    """Policies only."""

    name = "numpy"
    checks_versions = False

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        if not isinstance(source.module, ServedPolicy):
            raise BackendUnavailable(f"numpy is for policies, and the model is a {type(source.module).__name__}")
        self.owns_outputs = isinstance(source.module.runner(), NumpyRunner)  # else torch runs it

    def load(self, weights: Mapping[str, NDArray[Any]]) -> Any:
        if not self.owns_outputs:
            policy = super().load(weights)
        else:  # many versions a second: a deep copy takes ten times as long as the rest
            policy = _shell(self._module)
            policy.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, assign=True)
        return policy, policy.runner()

    def run(self, handle: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Nest:
        policy, runner = handle
        obs = args[0] if args else kwargs["obs"]
        if not isinstance(runner, NumpyRunner) or len(obs) > MAX_NUMPY_ROWS:
            return super().run(policy, args, kwargs)
        outputs = {"params": runner(obs)[0]}
        if policy.has_value:
            outputs["value"] = policy.in_rewards(torch.from_numpy(runner.values(obs))).numpy()
        return outputs


def _shell(module: torch.nn.Module) -> torch.nn.Module:
    """A copy that shares all but its modules, and the places of its parameters and buffers; not for users' modules."""
    twin = copy.copy(module)
    twin._parameters, twin._buffers = dict(module._parameters), dict(module._buffers)
    twin._modules = {name: None if child is None else _shell(child) for name, child in module._modules.items()}
    return twin
