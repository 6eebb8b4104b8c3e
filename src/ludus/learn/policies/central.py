"""A network of training alone, which sees the whole env, with the scale of what it sees: a critic, or a mixer.

    central = Central(core, global_state=env.global_state, is_normalised=True)
    seen = central.seen(policy.scaled(obs), global_state)  # nests of tensors, with any leading axes
    value = central.core(seen)

It sees the global state of the env, brought to a scale of its own; where there is none, the observations of all agents
side by side, as the policy scales them.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ludus.data.nest import Nest
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.normaliser import Normaliser

__all__ = ["Central"]


class Central(nn.Module):
    """`core` learns, and is what a target network copies; the scale of what it sees is beside it."""

    def __init__(self, core: nn.Module, *, global_state: Nest, is_normalised: bool) -> None:
        super().__init__()
        self.core = core
        self._is_by_agent = global_state is None
        has_scale = is_normalised and not self._is_by_agent
        self.normaliser = Normaliser(global_state, NetworkConfig()) if has_scale else None

    def seen(self, obs: Nest, global_state: Nest) -> Nest:
        """What `core` is given: `obs` `[..., A, ...]` are those of the agents, as the policy has scaled them."""
        if self._is_by_agent:
            return obs
        return global_state if self.normaliser is None else self.normaliser(global_state)

    def rescale_value(self, scale: float, shift: float) -> None:
        """Values become `scale * value + shift`."""
        core: Any = self.core
        core.rescale_value(scale, shift)
