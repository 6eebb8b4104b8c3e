"""Play a recording again: the same steps, in the same order, through today's actors; the answers are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from ludus.gateway.actor import MakeActor
from ludus.gateway.http.wire import answer_of
from ludus.gateway.record import Recorded
from ludus.gateway.session_core import SessionCore, SessionLimits
from ludus.gateway.step import Outcome, Step

__all__ = ["Difference", "ReplayReport", "replay"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first byte that differs."""

    session: str
    step: int  # of the session, counted from its start, which is 0
    kind: str | None
    at: int  # byte of the answer
    recorded: bytes
    replayed: bytes

    def __str__(self) -> str:
        def show(body: bytes) -> str:
            return repr(body[max(0, self.at - 8) : self.at + 24])

        return (
            f"session {self.session}, step {self.step} ({self.kind or 'stateless'}), byte {self.at}: recorded "
            f"{show(self.recorded)}, now {show(self.replayed)}"
        )


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    num_sessions: int
    num_steps: int
    num_different: int
    first: Difference | None


async def replay(recorded: Iterable[Recorded], make_actor: MakeActor) -> ReplayReport:
    """Run all of it. Each step plays the versions it played then.

    Ends that no game asked for are run, too, but had no answer that could be compared.
    """
    steps = list(recorded)
    versions = _versions_of_lives(steps)
    sessions = SessionCore(make_actor, limits=SessionLimits(lease_s=1e9, max_sessions=1_000_000))
    counts: dict[str, int] = {}
    num_sessions = num_steps = num_different = 0
    first: Difference | None = None
    for each, to_come in zip(steps, versions, strict=True):
        live = sessions.find(each.session) if each.kind is not None else None
        is_asked = each.kind != "end" or each.end_reason == "asked"
        if live is not None and (each.kind == "start" or not is_asked):  # a start: how the other ended is not recorded
            await _end(sessions, each.session, each.end_reason or "replaced")
        if not is_asked:
            continue
        if live is not None:
            live.play(each.versions)
        if each.kind == "start":
            num_sessions += 1
            counts[each.session] = 0
        else:
            counts[each.session] = counts.get(each.session, 0) + 1
        wants = {model: str(number) for model, number in {**to_come, **each.versions}.items()}
        outcome = await _step(sessions, Step(each.kind, each.session, each.data, run=each.run, wants=wants))
        answer = answer_of(outcome)
        num_steps += 1
        if (answer.status == 200) == (each.status == 200) and (answer.status != 200 or answer.body == each.body):
            continue
        num_different += 1
        if first is None:
            first = Difference(
                session=each.session,
                step=counts[each.session],
                kind=each.kind,
                at=_first_difference(each.body, answer.body),
                recorded=each.body,
                replayed=answer.body,
            )
    await sessions.leave(1.0)
    return ReplayReport(num_sessions=num_sessions, num_steps=num_steps, num_different=num_different, first=first)


def _versions_of_lives(steps: list[Recorded]) -> list[dict[str, int]]:
    """By step: what its session came to play, which is known at its end only. A stateless tick is on its own."""
    found: list[dict[str, int]] = []
    known: dict[str, dict[str, int]] = {}
    for each in reversed(steps):
        if each.kind is None:
            found.append({})
            continue
        found.append(known.setdefault(each.session, each.versions))
        if each.kind == "start":
            del known[each.session]
    return found[::-1]


async def _step(sessions: SessionCore, step: Step) -> Outcome:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    sessions.step(step, future.set_result)
    return await future


async def _end(sessions: SessionCore, session: str, reason: str) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    sessions.end(session, reason, lambda: future.set_result(None))
    await future


def _first_difference(a: bytes, b: bytes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
