"""A player that learns: its policy, its learner, the envs in which it plays its matches, its checkpoints.

    player = LearningPlayer("main", parts)
    player.restore()                                   # the newest valid checkpoint, if there is one
    player.update()                                    # one segment of matches, learnt from
    player.weights()

It begins again, from weights that nobody has trained, when the league says so.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from ludus import envs
from ludus.errors import CheckpointError
from ludus.experiment import wiring
from ludus.experiment.checkpoints import CheckpointStore
from ludus.league.collector import Collector
from ludus.league.experience import Experience
from ludus.league.learning_parts import LearningParts, seed_of
from ludus.learn.algorithms import registry
from ludus.learn.algorithms.learner import Sample
from ludus.learn.policies.policy import Policy

__all__ = ["LearningPlayer"]

_WINDOW = 200  # games in the mean that is shown


class LearningPlayer:
    """`num_steps` counts its own: those that it has learnt from."""

    def __init__(self, name: str, parts: LearningParts) -> None:
        self.name = name
        self.num_steps = 0
        self.num_resets = 0
        self.seconds = {"play": 0.0, "train": 0.0}
        self.metrics: dict[str, float] = {}
        self.lag: tuple[float, float] | None = None
        self._parts = parts
        self._store = CheckpointStore(
            parts.folder / "learners" / name / "checkpoints", keep=parts.config.train.keep_checkpoints
        )
        self._returns: deque[float] = deque(maxlen=_WINDOW)
        self._lengths: deque[int] = deque(maxlen=_WINDOW)
        self._make(num_resets=0)
        self._experience = self._make_experience()
        self._collector = Collector(name, self._policy, parts, seed=parts.seed("games", name))
        self._distant = parts.distant
        self._num_distant_games = 0

    def _make(self, num_resets: int) -> None:
        """A policy and a learner that know nothing yet."""
        config = self._parts.config
        seed = seed_of(config, zlib.crc32(self.name.encode()), num_resets)
        spec = wiring.make_policy_spec(config, self._parts.env)
        self._policy = Policy(spec, seed=seed)
        self._learner: Any = wiring.make_learner(config, self._policy, num_agents=len(self._parts.env.agents))
        self.num_resets = num_resets

    def _make_experience(self) -> Experience | None:
        """Where a search says what is to be learnt."""
        config = self._parts.config
        if not registry.algorithm_class(config.train.algorithm).searches:
            return None
        rules = envs.rules(config.train.env, **config.env_args)
        assert rules is not None, "a search has them"
        seed = self._parts.seed("experience", self.name, self.num_resets)
        return Experience(rules, num_past=self._parts.past_segments, seed=seed)

    # --- learning

    @property
    def num_games(self) -> int:
        return self._collector.book.num_games + self._num_distant_games

    def update(self, *, progress: float = 0.0) -> int:
        """Learn from a segment of matches: one that another process has played, or that is played now. How many
        steps that were. `progress` is the part of the league's time that is over, for schedules.
        """
        began = time.perf_counter()
        collected = None if self._distant is None else self._distant.take(self.name)
        part = "play" if collected is None else "take"
        if collected is None:
            collected = self._collector.collect(self._learner.version)
        else:
            self._num_distant_games += collected.num_games
        if self._distant is not None:
            self._distant.ask(self.name, self.weights(), self._learner.version)
        played = time.perf_counter()
        segment = collected.segment
        num_steps = segment.num_active
        if num_steps:
            lag = self._learner.version - segment.version
            self.lag = float(lag.mean()), float(lag.max())
            segment = segment if self._experience is None else self._experience.with_past(segment)
            self.metrics = self._learner.update(Sample(segment), progress=progress).metrics
        self._returns.extend(each.total for each in collected.episodes)
        self._lengths.extend(each.length for each in collected.episodes)
        self.num_steps += num_steps
        self.seconds[part] = self.seconds.get(part, 0.0) + played - began
        self.seconds["train"] += time.perf_counter() - played
        return num_steps

    def begin_again(self, num_resets: int) -> None:
        """From weights that nobody has trained. Its steps count on; the league has aborted its matches."""
        self._collector.book.forget()
        self._make(num_resets)
        self._experience = self._make_experience()
        self._play_by_own()
        self._returns.clear()
        self._lengths.clear()

    def _play_by_own(self) -> None:
        """By the present policy. What others are playing for it is by one that it had before."""
        self._collector.use(self._policy)
        if self._distant is not None:
            self._distant.forget(self.name)

    @property
    def policy(self) -> Policy:
        return self._policy

    def weights(self) -> dict[str, Any]:
        return self._policy.weights()

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Go on from these, with an optimizer that knows nothing yet."""
        state = self._learner.save()
        self._learner.restore({**state, "weights": dict(weights)})
        self._play_by_own()

    @property
    def mean_return(self) -> float | None:
        return float(np.mean(self._returns)) if self._returns else None

    @property
    def mean_length(self) -> float | None:
        return float(np.mean(self._lengths)) if self._lengths else None

    # --- checkpoints

    def checkpoint(self) -> None:
        """Raises `CheckpointError` if it cannot be written."""
        learner = self._learner.save()
        self._store.save(
            self.num_steps,
            {
                "weights": learner.pop("weights"),
                "learner": learner,
                "num_steps": self.num_steps,
                "num_resets": self.num_resets,
            },
        )

    def restore(self) -> bool:
        """From the newest valid checkpoint; false if there is none."""
        if self._store.is_empty:
            return False
        _, content = self._store.load()
        try:
            self._make(int(content["num_resets"]))
            self._learner.restore({**content["learner"], "weights": content["weights"]})
            self.num_steps = int(content["num_steps"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint of {self.name!r} is not of this league: {error!r}.") from error
        self._play_by_own()
        return True

    def abandon(self) -> None:
        """Abort its matches: it learns no more, and is closed next. What is on its way from elsewhere is dropped."""
        if self._distant is not None:
            self._distant.forget(self.name)
        self._collector.abandon()

    def close(self) -> None:
        self._collector.close()
