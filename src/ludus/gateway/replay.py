"""Play a recording again: the same steps, in the same order, through today's actors; the answers are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from ludus.gateway.actor import MakeActor
from ludus.gateway.record import Recorded
from ludus.gateway.sessions import SessionLimits, Sessions
from ludus.gateway.step import Answer, Step

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
    """Run all of it. Sessions play the versions they played then; ends that no game asked for are skipped."""
    versions: dict[tuple[str, int], dict[str, int]] = {}
    steps = list(recorded)
    lives: dict[str, int] = {}
    for each in steps:  # what a session came to play is known at its end only
        if each.kind == "start":
            lives[each.session] = lives.get(each.session, 0) + 1
        versions[each.session, lives.get(each.session, 0)] = each.versions
    sessions = Sessions(make_actor, limits=SessionLimits(lease_s=1e9, max_sessions=1_000_000))
    lives.clear()
    counts: dict[str, int] = {}
    num_steps = num_different = 0
    first: Difference | None = None
    for each in steps:
        if each.kind == "end" and each.end_reason != "asked":
            continue
        wants: dict[str, str] = {}
        if each.kind == "start":
            lives[each.session] = lives.get(each.session, 0) + 1
            counts[each.session] = 0
            played = versions[each.session, lives[each.session]]
            wants = {model: str(number) for model, number in played.items()}
        else:
            counts[each.session] = counts.get(each.session, 0) + 1
        run = each.run or f"replay-{lives.get(each.session, 0)}"  # so that it may begin again without an end
        step = Step(each.kind, each.session, each.data, run=run, wants=wants)
        answer = await _step(sessions, step)
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
    return ReplayReport(num_sessions=sum(lives.values()), num_steps=num_steps, num_different=num_different, first=first)


async def _step(sessions: Sessions, step: Step) -> Answer:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    sessions.step(step, future.set_result)
    return await future


def _first_difference(a: bytes, b: bytes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
