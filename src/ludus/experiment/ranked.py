"""Checkpoints of several ranks: each has its own, and they go on only from a step that all have."""

from __future__ import annotations

import logging
from typing import Any

from ludus import errors
from ludus.data.nest import Nest
from ludus.experiment.checkpoints import CheckpointStore

__all__ = ["load_together"]

_LOG = logging.getLogger(__name__)


def load_together(store: CheckpointStore, ranks: Any) -> tuple[int, Nest] | None:
    """The newest checkpoint that is valid on all ranks, each with its own; `None` if the run has yet to make its first.

    All ranks call it together, and all come back or all raise. Raises `CheckpointError` if there are checkpoints, but
    none that all have.
    """
    found: tuple[int, Nest] | None = None
    at_most: int | None = None
    why = ""
    while True:
        if found is None or (at_most is not None and found[0] > at_most):
            try:
                found = store.load(at_most=at_most)
            except errors.CheckpointError as error:
                found, why = None, f" {error}"
        step = -1 if found is None else found[0]
        least, most = int(ranks.least(step)), -int(ranks.least(-step))
        if least < 0:
            break
        if least == most:
            return found
        at_most = least  # this one is the newest of some rank: the others look whether they have it, too
    steps = store.steps()
    fewest, most = int(ranks.least(len(steps))), -int(ranks.least(-len(steps)))
    if most == 0:
        return None
    if fewest == 0 and most == 1:
        _LOG.warning("the run was killed while its ranks wrote their first checkpoint, so it starts again.")
        return None
    there = ", ".join(map(str, steps)) or "none"
    raise errors.CheckpointError(
        f"the {ranks.size} ranks have no valid checkpoint in common. Those of rank {ranks.rank} are of the steps: "
        f"{there}.{why} The run cannot go on, and all files are as they were; start it again under another name."
    )
