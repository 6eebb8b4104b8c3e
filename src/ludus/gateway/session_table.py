"""The life of a session as a table: state and event → action and next state.

`SessionCore` looks up every event here, except for the next tick of an idle session, which it runs at once.
docs/protocol.md shows the table as `render` prints it; tests/gateway/test_session_table.py walks through it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["ACTIONS", "TABLE", "Event", "Move", "State", "render"]


class State(StrEnum):
    ABSENT = "absent"  # never began, or ended so long ago that it is forgotten
    LOST = "lost"  # with an earlier process
    ENDED = "ended"  # less than a lease ago
    STARTING = "starting"
    IDLE = "idle"
    RUNNING = "running"
    ENDING = "ending"


class Event(StrEnum):
    about: str

    def __new__(cls, name: str, about: str) -> Event:
        self = str.__new__(cls, name)
        self._value_, self.about = name, about
        return self

    START = "start", "a `start`, unless one of the next two"
    START_AGAIN = "start again", "its own `start` again: `step` 0, the same `run`; it still runs, or its answer is kept"
    OTHER_RUN = "other run", "a `start` with a `run` that the session does not have"
    TICK = "tick", "a `tick` without a number, or with the next in line"
    END = "end", "an `end`, likewise"
    LAST = "last number", "the number of the last step, whose answer is kept"
    SAME = "same number", "the number of a step that runs or waits"
    OTHER = "other number", "any other step"
    DONE = "done", "the actor's method has returned"
    FAILED = "failed", "the actor's method has raised, or was cancelled"
    LEASE = "lease", "no step for one lease"
    HUNG = "hung", "a step has run for ten leases, or for one if another session waits for it"
    LEAVE = "leave", "the server leaves"


ACTIONS = {
    "begin": "make an actor, call its `start`; refused if there is no room or the server leaves",
    "replace": "`end` the session with the reason `replaced`, then begin the new one",
    "run": "call the actor; `overloaded` if too many steps wait",
    "queue": "run it after those before it; `overloaded` if too many wait",
    "wait": "it gets the answer of the step with its number",
    "repeat": "it gets the answer that is kept; the actor does not run",
    "started": "answer; run what waits",
    "settle": "keep the answer to a numbered step; answer; run what waits",
    "close": "write down the end; answer; keep the answer to a numbered `end` for one lease",
    "stop": "call the actor's `end` (reason `lease` or `shutdown`), after the step that runs",
    "cancel": "cancel the step, which fails by that; after a tick the session ends with the reason `lease`",
    "forget": "forget its end",
}
"""What they do. An action that is not here is the code by which a step is refused."""


class Move(NamedTuple):
    action: str
    next: State


# One cell for each state, in the order of `State`: the action, and the next state if it is another. "-": it cannot be,
# or nothing happens.
_ROWS = {
    Event.START: """
        begin:starting | begin:starting | begin:starting
        | already_started | already_started | already_started | already_started""",
    Event.START_AGAIN: "- | - | - | wait | repeat | repeat | repeat",
    Event.OTHER_RUN: "- | - | - | replace | replace:starting | replace:starting | replace:starting",
    Event.TICK: "- | - | - | queue | run:running | queue | queue",
    Event.END: "- | - | - | queue | run:ending | queue | queue",
    Event.LAST: "- | - | repeat | - | repeat | out_of_order | queue",
    Event.SAME: "- | - | - | wait | - | wait | wait",
    Event.OTHER: """
        unknown_session | session_lost | unknown_session
        | out_of_order | out_of_order | out_of_order | queue""",
    Event.DONE: "- | - | - | started:idle | - | settle:idle | close:ended",
    Event.FAILED: "- | - | - | close:ended | - | settle:idle | close:ended",
    Event.LEASE: "- | - | forget:absent | - | stop:ending | - | -",
    Event.HUNG: "- | - | - | cancel | - | cancel | cancel",
    Event.LEAVE: "- | - | - | stop | stop:ending | stop | -",
}


def _cell(text: str, state: State) -> Move | None:
    action, _, following = text.strip().partition(":")
    return None if action == "-" else Move(action, State(following) if following else state)


TABLE: dict[Event, dict[State, Move | None]] = {
    event: {state: _cell(text, state) for state, text in zip(State, row.split("|"), strict=True)}
    for event, row in _ROWS.items()
}


def render() -> str:
    """As docs/protocol.md has it."""
    lines = [f"| event | {' | '.join(State)} |", "|---" * (len(State) + 1) + "|"]
    for event, moves in TABLE.items():
        lines.append(f"| {event} | {' | '.join(_show(move, state) for state, move in moves.items())} |")
    lines += ["", "| event | is |", "|---|---|", *(f"| {event} | {event.about} |" for event in Event)]
    lines += ["", "| action | does |", "|---|---|", *(f"| {action} | {text} |" for action, text in ACTIONS.items())]
    return "\n".join(lines) + "\n"


def _show(move: Move | None, state: State) -> str:
    if move is None:
        return "–"
    action = move.action if move.action in ACTIONS else f"`{move.action}`"
    return action if move.next is state else f"{action} → {move.next}"
