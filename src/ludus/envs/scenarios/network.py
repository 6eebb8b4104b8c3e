"""Ports, and the routes of the vessels between them: what is the same in every episode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Network"]

_ROUTES = ((0, 1, 2, 3), (3, 2, 4, 5), (5, 4, 0, 1))  # each is gone round and round; any two share two ports
_LEGS = ((2, 3, 2, 3), (2, 3, 2, 3), (2, 3, 2, 3))  # ticks from a stop to the next
_VESSELS = (0, 0, 1, 1, 2, 2)  # the route of each


class Network:
    """Arrays by vessel `[V, ...]`, by stop of its route `[..., L]` and by port `[P]`."""

    num_ports = 6
    num_vessels = len(_VESSELS)
    num_stops = len(_ROUTES[0])

    def __init__(self) -> None:
        routes, legs = np.array(_ROUTES), np.array(_LEGS)
        stops = range(self.num_stops)
        self.port_at: NDArray[np.int64] = routes[list(_VESSELS)]
        """`[V, L]` the ports of a vessel's route."""
        self.leg: NDArray[np.int64] = legs[list(_VESSELS)]
        """`[V, L]` ticks from a stop to the next."""
        ahead = np.array([[(stop + later) % self.num_stops for later in range(1, self.num_stops)] for stop in stops])
        self.ports_ahead: NDArray[np.int64] = self.port_at[:, ahead]
        """`[V, L, L - 1]` the ports after a stop, in the order of the route."""
        self.ticks_ahead: NDArray[np.int64] = np.cumsum(
            np.stack([self.leg, self.leg[:, ahead[:, 0]], self.leg[:, ahead[:, 1]]], axis=2), axis=2
        )
        """`[V, L, L - 1]` the ticks to each of them."""
        self.is_served: NDArray[np.bool_] = np.zeros((self.num_ports, self.num_ports), np.bool_)
        """`[P, P]` whether a vessel goes from the one port to the other."""
        for route in _ROUTES:
            self.is_served[np.ix_(route, route)] = True
        np.fill_diagonal(self.is_served, False)
