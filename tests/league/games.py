"""A small league for tests: tic-tac-toe, learners that are small."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "num_envs": 8,
    "num_steps": 16,
    "minibatch_size": 128,
    "num_epochs": 1,
    "hidden": (16,),
    "games_per_match": 2,
    "turn_updates": 1,
    "snapshot_steps": 200,
    "bots": (),
}
GAME = "board:tic_tac_toe"
