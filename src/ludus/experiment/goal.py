"""Has a policy learnt enough? Asked while it trains, by greedy episodes, as soon as that is worth its time.

What training itself returns comes late: its actions are drawn at random, and of many envs those that fail early are
counted first. So the question is asked from a quarter of the way on; halfway as often as it takes a quarter of
training's steps, near the goal as often as it takes as many. The way is that of the last five episodes or of the last
twenty, whichever is further: where episodes are long and few, twenty of them still show how training began.
Where evaluation has other env arguments than training, unclipped rewards for example, training's returns may never get
there; then it is also asked as often as it takes a tenth of training's steps. A few episodes are played first, not
much longer than training's (a greedy policy may go in circles for ever): where not even the best of them gets there,
all of them together would not.
It depends on steps alone, not on the clock: where training is exact, two runs of one seed end at the same step.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from ludus.errors import EnvError
from ludus.experiment.config import Config
from ludus.experiment.evaluation import evaluate, longest_episode
from ludus.learn.policies.policy import Policy

__all__ = ["Goal"]

_LOG = logging.getLogger(__name__)
_NUM_EPISODES = 20
_WINDOWS = (5, _NUM_EPISODES)  # training's last episodes, whose mean return says how far it is
_WORTH_ASKING = 0.25  # of the way from the first episodes' return to the wanted one
_NUM_TRIED, _TRIED_TIMES = 5, 2  # episodes that are played first, and their steps to those of training's longest
_WHOLE_TIMES = 4  # of the twenty: a greedy policy that goes in circles holds the trainer for as long
_BLIND_STEPS = 10  # steps of training for one of an evaluation that nothing in training speaks for


class Goal:
    """A greedy return of `wanted`, over twenty episodes."""

    def __init__(self, wanted: float, config: Config) -> None:
        self._wanted = wanted
        self._config = config
        self._first: float | None = None  # the mean return of the first episodes
        self._num_steps_played = 0
        self._is_comparable = config.eval_env_args == config.env_args

    def is_reached(
        self, policy: Policy, returns: Sequence[float], lengths: Sequence[int], num_steps: int, *, seed: int
    ) -> bool:
        """After `num_steps` of training; `returns` and `lengths` are those of its last episodes, the newest last.

        Where one of the twenty does not end in four times the longest episode of training, it is not reached.
        """
        means = [float(np.mean(returns[-window:])) for window in _WINDOWS if len(returns) >= window]
        if not means:
            return False
        recent = max(means)
        if self._first is None:
            self._first = recent
        begin = min(self._first, self._wanted)
        way = (recent - begin) / (self._wanted - begin) if begin < self._wanted else float(recent >= begin)
        is_promising = way >= _WORTH_ASKING and self._num_steps_played <= num_steps * min(way, 1.0) ** 2
        is_unknown = not self._is_comparable and self._num_steps_played * _BLIND_STEPS <= num_steps
        if not (is_promising or is_unknown):
            return False
        try:
            short = longest_episode(self._config, lengths, times=_TRIED_TIMES)
            tried = evaluate(policy, self._config, episodes=_NUM_TRIED, seed=seed, max_steps=short, warns=False)
            self._num_steps_played += sum(tried.lengths)
            if max(tried.returns) < self._wanted:
                return False
            whole = longest_episode(self._config, lengths, times=_WHOLE_TIMES)
            found = evaluate(policy, self._config, episodes=_NUM_EPISODES, seed=seed, max_steps=whole)
            self._num_steps_played += sum(found.lengths)
        except EnvError as error:
            _LOG.warning("whether the return is reached could not be evaluated, and is asked again later: %s", error)
            self._num_steps_played += num_steps
            return False
        return not found.num_cut_off and found.mean >= self._wanted

    def save(self) -> dict[str, Any]:
        return {"first": self._first, "num_steps_played": self._num_steps_played}

    def restore(self, content: dict[str, Any]) -> None:
        self._first = content["first"]
        self._num_steps_played = content["num_steps_played"]
