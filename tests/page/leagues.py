"""A league that has been played, made without training: players with hidden strengths, and results drawn from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ludus.experiment import saved_config
from ludus.league import config as configs
from ludus.league.running import make_service
from ludus.program.folder import TrialFolder

STRENGTHS = {"random": -2.0, "alphabeta_2": 1.2, "main": 0.0, "exploiter": -0.5, "league_exploiter": -0.3}


def make_league(
    project: Path, name: str, *, game: str = "board:connect_four", rounds: int = 6, matches: int = 60
) -> Path:
    """A trial that nobody runs: `rounds` snapshots of each learner, each after so many matches."""
    config = configs.resolve(
        game, {"snapshot_steps": 40_000, "bots": ("random", "alphabeta:2"), "project": str(project), "trial": name}
    )
    folder = TrialFolder.create(project, name).path
    saved_config.write_trial(folder, config.training)
    config.write(folder)
    service = make_service(config, folder)
    rng = np.random.default_rng(0)
    for each in range(rounds):
        for match in service.request_evaluations(matches):
            names = [player["name"] for player in match["players"]]
            own, other = (_strength(player, each) for player in match["players"])
            won = rng.random(4) < 1.0 / (1.0 + np.exp(other - own))
            assert len(names) == 2
            service.report_series([[match["id"], [[1.0, -1.0] if win else [-1.0, 1.0] for win in won]]])
        for number, learner in enumerate(("main", "exploiter", "league_exploiter")):
            service.advance(learner, (each + 1) * (45_000 - 8_000 * number), version=each + 1)
    service.close()
    return folder


def _strength(player: dict, now: int) -> float:
    """A learner grows by the round; a snapshot has the strength of the round in which it was taken."""
    name = player["parent"] or player["name"]
    rounds = now if player["parent"] is None else (player["version"] or 1) - 1
    grows = 0.0 if player["role"] == "bot" else 0.6 * rounds
    return STRENGTHS[name] + grows
