"""What is ordered in an episode, and how late vessels are: all that is random, drawn from a seed at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.envs.scenarios.network import Network

__all__ = ["HORIZON", "Orders"]

HORIZON = 24
"""Forecasts go so many ticks beyond the last one."""


class Orders:
    """An order wants an empty container at one port, to be brought to another.

    Every port has a season: in one half of it more is sent from there than arrives, in the other half less. Each port's
    begins at another time, and some ports send more than others all through an episode. What is ordered in a tick is
    random around the rates of that tick; the rates are known in advance.
    """

    def __init__(
        self,
        seed: int,
        network: Network,
        *,
        num_ticks: int,
        num_containers: int,
        per_tick: float,
        season: int,
        swing: float,
        bias: float,
    ) -> None:
        rng = np.random.default_rng(seed)
        num_ports = network.num_ports
        begins = rng.permutation(num_ports) / num_ports + rng.random()
        biases = rng.normal(0.0, bias, num_ports)
        ticks = np.arange(num_ticks + HORIZON + 1)[:, None]
        tide = swing * np.sin(2 * np.pi * (ticks / season + begins)) + biases
        sends, receives = np.exp(tide), np.exp(-tide)
        shares = receives[:, None, :] * network.is_served
        shares /= shares.sum(axis=2, keepdims=True)
        rate = per_tick * (sends / sends.sum(axis=1, keepdims=True))[:, :, None] * shares
        self.ordered: NDArray[np.int64] = rng.poisson(rate[: num_ticks + 1])
        """`[T + 1, P, P]` in each tick, from a port to another; nothing in tick 0, which is before the first."""
        self.ordered[0] = 0
        self.sent: NDArray[np.float32] = np.cumsum(rate.sum(axis=2), axis=0).astype(np.float32)
        """`[T + 1 + HORIZON, P]` expected from the beginning to the end of each tick."""
        self.received: NDArray[np.float32] = np.cumsum(rate.sum(axis=1), axis=0).astype(np.float32)
        self.late: NDArray[np.int64] = rng.integers(0, 2, (num_ticks + 1, network.num_vessels))
        """`[T + 1, V]` the ticks that a vessel loses on the way if it leaves in that tick."""
        self.first_stop: NDArray[np.int64] = rng.integers(0, network.num_stops, network.num_vessels)
        self.first_ticks: NDArray[np.int64] = rng.integers(1, 4, network.num_vessels)
        """`[V]` where the vessels go first, and the ticks until they are there."""
        self.first_stock: NDArray[np.int64] = rng.multinomial(num_containers, rng.dirichlet(np.full(num_ports, 8.0)))
        """`[P]` where the containers are at the beginning, all empty."""
