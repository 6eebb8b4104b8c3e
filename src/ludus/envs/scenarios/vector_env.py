"""`RepositioningVectorEnv`: many episodes of repositioning, stepped together; the ports with a vessel are active."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec, TimeStep, VectorEnvStats
from ludus.data.actions import Discrete
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.envs import attributes, rows, seeds
from ludus.envs.scenarios.network import Network
from ludus.envs.scenarios.observations import Observer
from ludus.envs.scenarios.orders import HORIZON, Orders
from ludus.envs.scenarios.repositioning import NUM_CHOICES, Repositioning
from ludus.envs.scenarios.settings import Settings
from ludus.errors import EnvError

__all__ = ["RepositioningVectorEnv"]


class RepositioningVectorEnv:
    """Episode `e` of env `w` is drawn from `derived(seed, w, e)`.

    The reward of the team is the orders fulfilled less those that were short since the last step, in percent of all
    that is ordered in an episode on average. With `team_share` 1 every port gets that; with 0 each gets its own part,
    times the number of ports, so that the mean over ports is the same whatever the share.
    """

    def __init__(self, name: str, num_envs: int, settings: Settings) -> None:
        settings.check(name)
        self.num_envs = num_envs
        self._settings = settings
        self._network = network = Network()
        self._observer = Observer(network, num_ticks=settings.num_ticks, space=settings.space)
        self._percent = 100.0 / (settings.num_ticks * settings.orders_per_tick)
        self.spec = EnvSpec(
            name=name,
            obs=ArraySpec((self._observer.num_obs,), np.float32),
            action=Discrete(NUM_CHOICES),
            agents=tuple(f"port_{port}" for port in range(network.num_ports)),
            global_state=ArraySpec((self._observer.num_state,), np.float32),
            has_mask=True,
        )
        ports, ticks = network.num_ports, settings.num_ticks + 1
        self._ordered = np.zeros((num_envs, ticks, ports, ports), np.int64)
        self._sent = np.zeros((num_envs, ticks + HORIZON, ports), np.float32)
        self._received = np.zeros((num_envs, ticks + HORIZON, ports), np.float32)
        self._late = np.zeros((num_envs, ticks, network.num_vessels), np.int64)
        self._sim = Repositioning.allocate(num_envs, network)
        self._now = rows.allocate(self.spec, num_envs)
        self._envs = np.arange(num_envs)
        self._episode = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, np.bool_)
        self._seed = 0
        self._action: NDArray[Any] | None = None  # sent and not yet received, by env and port
        self._num_steps = self._num_ended = 0
        self._is_reset = self._is_closed = False

    @property
    def num_rows(self) -> int:
        return self.num_envs * self._network.num_ports

    def reset(self, seed: int) -> TimeStep:
        self._expect_open()
        self._seed, self._is_reset, self._action = int(seed), True, None
        self._episode[:] = 0
        self._begin(self._envs)
        self._go_on()
        return self._show(np.ones(self.num_envs, np.bool_))

    def send(self, action: NDArray[Any]) -> None:
        self._expect_open()
        if self._action is not None or not self._is_reset:
            problem = "a step is under way" if self._action is not None else "`reset` them first"
            raise EnvError(f"{self.spec.name}: {problem}")
        if action.shape != (self.num_rows,) or action.dtype.kind not in "iu":
            raise EnvError(
                f"{self.spec.name}: the actions are {action.dtype}{list(action.shape)}, not integers [{self.num_rows}]"
            )
        chosen = np.where(self._now.active, action, 0).astype(np.int64)
        if chosen.min() < 0 or chosen.max() >= NUM_CHOICES:
            row = int(np.argmax((chosen < 0) | (chosen >= NUM_CHOICES)))
            env, port = divmod(row, self._network.num_ports)
            raise EnvError(
                f"{self.spec.name}: {chosen[row]} of port_{port} in env {env} is no action; they go from 0 to "
                f"{NUM_CHOICES - 1}"
            )
        self._action = chosen.reshape(self.num_envs, -1)

    def recv(self) -> TimeStep:
        if self._action is None:
            raise EnvError(f"{self.spec.name}: there is nothing to `recv`; `send` an action first")
        action, self._action = self._action, None
        sim, started = self._sim, self._over.copy()
        sim.decide(action, self._late[self._envs, sim.tick], self._network, self._settings.space)
        self._num_steps += self.num_envs - int(started.sum())
        if started.any():
            self._episode[started] += 1
            self._begin(np.flatnonzero(started))
        self._go_on()
        return self._show(started)

    def step(self, action: NDArray[Any]) -> TimeStep:
        self.send(action)
        return self.recv()

    def save(self) -> Nest:
        if self._action is not None or not self._is_reset:
            return None
        return {
            "simulation": attributes.saved(self._sim),
            "seed": self._seed,
            "episode": self._episode.copy(),
            "over": self._over.copy(),
            "num_steps": self._num_steps,
            "num_ended": self._num_ended,
            "now": rows.to_nest(self._now),
        }

    def restore(self, saved: Nest) -> TimeStep:
        self._expect_open()
        try:
            if len(saved["episode"]) != self.num_envs:
                raise EnvError(f"{len(saved['episode'])} envs of {self.spec.name} were saved, not {self.num_envs}")
            self._seed = saved["seed"]
            self._episode[:], self._over[:] = saved["episode"], saved["over"]
            self._begin(self._envs)
            attributes.restore(self._sim, saved["simulation"])
            rows.copy_into(self._now, saved["now"])
            self._num_steps, self._num_ended = saved["num_steps"], saved["num_ended"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvError(f"this was not saved by envs of {self.spec.name}: {error!r}") from error
        self._action, self._is_reset = None, True
        return self._now

    def statistics(self) -> VectorEnvStats:
        return VectorEnvStats(num_steps=self._num_steps, num_episodes=self._num_ended)

    def close(self) -> None:
        self._is_reset, self._is_closed, self._action = False, True, None

    def ordered(self) -> NDArray[np.float64]:
        """`[W]` the return of each env's episode if every order were fulfilled: no policy can have more."""
        total: NDArray[np.float64] = self._ordered.sum(axis=(1, 2, 3)) * self._percent
        return total

    # --- episodes

    def _expect_open(self) -> None:
        if self._is_closed:
            raise EnvError(f"these envs of {self.spec.name} are closed")

    def _begin(self, envs: NDArray[np.int64]) -> None:
        """Draw the episodes of these envs, and set them to tick 0."""
        settings = self._settings
        sim = Repositioning.allocate(len(envs), self._network)
        for row, env in enumerate(envs.tolist()):
            orders = Orders(
                seeds.derived(self._seed, env, int(self._episode[env])),
                self._network,
                num_ticks=settings.num_ticks,
                num_containers=settings.num_containers,
                per_tick=settings.orders_per_tick,
                season=settings.season,
                swing=settings.swing,
                bias=settings.bias,
            )
            self._ordered[env], self._late[env] = orders.ordered, orders.late
            self._sent[env], self._received[env] = orders.sent, orders.received
            sim.stock[row], sim.stop[row], sim.ticks_left[row] = (
                orders.first_stock,
                orders.first_stop,
                orders.first_ticks,
            )
        self._sim.put(envs, sim)

    def _go_on(self) -> None:
        """To the next tick in which a port decides, or to the end."""
        sim, network, space = self._sim, self._network, self._settings.space
        going = self._envs
        while len(going):
            part = sim if len(going) == self.num_envs else sim.taken(going)
            part.go(self._ordered[going, part.tick + 1], network, space)
            if part is not sim:
                sim.put(going, part)
            going = going[(part.tick < self._settings.num_ticks) & (part.berth < 0).all(axis=1)]

    def _show(self, started: NDArray[np.bool_]) -> TimeStep:
        """Write down what is so now; those of `started` envs are at the beginning of an episode."""
        sim, now, num_ports = self._sim, self._now, self._network.num_ports
        self._over = sim.tick == self._settings.num_ticks
        self._num_ended += int(self._over.sum())
        own = (sim.fulfilled - sim.short) * self._percent
        share = self._settings.team_share
        reward = share * own.sum(axis=1, keepdims=True) + (1 - share) * num_ports * own
        reward[started] = 0.0  # what came before the first decision counts with what follows it
        sim.fulfilled[~started], sim.short[~started] = 0, 0
        now.reward[:] = reward.reshape(-1)
        now.first[:] = np.repeat(started, num_ports)
        now.terminated[:] = np.repeat(self._over, num_ports)
        now.active[:] = ((sim.berth >= 0) & ~self._over[:, None]).reshape(-1)
        assert now.mask is not None
        now.mask[:] = sim.allowed(self._settings.space).reshape(now.mask.shape)
        obs = now.obs.reshape(self.num_envs, num_ports, -1)
        self._observer.observe(sim, self._sent, self._received, obs, now.global_state)
        return now
