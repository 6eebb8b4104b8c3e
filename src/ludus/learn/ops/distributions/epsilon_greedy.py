"""Q-values as a policy: the best choice, or with the probability epsilon any one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data.actions import ActionSpec, Continuous, Discrete
from ludus.errors import ConfigError
from ludus.learn.ops.distributions.head import FORBIDDEN, Head, check_params

__all__ = ["EpsilonGreedy"]


class EpsilonGreedy(Head):
    """One of `num_choices`; `params` are their Q-values and epsilon. An action is an int64 scalar.

    Heads whose outputs are more than Q-values derive from this one and define `q_values`.
    """

    num_free = 0
    num_explore = 1

    def __init__(self, action: ActionSpec, *, num_per_choice: int = 1) -> None:
        """A model gives `num_per_choice` numbers for each choice. Raises `ConfigError` unless it is one choice."""
        if not isinstance(action, Discrete):
            hint = "Use sac or td3." if isinstance(action, Continuous) else "Use ppo."
            raise ConfigError(f"Q-learning chooses the best of single choices; these actions are {action}. {hint}")
        self.num_choices = action.num_choices
        self.num_outputs = action.num_choices * num_per_choice
        self.num_params = self.num_outputs + 1

    def q_values(self, outputs: Any) -> Any:
        """Of each choice `[..., num_choices]`, from what the model gives `[..., num_outputs]`: arrays or tensors."""
        return outputs

    def best(self, outputs: Any, mask: Any = None) -> Any:
        """The choice with the largest Q-value, as a tensor `[...]`."""
        q = self.q_values(outputs)
        return (q if mask is None else q.masked_fill(~mask, FORBIDDEN)).argmax(-1)

    def sample(
        self, params: NDArray[np.float32], rng: np.random.Generator, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        best = self.mode(params, mask)
        epsilon = params[:, -1]
        draws = rng.random((2, len(params)), np.float32)
        num_allowed: Any = self.num_choices if mask is None else mask.sum(axis=1)
        number = (draws[1] * num_allowed).astype(np.int64)  # of those that are allowed
        if mask is not None:
            number = (mask.cumsum(axis=1) > number[:, None]).argmax(axis=1)
        action = np.where(draws[0] < epsilon, number, best)
        prob = epsilon / num_allowed + (1.0 - epsilon) * (action == best)
        return action, np.log(prob, dtype=np.float32)

    def mode(self, params: NDArray[np.float32], mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        check_params(params, self.num_params)
        q = self.q_values(params[..., :-1])
        action: NDArray[np.int64] = (q if mask is None else np.where(mask, q, np.float32(FORBIDDEN))).argmax(axis=-1)
        return action

    def logp(self, params: Any, action: Any, mask: Any = None) -> Any:
        return self._probs(params, mask).gather(-1, action.unsqueeze(-1)).squeeze(-1).log()

    def entropy(self, params: Any, mask: Any = None) -> Any:
        probs = self._probs(params, mask)
        return -torch.xlogy(probs, probs).sum(-1)

    def logp_and_entropy(self, params: Any, action: Any, mask: Any = None) -> tuple[Any, Any]:
        return self.logp(params, action, mask), self.entropy(params, mask)

    def kl(self, params_old: Any, params_new: Any, mask: Any = None) -> Any:
        """Infinite where the new epsilon is 0 and the old chooses what the new never does."""
        old, new = self._probs(params_old, mask), self._probs(params_new, mask)
        return (torch.xlogy(old, old) - torch.xlogy(old, new)).sum(-1)

    def spread_exploration(self, params: NDArray[np.float32], exponent: Any) -> NDArray[np.float32]:
        spread = params.copy()
        spread[:, -1] **= exponent
        return spread

    def _probs(self, params: Any, mask: Any) -> Any:
        check_params(params, self.num_params)
        q, epsilon = self.q_values(params[..., :-1]), params[..., -1:]
        if mask is None:
            probs = (epsilon / self.num_choices).expand(q.shape)
        else:
            q = torch.where(mask, q, FORBIDDEN)
            probs = epsilon / mask.sum(-1, keepdim=True) * mask
        return probs.scatter_add(-1, q.argmax(-1, keepdim=True), 1.0 - epsilon)
