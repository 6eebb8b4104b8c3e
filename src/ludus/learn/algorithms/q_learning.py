"""What Q-learning has in all its forms: how it explores, and target networks that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ludus.learn.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig
from ludus.options import option

if TYPE_CHECKING:
    from torch import nn

__all__ = ["QLearning", "QLearningConfig"]


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(ReplayConfig):
    learning_rate: float = option(5e-4, help="learning rate of Adam", minimum=0.0)
    anneal: bool = option(True, help="decay the learning rate linearly to zero over the run")
    tau: float = option(0.02, help="how far target networks move at each gradient step", minimum=0.0, maximum=1.0)
    double: bool = option(True, help="the network chooses the next action, the target network says what it is worth")
    huber: float = option(1.0, help="errors beyond this count linearly", minimum=1e-6)
    target_every: int = option(
        0, help="copy the network to the target network after so many gradient steps; 0: by tau, at each", minimum=0
    )
    epsilon_start: float = option(1.0, help="share of random actions in the beginning", minimum=0.0, maximum=1.0)
    epsilon_end: float = option(0.05, help="share of random actions later on", minimum=0.0, maximum=1.0)
    epsilon_fraction: float = option(
        0.1, help="fraction of the run after which epsilon is epsilon_end", minimum=0.0, maximum=1.0
    )


Q = TypeVar("Q", bound=QLearningConfig)


class QLearning(ReplayAlgorithm[Q]):
    Config: ClassVar[type[QLearningConfig]] = QLearningConfig

    def exploration(self, num_steps: int, progress: float) -> tuple[float, ...]:
        config = self.config
        if num_steps < config.min_size:
            return (1.0,)
        share = 1.0 if progress >= config.epsilon_fraction else progress / config.epsilon_fraction
        return (config.epsilon_start + (config.epsilon_end - config.epsilon_start) * share,)

    def move_target(self, target: nn.Module, source: nn.Module, num_steps: int) -> None:
        """After so many gradient steps; by `tau`, or at once from time to time."""
        from ludus.learn.networks.follow import follow  # here, because it loads torch

        if self.config.target_every == 0:
            follow(target, source, self.config.tau)
        elif num_steps % self.config.target_every == 0:
            follow(target, source, 1.0)
