"""What a repositioning problem is like."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ludus.errors import EnvError

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keyword arguments of `scenario:repositioning`."""

    num_ticks: int = 120  # of an episode
    num_containers: int = 1000
    space: int = 75  # of a vessel, for containers
    orders_per_tick: float = 60.0  # of all ports, on average
    season: int = 40  # ticks, from one high season of a port to its next
    swing: float = 1.0  # how much a season changes: at its height, a port sends exp(swing) of its ordinary share
    bias: float = 0.6  # how much ports differ all through an episode, as a std of the same
    team_share: float = 1.0  # of the team's reward in that of each port; the rest is the port's own

    def check(self, name: str) -> None:
        """Raise `EnvError` for a value that makes no problem."""
        lowest = {"num_ticks": 1, "num_containers": 0, "space": 1, "orders_per_tick": 0, "season": 2, "swing": 0}
        for field in fields(self):
            value, low = getattr(self, field.name), lowest.get(field.name, 0)
            kinds = (int,) if field.type == "int" else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value < 1e6:
                raise EnvError(f"{name}: {field.name}={value!r} must be {_KINDS[len(kinds)]}, at least {low}")
        if self.team_share > 1:
            raise EnvError(f"{name}: team_share={self.team_share!r} must be at most 1")
        if not self.orders_per_tick:
            raise EnvError(f"{name}: orders_per_tick={self.orders_per_tick!r} must be above 0")


_KINDS = {1: "a whole number", 2: "a number"}
