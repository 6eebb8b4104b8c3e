"""Networks that came from elsewhere: what each of them is made of, which may be nothing like the league's own.

    networks = ImportedNetworks(folder)                # the trial's
    networks.add("rival", policy)
    networks.open("rival")                             # a policy, without its weights; None: it is the league's own

    league/imported/rival.definition

The weights of such a model are in the league's pool, as those of any other.
"""

from __future__ import annotations

from pathlib import Path

from ludus.errors import DataError
from ludus.league.folder import FOLDER
from ludus.learn.policies.policy import Policy
from ludus.learn.policies.served import ServedPolicy
from ludus.models.definition import Definition, ModelFolder

__all__ = ["ImportedNetworks"]

_IMPORTED = "imported"


class ImportedNetworks:
    """Of the league in a trial's folder, by the names of models."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER / _IMPORTED

    def __contains__(self, model: str) -> bool:
        return ModelFolder(self.folder, model).exists

    def open(self, model: str) -> Policy | None:
        """Each time another one. Raises `DataError` if its definition is damaged.

        One of Ludus's networks is opened without running any code; one of a user's own only if this user has imported
        it on this machine, else `ConfigError` is raised.
        """
        if model not in self:
            return None
        policy = ModelFolder(self.folder, model).definition().module
        if not isinstance(policy, Policy):
            raise DataError(f"the imported model {model!r} is a {type(policy).__name__}, no policy: import it again")
        return policy

    def add(self, model: str, policy: ServedPolicy) -> None:
        """In place of what was imported under this name before, which nobody plays."""
        ModelFolder(self.folder, model).define(Definition(module=policy, forward_args=policy.example()))
