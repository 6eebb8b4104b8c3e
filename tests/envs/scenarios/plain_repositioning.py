"""Repositioning by plain loops over whole numbers, one episode: what the arrays must equal.

It has the routes and the orders from where the arrays have them; all that happens, and all that is seen, is its own.
"""

from ludus.envs.scenarios.network import Network
from ludus.envs.scenarios.orders import Orders
from ludus.envs.scenarios.settings import Settings


class PlainRepositioning:
    def __init__(self, seed, **settings):
        self.settings = settings = Settings(**settings)
        self.network = network = Network()
        self.orders = Orders(
            seed,
            network,
            num_ticks=settings.num_ticks,
            num_containers=settings.num_containers,
            per_tick=settings.orders_per_tick,
            season=settings.season,
            swing=settings.swing,
            bias=settings.bias,
        )
        self.ports, self.vessels = range(network.num_ports), range(network.num_vessels)
        self.route = [[int(port) for port in network.port_at[vessel]] for vessel in self.vessels]
        self.leg = [[int(ticks) for ticks in network.leg[vessel]] for vessel in self.vessels]
        self.tick = 0
        self.stock = [int(n) for n in self.orders.first_stock]
        self.to_be_emptied = []  # (tick, port, number)
        self.waiting = {(a, b): 0 for a in self.ports for b in self.ports}
        self.goods = {(vessel, port): 0 for vessel in self.vessels for port in self.ports}
        self.empties = [0 for _ in self.vessels]
        self.stop = [int(n) for n in self.orders.first_stop]
        self.ticks_left = [int(n) for n in self.orders.first_ticks]
        self.at = {}  # port → the vessel there
        self.gains = [0 for _ in self.ports]  # fulfilled less short
        self.go_on()

    @property
    def is_over(self):
        return self.tick == self.settings.num_ticks

    def go_on(self):
        while True:
            self.one_tick()
            if self.at or self.is_over:
                return

    def one_tick(self):
        self.tick += 1
        for when, port, number in self.to_be_emptied:
            if when == self.tick:
                self.stock[port] += number
        for a in self.ports:
            for b in self.ports:
                for _ in range(int(self.orders.ordered[self.tick, a, b])):
                    if self.stock[a] > 0:
                        self.stock[a] -= 1
                        self.waiting[a, b] += 1
                        self.gains[a] += 1
                    else:
                        self.gains[a] -= 1
        for vessel in self.vessels:
            self.ticks_left[vessel] = max(0, self.ticks_left[vessel] - 1)
            port = self.route[vessel][self.stop[vessel]]
            if self.ticks_left[vessel] == 0 and port not in self.at:
                self.at[port] = vessel
        for port, vessel in self.at.items():
            self.to_be_emptied.append((self.tick + 2, port, self.goods[vessel, port]))
            self.goods[vessel, port] = 0
            for later in self.ahead(vessel):
                while self.waiting[port, later] > 0 and self.free(vessel) > 0:
                    self.waiting[port, later] -= 1
                    self.goods[vessel, later] += 1

    def ahead(self, vessel):
        route, stop = self.route[vessel], self.stop[vessel]
        return [route[(stop + later) % len(route)] for later in range(1, len(route))]

    def free(self, vessel):
        return self.settings.space - self.empties[vessel] - sum(self.goods[vessel, port] for port in self.ports)

    def step(self, choices):
        """Do what ports with a vessel chose; the team's reward."""
        for port, vessel in self.at.items():
            choice = choices[port]
            if 1 <= choice <= 4:
                wanted = next(n for n in range(self.stock[port] + 1) if 4 * n >= choice * self.stock[port])
                moved = min(wanted, self.free(vessel))
            elif choice >= 5:
                moved = -next(
                    n for n in range(self.empties[vessel] + 1) if 4 * n >= (choice - 4) * self.empties[vessel]
                )
            else:
                moved = 0
            self.stock[port] -= moved
            self.empties[vessel] += moved
            stop = self.stop[vessel]
            self.ticks_left[vessel] = self.leg[vessel][stop] + int(self.orders.late[self.tick, vessel])
            self.stop[vessel] = (stop + 1) % len(self.route[vessel])
        self.at = {}
        self.go_on()
        gains, self.gains = self.gains, [0 for _ in self.ports]
        percent = 100 / (self.settings.num_ticks * self.settings.orders_per_tick)
        return [gain * percent for gain in gains]

    def mask(self, port):
        if port not in self.at:
            return [True] + 8 * [False]
        vessel = self.at[port]
        can_load = self.stock[port] > 0 and self.free(vessel) > 0
        return [True] + 4 * [can_load] + 4 * [self.empties[vessel] > 0]

    # --- what is seen

    def of_port(self, port):
        sent, received = self.orders.sent, self.orders.received
        coming = sum(
            self.empties[vessel]
            for vessel in self.vessels
            if vessel not in self.at.values() and self.route[vessel][self.stop[vessel]] == port
        )
        return [
            self.stock[port] / 100,
            sum(number for when, where, number in self.to_be_emptied if where == port and when > self.tick) / 100,
            sum(self.waiting[port, to] for to in self.ports) / 100,
            sum(self.goods[vessel, port] for vessel in self.vessels) / 100,
            coming / 100,
            *((sent[self.tick + ticks, port] - sent[self.tick, port]) / 100 for ticks in (4, 8, 16)),
            *((received[self.tick + ticks, port] - received[self.tick, port]) / 100 for ticks in (8, 16)),
            min([30, *(self.ticks_to(vessel, port) for vessel in self.vessels)]) / 10,
        ]

    def ticks_to(self, vessel, port):
        """Until it comes to the port, if it is not late; it is not coming to where it is."""
        if port not in self.route[vessel] or self.at.get(port) == vessel:
            return 30
        stop, ticks = self.stop[vessel], self.ticks_left[vessel]
        while self.route[vessel][stop] != port:
            ticks += self.leg[vessel][stop]
            stop = (stop + 1) % len(self.route[vessel])
        return ticks

    def obs(self, port):
        which = [float(port == other) for other in self.ports]
        seen = [*which, 1 - self.tick / self.settings.num_ticks, *self.of_port(port)]
        if port not in self.at:
            return seen + (4 + 39) * [0.0]
        vessel = self.at[port]
        aboard = sum(self.goods[vessel, to] for to in self.ports)
        seen += [1.0, self.empties[vessel] / 100, aboard / 100, self.free(vessel) / 100]
        ticks, stop = 0, self.stop[vessel]
        for later in self.ahead(vessel):
            ticks += self.leg[vessel][stop]
            stop = (stop + 1) % len(self.route[vessel])
            seen += [*self.of_port(later), ticks / 10, self.goods[vessel, later] / 100]
        return seen

    def state(self):
        seen = [number for port in self.ports for number in self.of_port(port)]
        seen += [self.waiting[a, b] / 100 for a in self.ports for b in self.ports]
        seen += [self.empties[vessel] / 100 for vessel in self.vessels]
        seen += [self.goods[vessel, port] / 100 for vessel in self.vessels for port in self.ports]
        seen += [float(self.stop[vessel] == stop) for vessel in self.vessels for stop in range(len(self.route[0]))]
        seen += [self.ticks_left[vessel] / 10 for vessel in self.vessels]
        return [*seen, 1 - self.tick / self.settings.num_ticks]
