"""The views there are, in the order of their tabs. The first that a trial has is the one that opens."""

from __future__ import annotations

from pathlib import Path

from ludus.page.view import View
from ludus.page.views import (
    lineage,
    matches,
    metrics,
    payoff,
    play,
    ratings,
    sessions,
    standings,
    training,
    versions,
    workers,
)

__all__ = ["VIEWS", "views_of"]

VIEWS: tuple[View, ...] = (
    standings.VIEW,
    payoff.VIEW,
    ratings.VIEW,
    lineage.VIEW,
    matches.VIEW,
    play.VIEW,
    training.VIEW,
    metrics.VIEW,
    workers.VIEW,
    versions.VIEW,
    sessions.VIEW,
)


def views_of(folder: Path) -> list[View]:
    """Those that this trial has."""
    return [view for view in VIEWS if view.applies(folder)]
