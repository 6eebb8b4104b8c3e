"""Rules for repositioning that were not learnt: what learning has to beat. They see what ports observe, no more.

    choose = HEURISTICS["fair"]()
    now = vector_env.step(choose(now))                   # a choice for each row

| name | what a port with a vessel does |
|---|---|
| `nothing` | nothing: containers are moved by goods alone |
| `random` | any of the choices that move a container, or nothing |
| `stock_up` | fills its stock up to what it will send in the next ticks, and loads what it has above that |
| `fair` | shares the containers in its stock and aboard among itself and the stops ahead, see there |

`docs/scenarios.md` has their returns. Their defaults were tuned on episodes of other seeds than it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core import TimeStep, VectorEnv
from ludus.envs.scenarios.network import Network
from ludus.envs.scenarios.observations import AHEAD, OF_PORT, OF_VESSEL
from ludus.envs.scenarios.repositioning import NUM_CHOICES, amounts

__all__ = ["HEURISTICS", "Chooser", "Fair", "Random", "StockUp", "nothing", "returns"]

Chooser: TypeAlias = Callable[[TimeStep], NDArray[np.int64]]

Floats = NDArray[np.float32]

# Places within the numbers of a port, see observations.py.
_STOCK, _EMPTIED, _GOODS, _COMING, _SENT = 0, 1, 3, 4, {4: 5, 8: 6, 16: 7}
_OF_PORT = OF_PORT.stop - OF_PORT.start
_TURNS = 25  # of a bisection


def nothing(now: TimeStep) -> NDArray[np.int64]:
    return np.zeros(len(now.active), np.int64)


class Random:
    """The same seed chooses the same."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, now: TimeStep) -> NDArray[np.int64]:
        assert now.mask is not None
        choice: NDArray[np.int64] = np.argmax(now.mask * (self._rng.random(now.mask.shape) + 0.01), axis=1)
        return choice


class StockUp:
    """`times` what is sent in the next `ticks` (4, 8 or 16) is kept."""

    def __init__(self, *, ticks: int = 16, times: float = 0.7) -> None:
        self._sent = _SENT[ticks]
        self._times = times

    def __call__(self, now: TimeStep) -> NDArray[np.int64]:
        port = now.obs[:, OF_PORT]
        return _nearest(now, self._times * port[:, self._sent] - port[:, _EMPTIED])


class Fair:
    """All of the port and the stops ahead are to have the same part of what they need.

    What is sent in the next `ticks` is what a port needs; of the stops ahead, `ahead` of that counts. Containers that
    come to a port with goods count as `goods` of one in its stock, and those that come empty as `coming` of one.
    """

    def __init__(self, *, ticks: int = 16, ahead: float = 0.28, goods: float = 0.75, coming: float = 0.75) -> None:
        self._sent = _SENT[ticks]
        self._ahead, self._goods, self._coming = ahead, goods, coming

    def __call__(self, now: TimeStep) -> NDArray[np.int64]:
        num = len(now.active)
        own, vessel = now.obs[:, OF_PORT], now.obs[:, OF_VESSEL]
        ahead = now.obs[:, AHEAD].reshape(num, Network.num_stops - 1, -1)[:, :, :_OF_PORT]
        ports = np.concatenate([own[:, None], ahead], axis=1)
        need = ports[:, :, self._sent] + 1e-3
        need[:, 1:] *= self._ahead
        has = ports[:, :, _EMPTIED] + self._goods * ports[:, :, _GOODS] + self._coming * ports[:, :, _COMING]
        has[:, 1:] += ports[:, 1:, _STOCK]
        to_share = own[:, _STOCK] + vessel[:, 1]
        low, high = np.zeros(num), np.full(num, 50.0)
        for _ in range(_TURNS):
            part = (low + high) / 2
            fits = np.maximum(0, part[:, None] * need - has).sum(axis=1) <= to_share
            low, high = np.where(fits, part, low), np.where(fits, high, part)
        return _nearest(now, np.maximum(0, low * need[:, 0] - has[:, 0]))


def returns(choose: Chooser, vector_env: VectorEnv, seed: int) -> NDArray[np.float64]:
    """`[W]` the return of the team in the first episode of each env that is reset with this seed."""
    now, num_envs = vector_env.reset(seed), vector_env.num_envs
    total, is_over = np.zeros(num_envs), np.zeros(num_envs, np.bool_)
    while not is_over.all():
        now = vector_env.step(choose(now))
        total += np.where(is_over, 0.0, now.reward.reshape(num_envs, -1).mean(axis=1))
        is_over |= now.terminated.reshape(num_envs, -1).all(axis=1)
    return total


def _nearest(now: TimeStep, wanted: Floats) -> NDArray[np.int64]:
    """The choice that brings the stock of each port closest to what is wanted."""
    assert now.mask is not None
    own, vessel = now.obs[:, OF_PORT], now.obs[:, OF_VESSEL]
    stock, empties, free = (
        np.rint(100 * number).astype(np.int64)[:, None] for number in (own[:, _STOCK], vessel[:, 1], vessel[:, 3])
    )
    after = stock - amounts(stock, empties, free, np.arange(NUM_CHOICES)[None])
    distance = np.where(now.mask, np.abs(after - 100 * wanted[:, None]), np.inf)
    choice: NDArray[np.int64] = distance.argmin(axis=1)
    return choice


HEURISTICS: dict[str, Callable[[], Chooser]] = {
    "nothing": lambda: nothing,
    "random": Random,
    "stock_up": StockUp,
    "fair": Fair,
}
"""Make one for each evaluation: some have a random generator."""
