"""Stand-ins, so that each side is made without the others: `ludus.fake`.

FakeActor     the game engineer's: answers given bytes, and tells how many requests come
FakeGamecore  the server's: any number of games that play, and what that cost
FakeModel     the actor's: arrays of given specs, without torch and without a model
FakeBuffer    the trainer's: pushes made-up items
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludus.fake.actor import FakeActor as FakeActor
    from ludus.fake.buffer import FakeBuffer as FakeBuffer
    from ludus.fake.gamecore import FakeGamecore as FakeGamecore
    from ludus.fake.gamecore import LoadReport as LoadReport
    from ludus.fake.model import FakeModel as FakeModel

__all__ = ["FakeActor", "FakeBuffer", "FakeGamecore", "FakeModel", "LoadReport"]

_HOMES = {
    "FakeActor": "actor",
    "FakeBuffer": "buffer",
    "FakeGamecore": "gamecore",
    "FakeModel": "model",
    "LoadReport": "gamecore",
}


def __getattr__(name: str) -> Any:
    """Fetched when first used: a game engineer's command loads neither NumPy nor the trainer's parts."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
