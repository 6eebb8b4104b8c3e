"""The state of a NumPy generator as a nest for the codec, which takes no numbers of 128 bits: those are text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ludus.data.nest import Nest

__all__ = ["restore_rng", "save_rng"]


def save_rng(rng: np.random.Generator) -> Nest:
    """Of a PCG64 generator, as `np.random.default_rng` makes."""
    state: Any = rng.bit_generator.state
    return {
        "state": str(state["state"]["state"]),
        "inc": str(state["state"]["inc"]),
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }


def restore_rng(rng: np.random.Generator, saved: Nest) -> None:
    """Go on where `save_rng` was called."""
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": int(saved["state"]), "inc": int(saved["inc"])},
        "has_uint32": saved["has_uint32"],
        "uinteger": saved["uinteger"],
    }
