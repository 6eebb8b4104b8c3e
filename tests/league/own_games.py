"""Small games that tests of leagues make by name."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Auction(ParallelEnv):
    """Everybody bids 0 to 2 at once, once. Those with the highest bid share a score of 1; others have 0."""

    metadata = {"name": "auction"}  # noqa: RUF012

    def __init__(self, num_bidders=3, ends=True):
        self.possible_agents = [f"bidder_{number}" for number in range(num_bidders)]
        self.ends = ends

    def observation_space(self, agent):
        return spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        here, bids = self.agents, list(actions.values())
        over = dict.fromkeys(here, self.ends)
        rewards = {agent: (actions[agent] == max(bids)) / bids.count(max(bids)) for agent in here}
        seen = self._seen()
        self.agents = [] if self.ends else here
        return seen, rewards, over, dict.fromkeys(here, False), {agent: {} for agent in here}

    def _seen(self):
        return {agent: np.zeros(2, np.float32) for agent in self.agents}


def auction(num_bidders=3):
    return Auction(num_bidders)


def endless():
    """Two bid for ever."""
    return Auction(2, ends=False)


class _BidsTwo:
    state_spec = None

    def act(self, obs, state, first, rng, mask=None, *, greedy=False):
        return np.full(len(first), 2), np.zeros(len(first), np.float32), None


def bids_two():
    """A bot."""
    return _BidsTwo()
