"""Rules on the life of sessions: started, ended, come back, run out."""

from __future__ import annotations

import time

from ludus.gateway.conformance.rule import Rules
from ludus.gateway.conformance.subject import Subject, expect
from ludus.gateway.conformance.wire import Failed, Skipped

__all__ = ["RULES"]

RULES = Rules()


@RULES.add("unknown_session")
def unknown_session(subject: Subject) -> None:
    """A step of a session that never began is answered 404 unknown_session."""
    play = subject.play()
    for kind in ("tick", "end"):
        expect(play.step(kind, 1), 404, "unknown_session", what=f"{kind} before start")
        expect(play.step(kind), 404, "unknown_session", what=f"{kind} before start, without a number")


@RULES.add("ended")
def ended(subject: Subject) -> None:
    """After end the session is over: later steps get unknown_session, and detail tells why it ended."""
    play = subject.play()
    play.start()
    expect(play.end(1), 200, what="end")
    reply = expect(play.step("tick", 2), 404, "unknown_session", what="a tick after end")
    if "asked" not in reply.json()["detail"]:
        raise Failed(f"detail does not tell the reason `asked`: {reply}")
    expect(play.step("tick"), 404, "unknown_session", what="a tick after end, without a number")


@RULES.add("begin_again")
def begin_again(subject: Subject) -> None:
    """An id whose session has ended may begin again."""
    play = subject.play()
    for _ in range(2):
        play.start()
        expect(play.step("tick", 1), 200, what="a tick")
        expect(play.end(2), 200, what="end")


@RULES.add("already_started")
def already_started(subject: Subject) -> None:
    """A start on a live id is refused with already_started, and the session goes on."""
    play = subject.play(run="one")
    play.start()
    expect(play.step("tick", 1), 200, what="a tick")
    expect(play.step("start", 0), 409, "already_started", what="start of the same run")
    expect(play.step("start"), 409, "already_started", what="start of the same run without a number")
    without = {"session": play.session, "step_kind": "start"}
    expect(subject.post(without), 409, "already_started", what="start without run")
    expect(play.step("tick", 2), 200, what="a tick after that")
    play.end(3)


@RULES.add("came_back")
def came_back(subject: Subject) -> None:
    """A start on a live id with another run ends the old session and begins a new one."""
    old = subject.play(run="one")
    old.start()
    expect(old.step("tick", 1), 200, what="a tick of the old run")
    expect(old.step("tick", 2), 200, what="a tick of the old run")
    new = subject.play(old.session, run="two")
    first = new.start()
    again = new.step("start", 0)
    if (again.status, again.body) != (first.status, first.body):
        raise Failed(f"the new run's start is not repeated but answered {again}")
    expect(new.step("tick", 3), 409, "out_of_order", what="the old run's next number")
    expect(new.step("tick", 1), 200, what="the new run's first tick")
    expect(new.end(2), 200, what="the new run's end")


@RULES.add("lease")
def lease(subject: Subject) -> None:
    """A session without a step for as long as its lease ends; a step renews it."""
    lease_s = subject.settings.lease_s
    if lease_s is None:
        raise Skipped("give the server's lease to have it checked")
    idle, busy = subject.play(), subject.play()
    idle.start()
    busy.start()
    for number in (1, 2):  # during this, the other one's lease runs out
        time.sleep(lease_s * 0.6)
        expect(busy.step("tick", number), 200, what=f"a tick {lease_s * 0.6:.1f} s after the one before")
    time.sleep(lease_s * 0.3)
    reply = expect(idle.step("tick", 1), 404, "unknown_session", what=f"a tick {lease_s * 1.5:.1f} s after the start")
    if "lease" not in reply.json()["detail"]:
        raise Failed(f"detail does not tell the reason `lease`: {reply}")
    expect(busy.end(3), 200, what="the end of the other session")
