"""QMIX: a team's value from those of its agents, mixed by a network that sees the whole env and never falls where one
of them rises. https://arxiv.org/abs/1803.11485

So what is best for each agent alone is best for the team, and the mixer, which only training needs, can value what a
sum cannot. Joint values that no such network can express are learnt on the whole; with `pessimism` below 1 the best of
them are learnt first: the optimistic weighting of https://arxiv.org/abs/2006.10800.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ludus.data import nest as nests
from ludus.learn.algorithms.vdn import VDN, VDNConfig
from ludus.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.data.nest import Nest
    from ludus.data.segment import Segment
    from ludus.learn.algorithms.algorithm import Networks
    from ludus.learn.policies.central import Central
    from ludus.learn.policies.normaliser import Normaliser
    from ludus.learn.policies.policy import Policy

__all__ = ["QMIX", "QMIXConfig"]


@dataclass(frozen=True, kw_only=True)
class QMIXConfig(VDNConfig):
    mixer_size: int = option(32, help="units of the mixing network's hidden layer", minimum=1)
    hyper_size: int = option(64, help="units of the networks that make the mixing network's weights", minimum=1)
    pessimism: float = option(
        1.0, help="what errors count that lower a team's value; less than 1 is optimistic", minimum=0.0, maximum=1.0
    )


class QMIX(VDN[QMIXConfig]):
    """Trains the policy and the mixer by one loss; the target of the mixer is a copy of its `core`."""

    Config = QMIXConfig
    moves = ("policy", "mixer")

    def networks(self, policy: Policy) -> Networks:
        from ludus.learn.networks.central_critic import TeamReader  # here, because it loads torch
        from ludus.learn.networks.mixer import MonotonicMixer
        from ludus.learn.policies.central import Central

        networks, spec, config = super().networks(policy), policy.spec, self.config
        reader = TeamReader(
            spec.obs, num_agents=self.num_agents, global_state=self.global_state, encoder=spec.network.encoder
        )
        core = MonotonicMixer(reader, num_agents=self.num_agents, size=config.mixer_size, hyper_size=config.hyper_size)
        networks.trained["mixer"] = Central(core, global_state=self.global_state, is_normalised=config.normalise_obs)
        networks.targets["mixer_target"] = copy.deepcopy(core)
        return networks

    def normalised(self, networks: Networks, segment: Segment) -> Iterator[tuple[Normaliser, Nest]]:
        yield from super().normalised(networks, segment)
        normaliser = self.central(networks).normaliser
        if normaliser is not None:
            yield normaliser, segment.obs["global_state"]

    def after_step(self, networks: Networks, num_steps: int) -> None:
        super().after_step(networks, num_steps)
        self.move_target(networks.targets["mixer_target"], self.central(networks).core, num_steps)

    def central(self, networks: Networks) -> Central:
        return cast("Central", networks.trained["mixer"])

    def mix(self, networks: Networks, q: Tensor, seen: Nest, *, is_target: bool = False) -> Tensor:
        mixer: Any = networks.targets["mixer_target"] if is_target else self.central(networks).core
        flat = nests.map(lambda leaf: leaf.flatten(0, 1), seen)
        total: Tensor = mixer(q.flatten(0, 1), flat).view(q.shape[:-1])
        return total

    def weight(self, q: Tensor, target: Tensor) -> Tensor | float:
        pessimism = self.config.pessimism
        if pessimism == 1.0:
            return 1.0
        falls = (q.detach() > target).to(q.dtype)
        return 1.0 - (1.0 - pessimism) * falls
