"""What the log of a league has: commands by their names, with arguments that are plain data.

    COMMANDS["report"](league, [["17", [[1.0, -1.0]]]])

The service writes a command down before it is done; a league that is started again does all of them once more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ludus.data.nest import Nest
from ludus.errors import DataError
from ludus.league.league import Advance, League, Match
from ludus.league.players import player_of
from ludus.league.settings import changed

__all__ = ["COMMANDS"]

_LOG = logging.getLogger(__name__)


def _begin(league: League, matches: list[Any]) -> None:
    for match, names, learner, owner in matches:
        league.begin(Match(match, tuple(league.player(name) for name in names), learner, owner))


def _report(league: League, results: list[Any]) -> list[bool]:
    """Each by itself: a log may have one that is refused today, and those behind it count."""
    counted = []
    for match, games in results:
        try:
            counted.append(league.report_series(match, games))
        except DataError as error:
            _LOG.warning("the result of the match %s is left out: %s", match, error)
            counted.append(False)
    return counted


def _advance(league: League, name: str, step: int, version: int | None) -> Advance:
    return league.advance(name, step=step, version=version)


def _configure(league: League, change: Nest) -> None:
    league.configure(changed(league.settings, change))


COMMANDS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "begin": _begin,
        "report": _report,
        "abort": League.abort,
        "advance": _advance,
        "start_process": League.start_process,
        "add": lambda league, player: league.add(player_of(player)),
        "snapshot": League.snapshot,
        "configure": _configure,
        "promote": League.promote,
        "freeze": League.freeze,
        "remove": League.remove,
    }
)
"""By the name that a log has for each; called with the league and what the log has of its arguments."""
