"""Ape-X: DQN with many rows that explore each in its own measure. https://arxiv.org/abs/1803.00933"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.learn.algorithms.dqn import DQN, DQNConfig
from ludus.options import option

__all__ = ["Apex", "ApexConfig"]


@dataclass(frozen=True, kw_only=True)
class ApexConfig(DQNConfig):
    n_step: int = option(3, help="steps of rewards in a target", minimum=1)
    prioritised: bool = option(True, help="draw by the size of the last error instead of uniformly")
    epsilon_start: float = option(0.4, help="share of random actions in the beginning", minimum=0.0, maximum=1.0)
    epsilon_end: float = option(0.4, help="share of random actions later on", minimum=0.0, maximum=1.0)
    epsilon_fraction: float = option(
        0.0, help="fraction of the run after which epsilon is epsilon_end", minimum=0.0, maximum=1.0
    )
    epsilon_spread: float = option(
        7.0,
        help="rows explore by epsilon to powers from 1, of the first, to 1 more than this, of the last",
        minimum=0.0,
    )


class Apex(DQN[ApexConfig]):
    Config = ApexConfig

    def exploration_exponents(self, num_rows: int) -> NDArray[np.float32]:
        return 1.0 + self.config.epsilon_spread * np.linspace(0.0, 1.0, num_rows, dtype=np.float32)
