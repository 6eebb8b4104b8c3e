"""One rule of the protocol: a code, a sentence, and a function that raises `Failed` or `Skipped`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ludus.gateway.conformance.subject import Subject

__all__ = ["Rule", "Rules"]

Examine = Callable[[Subject], None]


@dataclass(frozen=True, kw_only=True)
class Rule:
    code: str
    sentence: str
    examine: Examine


class Rules(list[Rule]):
    """The rules of one chapter, in order: `@RULES.add("code")` on a function whose docstring is the sentence."""

    def add(self, code: str) -> Callable[[Examine], Examine]:
        def keep(examine: Examine) -> Examine:
            self.append(Rule(code=code, sentence=(examine.__doc__ or "").strip().rstrip("."), examine=examine))
            return examine

        return keep
