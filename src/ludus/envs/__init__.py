"""Envs by name: Gymnasium, ALE, EnvPool, PettingZoo, MPE2, level-based foraging, robotic warehouses, board games,
scenarios and the user's own, behind one contract: `core.VectorEnv`.

    env = envs.make("CartPole-v1", num_envs=64)
    now = env.reset(seed=1)
    now = env.step(action)                               # one action for each row

docs/environments.md has the names, what each of them promises, and how to bring an env of one's own.
"""

from __future__ import annotations

from ludus.envs.registry import make, rules, spec, without_rules

__all__ = ["make", "rules", "spec", "without_rules"]
