"""Recently ended sessions, kept for one lease so that a retried last step gets the same answer; and lost ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from ludus.gateway.session_table import Event, State
from ludus.gateway.step import Outcome, Step

__all__ = ["EndedSessions"]

_MAX_REMEMBERED = 65536


@dataclass(slots=True)
class _Ended:
    reason: str
    number: int | None
    answer: Outcome | None
    until: float


class EndedSessions:
    """`lost` are those that a predecessor of this process held when it died."""

    def __init__(self, lost: Iterable[str] = ()) -> None:
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._lost = dict.fromkeys(lost)

    def add(self, session: str, reason: str, number: int | None, answer: Outcome | None, *, until: float) -> None:
        """A session has ended. If its last step had a `number`, a repetition of it gets `answer`."""
        self._ended[session] = _Ended(reason, number, answer, until)
        self._ended.move_to_end(session)
        if len(self._ended) > _MAX_REMEMBERED:
            self._ended.popitem(last=False)

    def forget(self, session: str) -> None:
        """It has started again."""
        self._ended.pop(session, None)
        self._lost.pop(session, None)

    def forget_until(self, now: float) -> None:
        while self._ended:
            session, ended = next(iter(self._ended.items()))
            if ended.until > now:
                return
            del self._ended[session]

    def prolong(self, seconds: float) -> None:
        """Keep all of them for longer: no step could be read in this time."""
        for ended in self._ended.values():
            ended.until += seconds

    def state_of(self, session: str) -> State:
        """Of one that is not live."""
        if session in self._ended:
            return State.ENDED
        return State.LOST if session in self._lost else State.ABSENT

    def event_of(self, step: Step) -> Event:
        if step.kind == "start":
            return Event.START
        return Event.LAST if self.answer_to(step) is not None else Event.OTHER

    def answer_to(self, step: Step) -> Outcome | None:
        """The answer again, if this is the last step of a session that has ended."""
        ended = self._ended.get(step.session)
        is_same = ended is not None and step.number is not None and step.number == ended.number
        return ended.answer if ended is not None and is_same else None

    def why(self, session: str) -> str:
        """For people: why no such session is live."""
        ended = self._ended.get(session)
        return (
            f"no session {session} has started here"
            if ended is None
            else f"session {session} has ended: {ended.reason}"
        )
