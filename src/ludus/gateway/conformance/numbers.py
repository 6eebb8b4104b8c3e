"""Rules on the numbers of steps: what is repeated, what is refused."""

from __future__ import annotations

from ludus.gateway.conformance.rule import Rules
from ludus.gateway.conformance.subject import Subject, expect
from ludus.gateway.conformance.wire import Failed, Reply

__all__ = ["RULES"]

RULES = Rules()


@RULES.add("repeat")
def repeat(subject: Subject) -> None:
    """A repetition of the last number gets the same bytes again, and does not count as a step."""
    play = subject.play()
    play.start()
    for number in (1, 2, 3):
        first = expect(play.step("tick", number), 200, what=f"tick {number}")
        for _ in range(2):
            _same(first, play.step("tick", number), f"tick {number}")
    expect(play.step("tick", 4), 200, what="the tick after repetitions")
    play.end(5)


@RULES.add("repeat_same_connection")
def repeat_same_connection(subject: Subject) -> None:
    """A step may be repeated over the same connection, also with another body: the number says what it is."""
    play = subject.play()
    with subject.connect() as wire:
        play.start(wire=wire)
        first = expect(play.step("tick", 1, wire=wire), 200, what="a tick")
        _same(first, play.step("tick", 1, wire=wire), "the tick")
        _same(first, play.step("tick", 1, wire=wire, data=subject.settings.data * 2), "the tick with another body")
        play.step("end", 2, wire=wire)


@RULES.add("repeat_after_break")
def repeat_after_break(subject: Subject) -> None:
    """A step whose connection was cut before the answer is repeated over another, and runs once."""
    play = subject.play()
    play.start()
    for number in range(1, 9):
        with subject.connect() as wire:
            wire.send(subject.request(play.headers("tick", number)))
        first = expect(play.step("tick", number), 200, what=f"tick {number}, sent again")
        _same(first, play.step("tick", number), f"tick {number}")
    play.end(9)


@RULES.add("repeat_start")
def repeat_start(subject: Subject) -> None:
    """A start with step 0 may be repeated."""
    play = subject.play()
    first = play.start()
    _same(first, play.step("start", 0), "start")
    expect(play.step("tick", 1), 200, what="the first tick after a repeated start")
    play.end(2)


@RULES.add("repeat_end")
def repeat_end(subject: Subject) -> None:
    """A numbered end may be repeated after it, and gets the same bytes."""
    play = subject.play()
    play.start()
    expect(play.step("tick", 1), 200, what="a tick")
    first = expect(play.end(2), 200, what="end")
    _same(first, play.end(2), "end")
    _same(first, play.end(2), "end")


@RULES.add("repeat_under_way")
def repeat_under_way(subject: Subject) -> None:
    """A repetition that arrives while the step runs waits for it: many at once get the same bytes."""
    play = subject.play()
    play.start()
    wires = [subject.connect() for _ in range(8)]
    try:
        for wire in wires:
            wire.send(subject.request(play.headers("tick", 1)))
        replies = [expect(wire.read(), 200, what="a tick sent eight times at once") for wire in wires]
    finally:
        for wire in wires:
            wire.close()
    for reply in replies[1:]:
        _same(replies[0], reply, "a tick sent eight times at once")
    expect(play.step("tick", 2), 200, what="the tick after it")
    play.end(3)


@RULES.add("gap")
def gap(subject: Subject) -> None:
    """A number past the next one is refused with out_of_order; expected has the next."""
    play = subject.play()
    play.start()
    expect(play.step("tick", 1), 200, what="a tick")
    for kind, number in (("tick", 3), ("tick", 100), ("end", 3), ("tick", 2**63 - 1)):
        _out_of_order(play.step(kind, number), f"{kind} {number}", expected=2)
    expect(play.step("tick", 2), 200, what="the right number after those")
    play.end(3)


@RULES.add("older")
def older(subject: Subject) -> None:
    """A number before the last one is refused with out_of_order; expected has the next."""
    play = subject.play()
    play.start()
    for number in (1, 2, 3):
        expect(play.step("tick", number), 200, what=f"tick {number}")
    for kind, number in (("tick", 1), ("tick", 2), ("end", 1)):
        _out_of_order(play.step(kind, number), f"{kind} {number}", expected=4)
    play.end(4)


@RULES.add("start_number")
def start_number(subject: Subject) -> None:
    """A start carries 0 or no number."""
    play = subject.play()
    _out_of_order(play.step("start", 1), "start 1", expected=0)
    play.start(None)
    expect(play.step("tick", 1), 200, what="tick 1 after a start without a number")
    play.end(2)


@RULES.add("unnumbered")
def unnumbered(subject: Subject) -> None:
    """Steps without a number run in the order in which they arrive."""
    play = subject.play()
    play.start(None)
    with subject.connect() as wire:
        for _ in range(3):
            expect(play.step("tick", wire=wire), 200, what="a tick without a number")
    expect(play.end(), 200, what="end without a number")


def _same(first: Reply, second: Reply, what: str) -> None:
    expect(second, first.status, what=f"a repetition of {what}")
    if second.body != first.body:
        raise Failed(f"a repetition of {what} gets other bytes: {second.body[:60]!r}, not {first.body[:60]!r}")


def _out_of_order(reply: Reply, what: str, *, expected: int) -> None:
    content = expect(reply, 409, "out_of_order", what=what).json()
    if content.get("expected") != expected:
        raise Failed(f"{what} is refused with expected {content.get('expected')!r}, not {expected}")
