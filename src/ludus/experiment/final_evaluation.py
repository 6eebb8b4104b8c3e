"""The evaluation at the end of a run: the policy played greedily and by samples, as fields of `result.json`."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from ludus.experiment.config import Config
from ludus.experiment.evaluation import Evaluation, evaluate
from ludus.learn.policies.policy import Policy

__all__ = ["NOT_EVALUATED", "final_evaluation"]

_LOG = logging.getLogger(__name__)
_MAX_SAMPLED_STEPS, _MIN_SAMPLED_EPISODES = 100_000, 10

NOT_EVALUATED: dict[str, Any] = {
    "eval_return_mean": None,
    "eval_return_std": None,
    "eval_episodes": 0,
    "eval_cut_off": 0,
    "eval_sampled_return_mean": None,
    "eval_sampled_return_std": None,
    "eval_sampled_episodes": 0,
}


def final_evaluation(policy: Policy, config: Config, *, max_steps: int) -> dict[str, Any]:
    """`eval_…` is greedy play, `eval_sampled_…` is the same policy with its actions sampled, as in training.

    An evaluation that fails is reported as `eval_error`, beside those that succeeded before it.
    """
    seed = config.train.seed + 104_729
    result = dict(NOT_EVALUATED)
    try:
        result["eval_env_args"] = config.eval_env_args
        episodes = config.train.eval_episodes
        greedy = evaluate(policy, config, episodes=episodes, seed=seed, max_steps=max_steps)
        result |= _fields("eval", greedy) | {"eval_cut_off": greedy.num_cut_off}
        episodes = _affordable(episodes, greedy)
        sampled = evaluate(policy, config, episodes=episodes, seed=seed, max_steps=max_steps, greedy=False)
        result |= _fields("eval_sampled", sampled)
    except Exception as error:
        _LOG.exception("the evaluation failed; the run has ended without it. `ludus evaluate` plays another.")
        result["eval_error"] = f"{type(error).__name__}: {error}"
    return result


def _fields(name: str, played: Evaluation) -> dict[str, Any]:
    return {
        f"{name}_return_mean": played.mean,
        f"{name}_return_std": played.std,
        f"{name}_episodes": played.num_episodes,
    }


def _affordable(episodes: int, greedy: Evaluation) -> int:
    """As many again, unless episodes are long: then about 100,000 steps, and not fewer than 10 episodes."""
    fitting = int(_MAX_SAMPLED_STEPS / max(1.0, float(np.mean(greedy.lengths))))
    return min(episodes, max(_MIN_SAMPLED_EPISODES, fitting))
