"""Worlds by name: Gymnasium, ALE, EnvPool, PettingZoo, MPE2 and the user's own, behind one contract (`core.Worlds`).

    worlds = envs.make("CartPole-v1", num_worlds=64)
    now = worlds.reset(seed=1)
    now = worlds.step(action)                            # one action for each row

docs/environments.md has the names, what each of them promises, and how to bring a world of one's own.
"""

from __future__ import annotations

from ludus.envs.registry import make, spec

__all__ = ["make", "spec"]
