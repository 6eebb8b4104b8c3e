"""Repositioning of empty containers: many episodes at once, an array for each thing, with a leading axis of envs.

Goods are sent in containers. Where more arrives than is sent, empty containers pile up; where more is sent than
arrives, orders are lost for want of them. Vessels carry both. In each tick:

1. Containers that were emptied are back in the stock of their port.
2. Orders come in. Each takes a container from the stock, which then waits for a vessel to its destination; those to
   ports of low numbers first. What finds no container is short, and lost.
3. Vessels come to their ports. A port has one berth: if two come at once, the one of the lower number, the other tries
   again in the next tick. What a vessel brings for the port is emptied there, which takes `EMPTYING` ticks; what waits
   for a stop ahead of it is loaded, the nearest stop first, while there is space.
4. The ports with a vessel decide how many empty containers to load or to discharge: all ports of one tick at the same
   time, for each has another vessel and a stock of its own. The vessels leave.

Ticks in which no vessel comes to a port are passed over: a step of an env goes to the next tick in which somebody
decides, or to the end.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ludus.envs.scenarios.network import Network

__all__ = ["EMPTYING", "NUM_CHOICES", "SHARES", "Repositioning", "amounts"]

EMPTYING = 2
"""Ticks until a container that came with goods can be used again."""

SHARES = 4
"""Choice 0 does nothing; 1 to 4 load so many quarters of the stock, 5 to 8 discharge of the vessel's empties."""

NUM_CHOICES = 1 + 2 * SHARES

Ints = NDArray[np.int64]


@dataclass(kw_only=True)
class Repositioning:
    """N episodes. `taken(rows)` are copies of some; `put` writes them back."""

    tick: Ints  # [N]
    stock: Ints  # [N, P] empty containers
    emptied: Ints  # [N, P, EMPTYING] back in the stock in 1, 2, ... ticks
    waiting: Ints  # [N, P, P] with goods, for a vessel, by destination
    goods: Ints  # [N, V, P] aboard with goods, by destination
    empties: Ints  # [N, V] aboard, empty
    stop: Ints  # [N, V] where the vessel is, or goes next
    ticks_left: Ints  # [N, V] until it is there
    berth: Ints  # [N, P] the vessel that is there, -1: none
    fulfilled: Ints  # [N, P] orders since this was last set to 0
    short: Ints  # [N, P]

    @classmethod
    def allocate(cls, num: int, network: Network) -> Repositioning:
        ports, vessels = network.num_ports, network.num_vessels
        return cls(
            tick=np.zeros(num, np.int64),
            stock=np.zeros((num, ports), np.int64),
            emptied=np.zeros((num, ports, EMPTYING), np.int64),
            waiting=np.zeros((num, ports, ports), np.int64),
            goods=np.zeros((num, vessels, ports), np.int64),
            empties=np.zeros((num, vessels), np.int64),
            stop=np.zeros((num, vessels), np.int64),
            ticks_left=np.zeros((num, vessels), np.int64),
            berth=np.full((num, ports), -1, np.int64),
            fulfilled=np.zeros((num, ports), np.int64),
            short=np.zeros((num, ports), np.int64),
        )

    def taken(self, rows: Ints) -> Repositioning:
        return Repositioning(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def put(self, rows: Ints, others: Repositioning) -> None:
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(others, field.name)

    def go(self, ordered: Ints, network: Network, space: int) -> None:
        """One tick, with what is `[N, P, P]` ordered in it; vessels have `space` for so many containers."""
        self.tick += 1
        self.stock += self.emptied[:, :, 0]
        self.emptied[:, :, :-1] = self.emptied[:, :, 1:]
        self.emptied[:, :, -1] = 0
        self._fulfil(ordered)
        self._berth(network)
        rows, ports = np.nonzero(self.berth >= 0)
        self._handle_goods(rows, ports, network, space)

    def decide(self, choice: Ints, late: Ints, network: Network, space: int) -> None:
        """Do what ports `[N, P]` with a vessel chose, and let the vessels go, `late` by `[N, V]` ticks."""
        rows, ports = np.nonzero(self.berth >= 0)
        vessels = self.berth[rows, ports]
        loaded = amounts(
            self.stock[rows, ports], self.empties[rows, vessels], self.free(space)[rows, vessels], choice[rows, ports]
        )
        self.stock[rows, ports] -= loaded
        self.empties[rows, vessels] += loaded
        stops = self.stop[rows, vessels]
        self.ticks_left[rows, vessels] = network.leg[vessels, stops] + late[rows, vessels]
        self.stop[rows, vessels] = (stops + 1) % network.num_stops
        self.berth[:] = -1

    def free(self, space: int) -> Ints:
        """`[N, V]` containers for which there is space aboard."""
        left: Ints = space - self.goods.sum(axis=2) - self.empties
        return left

    def allowed(self, space: int) -> NDArray[np.bool_]:
        """`[N, P, choices]` nothing, and what moves a container; ports without a vessel do nothing."""
        mask = np.zeros((*self.berth.shape, NUM_CHOICES), np.bool_)
        mask[:, :, 0] = True
        rows, ports = np.nonzero(self.berth >= 0)
        vessels = self.berth[rows, ports]
        can_load = (self.stock[rows, ports] > 0) & (self.free(space)[rows, vessels] > 0)
        mask[rows, ports, 1 : 1 + SHARES] = can_load[:, None]
        mask[rows, ports, 1 + SHARES :] = (self.empties[rows, vessels] > 0)[:, None]
        return mask

    def _fulfil(self, ordered: Ints) -> None:
        up_to = np.cumsum(ordered, axis=2)
        served = np.minimum(up_to, self.stock[:, :, None])
        self.waiting[:, :, 0] += served[:, :, 0]
        self.waiting[:, :, 1:] += np.diff(served, axis=2)
        self.stock -= served[:, :, -1]
        self.fulfilled += served[:, :, -1]
        self.short += up_to[:, :, -1] - served[:, :, -1]

    def _berth(self, network: Network) -> None:
        np.maximum(self.ticks_left - 1, 0, out=self.ticks_left)
        for vessel in range(network.num_vessels):
            here = np.flatnonzero(self.ticks_left[:, vessel] == 0)
            port = network.port_at[vessel, self.stop[here, vessel]]
            is_free = self.berth[here, port] < 0
            self.berth[here[is_free], port[is_free]] = vessel

    def _handle_goods(self, rows: Ints, ports: Ints, network: Network, space: int) -> None:
        """Of the vessels at these ports: discharge what is for the port, load what is for the stops ahead."""
        vessels = self.berth[rows, ports]
        self.emptied[rows, ports, -1] += self.goods[rows, vessels, ports]
        self.goods[rows, vessels, ports] = 0
        ahead = network.ports_ahead[vessels, self.stop[rows, vessels]]
        rows, ports, vessels = rows[:, None], ports[:, None], vessels[:, None]
        up_to = np.cumsum(self.waiting[rows, ports, ahead], axis=1)
        np.minimum(up_to, self.free(space)[rows, vessels], out=up_to)
        loaded = np.diff(up_to, axis=1, prepend=0)
        self.waiting[rows, ports, ahead] -= loaded
        self.goods[rows, vessels, ahead] += loaded


def amounts(stock: Ints, empties: Ints, free: Ints, choice: Ints) -> Ints:
    """How many empty containers are loaded by each choice, negative: discharged. Parts are rounded up."""
    load = np.minimum(-(-stock * choice // SHARES), free)
    discharge = -(-empties * (choice - SHARES) // SHARES)
    chosen: Ints = np.where(choice <= SHARES, load, -discharge)
    return chosen
