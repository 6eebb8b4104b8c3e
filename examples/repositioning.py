"""Rules for `scenario:repositioning` over seeded episodes: what a learnt policy has to beat (docs/scenarios.md).

python examples/repositioning.py --episodes 100
python examples/repositioning.py --settings '{"num_containers": 900}'
ludus train ppo scenario:repositioning --gamma 0.95
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from ludus.envs.scenarios import heuristics
from ludus.envs.scenarios.settings import Settings
from ludus.envs.scenarios.vector_env import RepositioningVectorEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settings", type=json.loads, default={}, help="of the scenario, as a JSON object")
    args = parser.parse_args()
    vector_env = RepositioningVectorEnv("scenario:repositioning", args.episodes, Settings(**args.settings))
    print("| rule | return | ± | orders fulfilled |\n|---|--:|--:|--:|")
    for name, make in heuristics.HEURISTICS.items():
        show(name, heuristics.returns(make(), vector_env, args.seed), ordered(vector_env, args.seed))
    show("every order", ordered(vector_env, args.seed), ordered(vector_env, args.seed))


def ordered(vector_env: RepositioningVectorEnv, seed: int) -> np.ndarray:
    """The returns of the same episodes if every order were fulfilled: no policy can have more."""
    vector_env.reset(seed)
    return vector_env.ordered()


def show(name: str, returns: np.ndarray, bound: np.ndarray) -> None:
    error = returns.std() / np.sqrt(len(returns))
    fulfilled = (returns + bound).sum() / (2 * bound.sum())
    print(f"| {name} | {returns.mean():.1f} | {error:.1f} | {fulfilled:.1%} |")


if __name__ == "__main__":
    main()
