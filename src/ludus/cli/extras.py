"""What a command needs beyond the core, checked before it does anything that takes long."""

from __future__ import annotations

import importlib.util

from ludus import errors

__all__ = ["expect_installed"]

_LIBRARIES = {"PIL": "pillow", "Box2D": "box2d"}  # modules that are called otherwise than what is installed


def expect_installed(*modules: str, extra: str) -> None:
    """Raise `MissingExtra`, which says what to install, unless these can be imported. None of them is."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise errors.MissingExtra(_LIBRARIES.get(module, module), extra=extra)
