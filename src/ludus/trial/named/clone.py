"""One version of a named model, to play against: it never changes, and costs neither disk nor a process.

opponent = model.clone(1200)                     # the newest version at or before 1200; -1: the newest of all
logits, value = await opponent.forward(image)    # run by what runs the model, in a batch of its version
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ludus import errors
from ludus.data.nest import Nest
from ludus.models.ready_versions import Holds
from ludus.models.versions.store import VersionStore

if TYPE_CHECKING:
    import torch

    from ludus.trial.named.model import RemoteModel

__all__ = ["ModelClone", "number_of"]

_MAX_RACES = 100


def number_of(store: VersionStore, model: str, step: int | str) -> int:
    """The version that a clone is of: a tag's, or the newest at or before a step. Raises `DataError`."""
    return store.resolve(model, step) if isinstance(step, str) else store.at_or_before(model, step)


class ModelClone:
    """Made by `RemoteModel.clone`. While it lives, retention leaves its version where it is, as for a session."""

    def __init__(self, model: RemoteModel, step: int | str, holds: Callable[[], Holds], store: VersionStore) -> None:
        self.model = model
        self._find_holds = holds
        self._holds = holds()
        self.step = self._hold(step, store)
        """The number of the version that it plays."""
        self._let_go = weakref.finalize(self, self._holds.release_soon, self.step)
        self._let_go.atexit = False

    def _hold(self, step: int | str, store: VersionStore) -> int:
        """Retention may be quicker than we are: then a version before it is meant."""
        for attempt in range(_MAX_RACES):
            number = number_of(store, self.model.name, step)
            try:
                return self._holds.hold(number)
            except errors.DataError:
                if attempt == _MAX_RACES - 1 or number_of(store, self.model.name, step) == number:
                    raise
        raise AssertionError("the last attempt returns or raises")

    @property
    def name(self) -> str:
        return f"{self.model.name}-{self.step}"

    async def forward(self, *args: Any, **kwargs: Any) -> Nest:
        """As `RemoteModel.forward`, by this version, whatever the session plays."""
        self._hold_again()
        return await self.model.forward_version(self.step, *args, **kwargs)

    def _hold_again(self) -> None:
        """If what this process knew of the model was closed since, or this is a child that was forked."""
        holds = self._find_holds()
        if holds is not self._holds and self._let_go.alive:
            self._let_go.detach()
            self._holds = holds
            self._holds.hold(self.step)
            self._let_go = weakref.finalize(self, self._holds.release_soon, self.step)
            self._let_go.atexit = False

    def get_model(self) -> torch.nn.Module:
        """A module of one's own with these weights."""
        self._hold_again()
        return self.model.get_model(self.step)

    def publish_weights(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raises `ConfigError`: a clone stays as it is."""
        raise errors.ConfigError(
            f"{self.name!r} is version {self.step} of {self.model.name!r} and never changes. To train from it, make a "
            f"model of its own: clone({self.step}, name='branch')"
        )

    def close(self) -> None:
        """Let the version go, which is gone with a later publish if it is old. So does the garbage collector."""
        self._let_go()

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere it is found by its model and its number, which must be there still."""
        return _find, (self.model, self.step)

    def __repr__(self) -> str:
        return f"ModelClone({self.model.name!r}, step={self.step})"


def _find(model: RemoteModel, number: int) -> ModelClone:
    found = model.clone(number)
    if found.step != number:
        raise errors.DataError(
            f"version {number} of {model.name!r} is gone: a clone must stay open where it was made until it "
            "was received"
        )
    return found
