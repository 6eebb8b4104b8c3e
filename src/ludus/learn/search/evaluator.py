"""What a search asks of a network: logits and a value for a batch of observations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.core import Rules
from ludus.data.actions import Discrete
from ludus.errors import ConfigError
from ludus.learn.networks.twin import TwinMLP
from ludus.learn.ops.distributions.categorical import Categorical
from ludus.learn.policies.policy import Policy
from ludus.learn.policies.runner import MAX_NUMPY_ROWS, NumpyRunner
from ludus.learn.search.twin_forward import TwinForward

__all__ = ["Evaluate", "EvaluateApart", "PolicyEvaluator"]


class Evaluate(Protocol):
    """`logits [N, actions], value [N] = evaluate(obs)`: values are for the player who sees `obs`, from -1 to 1."""

    def __call__(self, obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...


class EvaluateApart(Evaluate, Protocol):
    """Where `is_apart`, each of the two is about half the work of both."""

    is_apart: bool

    def logits(self, obs: NDArray[np.float32]) -> NDArray[np.float32]: ...

    def value(self, obs: NDArray[np.float32]) -> NDArray[np.float32]: ...


class PolicyEvaluator:
    """A policy's own weights, by the quickest forward pass there is for it. Values beyond a win or a loss are cut."""

    def __init__(self, policy: Policy, rules: Rules) -> None:
        spec = policy.spec
        if not isinstance(policy.head, Categorical) or not spec.has_value:
            raise ConfigError(
                "a tree search needs a policy with probabilities of moves and a value, as ppo or alphazero train it; "
                f"this one has a {type(policy.head).__name__}{'' if spec.has_value else ' and no value'}"
            )
        if policy.is_recurrent:
            raise ConfigError("a tree search needs a policy without recurrent state: set recurrent=none")
        if spec.obs != rules.obs or spec.action != Discrete(rules.num_actions):
            raise ConfigError(
                f"this policy is not one for {rules.name}: it sees {spec.obs} and chooses among {spec.action}"
            )
        self._policy = policy
        # Where a policy's own runner is NumPy's, it is the quickest here, too.
        is_small = isinstance(policy.model, TwinMLP) and isinstance(policy.runner(), NumpyRunner)
        self._forward = TwinForward(policy.model, MAX_NUMPY_ROWS) if is_small else None
        self.is_apart = self._forward is not None

    def __call__(self, obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if self._forward is None:
            return self._evaluate(obs)
        parts = [self._forward(rows) for rows in self._in_parts(obs)]
        logits, value = (np.concatenate(each) if len(parts) > 1 else each[0] for each in zip(*parts, strict=True))
        return logits, self._in_bounds(value)

    def logits(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._forward is None:
            return self._evaluate(obs)[0]
        parts = [self._forward.logits(rows) for rows in self._in_parts(obs)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def value(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._forward is None:
            return self._evaluate(obs)[1]
        parts = [self._forward.value(rows) for rows in self._in_parts(obs)]
        return self._in_bounds(np.concatenate(parts) if len(parts) > 1 else parts[0])

    def _in_parts(self, obs: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Of at most as many rows as there is memory for, scaled as the network wants them."""
        normaliser = self._policy.normaliser
        for start in range(0, max(1, len(obs)), MAX_NUMPY_ROWS):
            rows = obs[start : start + MAX_NUMPY_ROWS]
            yield rows if normaliser is None else normaliser.scaled_numpy(rows)

    def fingerprint(self) -> int:
        """A number for these weights, by chance another one for others: what was said under the same ones holds."""
        number = 0
        for tensor in (*self._policy.parameters(), *self._policy.buffers()):
            words = tensor.detach().numpy(force=True).reshape(-1).view(np.uint32)
            whole = int(np.add.reduce(words, dtype=np.uint64)) ^ int(np.bitwise_xor.reduce(words)) << 64
            number = hash((number, whole))
        return number

    def _evaluate(self, obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        policy = self._policy
        device = next(policy.parameters()).device
        with torch.inference_mode():
            logits, value = policy.evaluate(torch.from_numpy(np.ascontiguousarray(obs)).to(device))
        return logits.numpy(force=True), self._in_bounds(value.numpy(force=True))

    def _in_bounds(self, value: NDArray[np.float32]) -> NDArray[np.float32]:
        scale = self._policy.value_scale
        if scale is not None:
            value = value * np.float32(scale.std) + np.float32(scale.mean)
        return np.minimum(np.maximum(value, np.float32(-1.0)), np.float32(1.0))
