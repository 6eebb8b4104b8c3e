"""Small policies, and segments as their simulator would have written them: ends, final observations, masks, state."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.learn.algorithms.learner import Learner
from ludus.learn.algorithms.registry import algorithm_class
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec

torch.set_num_threads(1)

ACTIONS = {
    "discrete": Discrete(3),
    "multi-discrete": MultiDiscrete((2, 3)),
    "continuous": Continuous((-1.0, -2.0), (1.0, 2.0)),
}


def make_policy(
    action: ActionSpec = ACTIONS["discrete"], *, recurrent: str = "none", seed: int = 1, **settings: Any
) -> Policy:
    network = NetworkConfig(hidden=(8, 8), recurrent=recurrent, recurrent_size=6)
    return Policy(PolicySpec(obs=ArraySpec((4,), np.float32), action=action, network=network, **settings), seed=seed)


def make_learner(name: str, policy: Policy, *, seed: int = 1, **settings: Any) -> Learner:
    algorithm = algorithm_class(name)
    return Learner(algorithm(algorithm.Config(**settings)), policy, seed=seed)


def make_segment(
    policy: Policy,
    *,
    num_steps: int = 6,
    num_rows: int = 5,
    seed: int = 0,
    has_mask: bool = False,
    stray: float = 0.3,
    turns: float = 0.0,
) -> Segment:
    """`stray`: how far the policy that chose was from this one. `turns`: how often it is another row's turn."""
    rng = np.random.default_rng(seed)
    spec = policy.spec
    segment = Segment.allocate(
        num_steps, num_rows, obs=spec.obs, action=spec.action, state=policy.state_spec, has_mask=has_mask
    )
    segment.obs[...] = rng.standard_normal(segment.obs.shape)
    segment.reward[...] = rng.standard_normal(segment.reward.shape)
    if has_mask:
        segment.mask[...] = rng.random(segment.mask.shape) < 0.6
        segment.mask[..., 0] = True  # of the first choice; of several, the others are made whole
        if isinstance(spec.action, MultiDiscrete):
            segment.mask[..., np.cumsum((0, *spec.action.num_choices[:-1]))] = True
    _write_ends(segment, rng)
    if turns:
        segment.active &= rng.random(segment.active.shape) >= turns
    state = policy.initial_state(num_rows)
    runner = policy.runner()
    for step in range(num_steps):
        params, state = runner(segment.obs[step], state, segment.first[step])
        params = params + stray * rng.standard_normal(params.shape).astype(np.float32)
        mask = segment.mask[step] if has_mask else None
        segment.action[step], segment.logp[step] = policy.head.sample(params, rng, mask)
    return segment


def _write_ends(segment: Segment, rng: np.random.Generator) -> None:
    segment.first[0] = rng.random(segment.num_rows) < 0.5
    segment.active[...] = True
    for row in range(segment.num_rows):
        is_final = False
        for step in range(segment.num_steps):
            if is_final:
                segment.active[step, row] = False
                segment.reward[step, row] = 0.0
                segment.first[step + 1, row] = True
                is_final = False
                continue
            kind = rng.random()
            segment.terminated[step, row] = kind < 0.15
            segment.truncated[step, row] = 0.15 <= kind < 0.3
            is_final = kind < 0.3
        segment.active[-1, row] = not is_final


def parameters_of(policy: Policy) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in policy.parameters()])
