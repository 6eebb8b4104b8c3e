"""`ludus.init`: the trial that a script's named models, buffers, actors and trainers belong to.

    ludus.init(project="./pong", trial="ppo-1")            # the folder ./pong/ppo-1

The first process that calls it is the driver: it hosts the name service, starts workers and ends with all of them.
Another that calls it with the same names while it runs joins. In a worker it is there by itself.
"""

from __future__ import annotations

from pathlib import Path

from ludus.trial import current as trials
from ludus.trial.trial import Trial

__all__ = ["init"]


def init(
    project: str | Path = "trials", trial: str | None = None, *, engine: str = "local", secret: str | None = None
) -> Trial:
    """Begin, take up or join the trial in the folder `project/trial`; without a name, begin one named by the time.

    Nobody runs it: this process becomes its driver. What it left when it last ran is there: versions of models, and the
    policy of a training run as the model `policy`. Somebody runs it: this process joins. Called again with the same
    arguments, it is the same trial.

    engine: what runs its workers, `local` or `ray`. secret: what its traffic is encrypted with beyond this machine;
    it may come from the environment (`LUDUS_TRIAL_SECRET`, or `LUDUS_TRIAL_SECRET_FILE` with the name of a file).
    """
    return trials.open(project, trial, engine=engine, secret=secret)
