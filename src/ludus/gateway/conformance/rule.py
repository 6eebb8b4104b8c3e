"""One rule of the protocol: a code, a sentence, and a function that raises `Failed` or `Skipped`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["GRPC", "HTTP", "Rule", "Rules"]

HTTP = frozenset({"http"})
GRPC = frozenset({"grpc"})
Examine = Callable[[Any], None]  # of a `Subject`, of the door's own kind if the rule is of one door


@dataclass(frozen=True, kw_only=True)
class Rule:
    code: str
    sentence: str
    examine: Examine
    doors: frozenset[str] = HTTP | GRPC  # that it holds for


class Rules(list[Rule]):
    """The rules of one chapter, in order: `@RULES.add("code")` on a function whose docstring is the sentence.

    They hold for the `doors` of the chapter, or for their own.
    """

    def __init__(self, rules: Iterable[Rule] = (), *, doors: frozenset[str] = HTTP | GRPC) -> None:
        super().__init__(rules)
        self._doors = doors

    def add(self, code: str, *, doors: frozenset[str] | None = None) -> Callable[[Examine], Examine]:
        def keep(examine: Examine) -> Examine:
            sentence = (examine.__doc__ or "").strip().rstrip(".")
            self.append(Rule(code=code, sentence=sentence, examine=examine, doors=doors or self._doors))
            return examine

        return keep
