"""What ports see of a repositioning problem, and the state of the whole.

An observation is 32-bit numbers around 1, by place:

| numbers | what |
|---|---|
| 6 | which port this is |
| 1 | the part of the episode that is left |
| 11 | the port: stock, being emptied, waiting for vessels, on its way here with goods, empty aboard vessels that come here next; what will be sent in the next 4, 8 and 16 ticks, what received in the next 8 and 16, as far as is known; ticks until the next vessel |
| 4 | the vessel: whether there is one, its empties, its goods, its free space |
| 3 x 13 | the next 3 stops of the vessel: the port as above, ticks until there, aboard for it |

Ports without a vessel see zeros for the last two. The state has the 11 of all ports, the goods that wait by
destination, of each vessel its empties, goods by destination, next stop and ticks until there, and the time left.
"""  # noqa: E501

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.scenarios.network import Network
from ludus.envs.scenarios.repositioning import Repositioning

__all__ = ["AHEAD", "OF_PORT", "OF_VESSEL", "Observer"]

_CONTAINERS, _TICKS = 100.0, 10.0  # numbers of them are divided by this
_FAR = 30  # ticks
_SENT_IN, _RECEIVED_IN = (4, 8, 16), (8, 16)  # ticks

_NUM_OF_PORT, _NUM_OF_VESSEL, _NUM_OF_STOP = 11, 4, 13
_PORTS = Network.num_ports

OF_PORT = slice(_PORTS + 1, _PORTS + 1 + _NUM_OF_PORT)
"""Where an observation has the port itself."""
OF_VESSEL = slice(OF_PORT.stop, OF_PORT.stop + _NUM_OF_VESSEL)
AHEAD = slice(OF_VESSEL.stop, OF_VESSEL.stop + (Network.num_stops - 1) * _NUM_OF_STOP)
"""The stops ahead, one after the other."""

Floats = NDArray[np.float32]


class Observer:
    """Of episodes of `num_ticks` ticks. `sent` and `received` are those of `Orders`, of all envs: `[N, ticks, P]`."""

    num_obs = AHEAD.stop

    def __init__(self, network: Network, *, num_ticks: int, space: int) -> None:
        self._network = network
        self._num_ticks = num_ticks
        self._space = space
        ports, vessels, stops = network.num_ports, network.num_vessels, network.num_stops
        self.num_state = ports * _NUM_OF_PORT + ports * ports + vessels * (1 + ports + stops + 1) + 1
        self._which = np.eye(ports, dtype=np.float32)
        self._stops = np.eye(stops, dtype=np.float32)
        # Ticks from a stop to each port of the route, 0 to itself, far to others: [V, L, P]
        self._ticks_to = np.full((vessels, stops, ports), _FAR, np.int64)
        for vessel in range(vessels):
            for stop in range(stops):
                self._ticks_to[vessel, stop, network.ports_ahead[vessel, stop]] = network.ticks_ahead[vessel, stop]
                self._ticks_to[vessel, stop, network.port_at[vessel, stop]] = 0
        self._vessels = np.arange(vessels)

    def observe(self, now: Repositioning, sent: Floats, received: Floats, obs: Floats, state: Floats) -> None:
        """Write `[N, P, ...]` observations and `[N, ...]` states. The forecasts count from the tick of each env on."""
        network, num = self._network, len(now.tick)
        of_port = self._of_ports(now, sent, received)
        left = (1.0 - now.tick / self._num_ticks)[:, None]
        obs[:] = 0.0
        obs[:, :, :_PORTS] = self._which
        obs[:, :, _PORTS] = left
        obs[:, :, OF_PORT] = of_port
        rows, ports = np.nonzero(now.berth >= 0)
        vessels = now.berth[rows, ports]
        stops = now.stop[rows, vessels]
        ahead = network.ports_ahead[vessels, stops]
        aboard = now.goods[rows, vessels]
        of_vessel = obs[rows, ports, OF_VESSEL.start :]
        of_vessel[:, 0] = 1.0
        of_vessel[:, 1] = now.empties[rows, vessels] / _CONTAINERS
        of_vessel[:, 2] = aboard.sum(axis=1) / _CONTAINERS
        of_vessel[:, 3] = self._space / _CONTAINERS - of_vessel[:, 1] - of_vessel[:, 2]
        of_stops = of_vessel[:, _NUM_OF_VESSEL:].reshape(len(rows), -1, _NUM_OF_STOP)
        of_stops[:, :, :_NUM_OF_PORT] = of_port[rows[:, None], ahead]
        of_stops[:, :, _NUM_OF_PORT] = network.ticks_ahead[vessels, stops] / _TICKS
        of_stops[:, :, _NUM_OF_PORT + 1] = np.take_along_axis(aboard, ahead, axis=1) / _CONTAINERS
        of_vessel[:, _NUM_OF_VESSEL:] = of_stops.reshape(len(rows), -1)
        obs[rows, ports, OF_VESSEL.start :] = of_vessel
        parts: list[NDArray[Any]] = [
            of_port,
            now.waiting / _CONTAINERS,
            now.empties / _CONTAINERS,
            now.goods / _CONTAINERS,
            self._stops[now.stop],
            now.ticks_left / _TICKS,
            left,
        ]
        state[:] = np.concatenate([part.reshape(num, -1) for part in parts], axis=1)

    def _of_ports(self, now: Repositioning, sent: Floats, received: Floats) -> Floats:
        network, num = self._network, len(now.tick)
        each = np.arange(num)
        rows, ports = np.nonzero(now.berth >= 0)
        here = now.berth[rows, ports]
        empties = now.empties.copy()
        empties[rows, here] = 0  # how many these will have is being decided
        coming = np.zeros((num, _PORTS), np.int64)
        next_port = network.port_at[self._vessels, now.stop]
        for vessel in range(network.num_vessels):
            coming[each, next_port[:, vessel]] += empties[:, vessel]
        ticks_to = now.ticks_left[:, :, None] + self._ticks_to[self._vessels, now.stop]
        ticks_to[rows, here, ports] = _FAR
        sent_now, received_now = sent[each, now.tick], received[each, now.tick]
        found = np.empty((num, _PORTS, _NUM_OF_PORT), np.float32)
        found[:, :, 0] = now.stock / _CONTAINERS
        found[:, :, 1] = now.emptied.sum(axis=2) / _CONTAINERS
        found[:, :, 2] = now.waiting.sum(axis=2) / _CONTAINERS
        found[:, :, 3] = now.goods.sum(axis=1) / _CONTAINERS
        found[:, :, 4] = coming / _CONTAINERS
        for place, ticks in enumerate(_SENT_IN, 5):
            found[:, :, place] = (sent[each, now.tick + ticks] - sent_now) / _CONTAINERS
        for place, ticks in enumerate(_RECEIVED_IN, 8):
            found[:, :, place] = (received[each, now.tick + ticks] - received_now) / _CONTAINERS
        found[:, :, 10] = np.minimum(ticks_to.min(axis=1), _FAR) / _TICKS
        return found
