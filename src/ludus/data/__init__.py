"""Nested arrays, their specs, batches of them, and how they become bytes. Needs no torch."""

from __future__ import annotations

from ludus.data import codec, nest, spec
from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.data.batch import Batch
from ludus.data.codec import decode, encode, nbytes
from ludus.data.limits import DEFAULT_LIMITS, Limits
from ludus.data.nest import Nest, Structure
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec, spec_of, validate

__all__ = [
    "DEFAULT_LIMITS",
    "ActionSpec",
    "ArraySpec",
    "Batch",
    "Continuous",
    "Discrete",
    "Limits",
    "MultiDiscrete",
    "Nest",
    "Segment",
    "Structure",
    "codec",
    "decode",
    "encode",
    "nbytes",
    "nest",
    "spec",
    "spec_of",
    "validate",
]
