"""DQN's gradient written out, for observations that are vectors and plain values of choices, on the CPU.

The same numbers as `DQN` has by torch's graph, which at these sizes costs as much as the arithmetic; a test compares
both with a plain version.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.learn.algorithms.algorithm import Loss, Networks
from ludus.learn.algorithms.replay_algorithm import ReplayView
from ludus.learn.networks.stack_passes import StackMemory, StackPasses
from ludus.learn.networks.stacked import SingleMLP
from ludus.learn.ops.distributions import FORBIDDEN, EpsilonGreedy

__all__ = ["DQNPasses"]

_Array = NDArray[np.float32]


class DQNPasses:
    """Of the networks of one learner; `fits` says whether it can be used for them."""

    def __init__(self, networks: Networks) -> None:
        policy: Any = networks.policy.model
        target: Any = networks.targets["target"]
        memory = StackMemory()  # the target's pass is over before the policy's begins
        self._policy, self._target = StackPasses(policy.tower, memory), StackPasses(target.tower, memory)

    @staticmethod
    def fits(networks: Networks) -> bool:
        policy = networks.policy
        return (
            type(policy.head) is EpsilonGreedy
            and isinstance(policy.model, SingleMLP)
            and policy.model.tower.weights[0].device.type == "cpu"
        )

    def loss(
        self, view: ReplayView, obs: _Array, next_obs: _Array, *, double: bool, huber: float
    ) -> tuple[Loss, _Array]:
        """The loss, whose gradient is in the policy's parameters already, and the error of each row."""
        batch = view.batch
        assert batch is not None
        share = view.shares(len(obs))
        rows = np.arange(len(obs))
        of_target = self._target.forward(next_obs)[0]
        by = of_target
        if double:
            of_target = of_target.copy()
            by = self._policy.forward(next_obs)[0]
        if batch.next_mask is not None:
            by = np.where(batch.next_mask.numpy().T, by, FORBIDDEN)
        target = batch.reward.numpy() + batch.discount.numpy() * of_target[by.argmax(axis=0), rows]
        outputs = self._policy.forward(obs)
        action = batch.action.numpy()
        q = outputs[0, action, rows]
        error = q - target
        slope = error.clip(-huber, huber)
        of_outputs = np.zeros_like(outputs)
        of_outputs[0, action, rows] = slope * share
        self._policy.backward(of_outputs)
        # Huber's loss: slope * error - slope² / 2, quadratic within and linear beyond
        value = float((slope * (error - np.float32(0.5) * slope)) @ share)
        return Loss(value, {"q": float(q @ share)}, has_gradient=True), error
