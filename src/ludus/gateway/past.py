"""Sessions that are not live any more, for as long as their games may still ask for them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from ludus.gateway.step import Answer, Step, problem

__all__ = ["Past"]

_MAX_REMEMBERED = 65536


@dataclass(slots=True)
class _Ended:
    reason: str
    number: int | None
    answer: Answer | None
    until: float


class Past:
    """`lost` are those that a predecessor of this process took along when it died."""

    def __init__(self, lost: Iterable[str] = ()) -> None:
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._lost = dict.fromkeys(lost)

    def add(self, session: str, reason: str, number: int | None, answer: Answer | None, *, until: float) -> None:
        """A session has ended; `answer` is what its last step, if it had a `number`, gets when it is repeated."""
        self._ended[session] = _Ended(reason, number, answer, until)
        self._ended.move_to_end(session)
        if len(self._ended) > _MAX_REMEMBERED:
            self._ended.popitem(last=False)

    def forget(self, session: str) -> None:
        """It has begun again."""
        self._ended.pop(session, None)
        self._lost.pop(session, None)

    def forget_until(self, now: float) -> None:
        while self._ended:
            session, ended = next(iter(self._ended.items()))
            if ended.until > now:
                return
            del self._ended[session]

    def prolong(self, seconds: float) -> None:
        """Keep all of them for longer: nothing could be asked for in this time."""
        for ended in self._ended.values():
            ended.until += seconds

    def repeated(self, step: Step) -> Answer | None:
        """The answer again, if this is the last step of a session that has ended."""
        ended = self._ended.get(step.session)
        is_same = ended is not None and step.number is not None and step.number == ended.number
        return ended.answer if ended is not None and is_same else None

    def refuse(self, step: Step) -> Answer:
        """Why a step of a session that is not live cannot be run."""
        ended = self._ended.get(step.session)
        if ended is None and step.session in self._lost:
            detail = f"the process that held session {step.session} died, and its actor with it; begin a new one"
            return problem("session_lost", detail)
        if ended is None:
            return problem("unknown_session", f"no session {step.session} has begun here")
        return problem("unknown_session", f"session {step.session} has ended: {ended.reason}")
