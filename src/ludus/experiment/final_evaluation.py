"""The evaluation at the end of a run, as fields of `result.json`: greedy play, sampled play, and where agents compete,
matches against random play and against an earlier version of the policy."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.experiment.config import Config
from ludus.experiment.evaluation import Evaluation, evaluate, longest_episode, step_budget
from ludus.experiment.matches import Matches, is_competitive, play_matches
from ludus.learn.policies.policy import Policy

__all__ = ["NOT_EVALUATED", "EarlierPolicy", "final_evaluation"]

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


@dataclass(frozen=True)
class EarlierPolicy:
    """What a policy's weights were after `step` steps."""

    step: int
    weights: Mapping[str, NDArray[Any]]


def final_evaluation(
    policy: Policy, config: Config, *, lengths: Sequence[int], earlier: EarlierPolicy | None = None
) -> dict[str, Any]:
    """`eval_…` is greedy play, `eval_sampled_…` is the same policy with its actions sampled, as in training.

    `eval_vs_random` and `eval_vs_earlier` are win rates, where agents compete. An evaluation that fails is reported as
    `eval_error`, beside those that succeeded before it. `lengths` are those of training's last episodes.
    """
    seed = config.train.seed + 104_729
    result = dict(NOT_EVALUATED)
    try:
        result["eval_env_args"] = config.eval_env_args
        episodes = config.train.eval_episodes
        limits: dict[str, Any] = {
            "max_steps": longest_episode(config, lengths),
            "max_total_steps": step_budget(config, lengths, episodes=episodes),
        }
        greedy = evaluate(policy, config, episodes=episodes, seed=seed, **limits)
        result |= _fields("eval", greedy) | {"eval_cut_off": greedy.num_cut_off}
        episodes = _affordable(episodes, greedy)
        sampled = evaluate(policy, config, episodes=episodes, seed=seed, greedy=False, **limits)
        result |= _fields("eval_sampled", sampled)
        if not config.is_cooperative and is_competitive(greedy, sampled):
            result |= _matches(
                policy,
                config,
                earlier,
                num_agents=len(greedy.agents),
                episodes=episodes,
                seed=seed,
                limits=limits,
            )
    except Exception as error:
        _LOG.exception("the evaluation failed; the run has ended without it. `ludus evaluate` plays another.")
        result["eval_error"] = f"{type(error).__name__}: {error}"
    return result


def _matches(
    policy: Policy,
    config: Config,
    earlier: EarlierPolicy | None,
    *,
    num_agents: int,
    episodes: int,
    seed: int,
    limits: Mapping[str, Any],
) -> dict[str, Any]:
    """Greedy against random play; against an earlier self both sample, since greedy games may all be the same."""

    def play(opponent: Policy | None, greedy: bool) -> Matches:
        return play_matches(
            policy,
            opponent,
            config,
            num_agents=num_agents,
            episodes=episodes,
            seed=seed,
            greedy=greedy,
            **limits,
        )

    found = play(None, greedy=True)
    result = {
        "eval_vs_random": found.win_rate,
        "eval_vs_random_return_mean": found.return_mean,
        "eval_vs_episodes": found.num_episodes,
    }
    if earlier is not None:
        opponent = Policy(policy.spec)
        opponent.load_weights(earlier.weights)
        found = play(opponent, greedy=False)
        result |= {
            "eval_vs_earlier": found.win_rate,
            "eval_vs_earlier_return_mean": found.return_mean,
            "eval_vs_earlier_step": earlier.step,
        }
    return result


def _fields(name: str, played: Evaluation) -> dict[str, Any]:
    fields: dict[str, Any] = {
        f"{name}_return_mean": played.mean,
        f"{name}_return_std": played.std,
        f"{name}_episodes": played.num_episodes,
    }
    if len(played.agents) > 1:
        fields |= {f"{name}_return_mean/{agent}": played.mean_of(row) for row, agent in enumerate(played.agents)}
    return fields


def _affordable(episodes: int, greedy: Evaluation) -> int:
    """As many again, unless episodes are long: then about 100,000 steps, and not fewer than 10 episodes."""
    fitting = int(_MAX_SAMPLED_STEPS / max(1.0, float(np.mean(greedy.lengths))))
    return min(episodes, max(_MIN_SAMPLED_EPISODES, fitting))
