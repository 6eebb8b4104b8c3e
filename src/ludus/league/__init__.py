"""A population of players: who beats whom, who meets whom next, how strong each is.

    import ludus

    run = ludus.league.train("board:connect_four", minutes=15)       # begins, or goes on, as `ludus league` does
    run.standings[0]["name"]
    ludus.league.play_arena([run.trial_dir, "alphabeta:2"], num_games=200)
    with ludus.league.open_league(run.trial_dir) as league:          # also of one that runs
        league.snapshot("main")
    ludus.league.import_player(run.trial_dir, "rival", "monday")     # weights of another trial, met as they are

Names are fetched when first used: those that train bring torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludus.league.api import LeagueRun as LeagueRun
    from ludus.league.api import league as train
    from ludus.league.api import resume as resume
    from ludus.league.arena import play_arena as play_arena
    from ludus.league.frozen_import import import_player as import_player
    from ludus.league.gate import judge as judge
    from ludus.league.live import open_league as open_league

_HOMES = {
    "LeagueRun": ("ludus.league.api", "LeagueRun"),
    "import_player": ("ludus.league.frozen_import", "import_player"),
    "judge": ("ludus.league.gate", "judge"),
    "open_league": ("ludus.league.live", "open_league"),
    "play_arena": ("ludus.league.arena", "play_arena"),
    "resume": ("ludus.league.api", "resume"),
    "train": ("ludus.league.api", "league"),
}

__all__ = ["LeagueRun", "import_player", "judge", "open_league", "play_arena", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value
