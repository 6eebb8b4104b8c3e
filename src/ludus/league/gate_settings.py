"""The settings of the gate before a promotion. (Without torch: a command line shows them before it needs any.)"""

from __future__ import annotations

from dataclasses import dataclass

from ludus.league.game_limits import GAME_MINUTES
from ludus.options import check, option

__all__ = ["GateSettings"]


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    games: int = option(200, help="games against the champion, and against the exploiter", minimum=10)
    min_win_rate: float = option(
        0.5,
        help="the candidate's win rate against the champion is above this, with confidence",
        minimum=0.0,
        maximum=1.0,
    )
    exploit_steps: int = option(200_000, help="steps that an exploiter is trained for; 0: no exploiter", minimum=0)
    max_exploit: float = option(
        0.7,
        help="the exploiter's win rate against the candidate is below this, with confidence",
        minimum=0.0,
        maximum=1.0,
    )
    seed: int = option(0, help="seed of games and of the exploiter", minimum=0)
    max_game_steps: int = option(
        0, help="give up if a game has more steps; 0: by the rules of the game, or 100,000", minimum=0
    )
    max_game_minutes: float = option(GAME_MINUTES, help="give up if no game ends for so long", minimum=0.0)

    def __post_init__(self) -> None:
        check(self)
