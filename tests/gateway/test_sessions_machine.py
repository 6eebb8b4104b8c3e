"""Sessions against a model of docs/protocol.md: starts, ticks, ends, repetitions, leases, slow actors, in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from house import Clock, Echo
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ludus.gateway.session_core import SessionCore, SessionLimits
from ludus.gateway.step import Outcome, Step

LEASE_S = 10.0
MAX_SESSIONS, MAX_QUEUE = 2, 2
IDS = st.sampled_from("aaaabc")
MANNERS = st.sampled_from(["", "", "", "raise", "slow"])
NUMBERS = st.sampled_from(["none", "next", "next", "last", "older", "gap"])


class Player(Echo):
    """Ticks of `slow…` wait until they are let go; those of `raise…` raise."""

    gates: dict[bytes, asyncio.Event]

    def tick(self, data: bytes) -> Any:
        if data.startswith(b"slow"):
            return self._tick_slowly(data)
        return self._tick(data)

    async def _tick_slowly(self, data: bytes) -> bytes:
        await self.gates[data].wait()
        return self._tick(data)

    def _tick(self, data: bytes) -> bytes:
        self.log.append(("tick", str(self.session), data))
        if data.startswith(b"raise"):
            raise ValueError("as asked")
        return b"t" + data


@dataclass
class Sent:
    """A step as its game sees it, and everybody who waits for its answer."""

    kind: str
    data: bytes
    number: int | None
    answers: list[list[Outcome]]


@dataclass
class Live:
    run: str
    touched: float
    expected: int = 1
    kept: str | None = None  # the answer to the last number
    line: list[Sent] = field(default_factory=list)  # the first is under way


@dataclass
class Ended:
    number: int | None
    kept: str | None
    until: float


class SessionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.log: list[Any] = []
        self.gates: dict[bytes, asyncio.Event] = {}
        limits = SessionLimits(lease_s=LEASE_S, max_sessions=MAX_SESSIONS, max_queue=MAX_QUEUE)
        self.sessions = SessionCore(self.make_actor, limits=limits, clock=self.clock)
        self.live: dict[str, Live] = {}
        self.ended: dict[str, Ended] = {}
        self.expected_log: list[Any] = []
        self.num_sent = 0

    def make_actor(self) -> Player:
        player = Player(self.log)
        player.gates = self.gates
        return player

    # -- how a step is sent and its answer checked

    def run(self, act: Callable[[], Any]) -> Any:
        """On the event loop, and until it has nothing more to do."""

        async def settled() -> Any:
            result = act()
            for _ in range(6):
                await asyncio.sleep(0)
            return result

        return self.loop.run_until_complete(settled())

    def send(self, kind: str, session: str, data: bytes, number: int | None, run: str = "") -> list[Outcome]:
        answers: list[Outcome] = []
        self.run(lambda: self.sessions.step(Step(kind, session, data, number, run), answers.append))
        return answers

    @staticmethod
    def shown(answers: list[Outcome]) -> str:
        """What a game can see of an answer: its bytes, or its problem."""
        assert len(answers) == 1, "each step is answered once"
        answer = answers[0]
        if not answer.code:
            return f"200 {answer.body.decode()}"
        return f"{answer.code} {answer.members.get('expected', '')}"

    # -- the model

    def absent(self, session: str, number: int | None) -> str:
        ended = self.ended.get(session)
        if ended is not None and number is not None and number == ended.number:
            assert ended.kept is not None
            return ended.kept
        return "unknown_session "

    def end(self, session: str, reason: str, number: int | None = None, kept: str | None = None) -> None:
        del self.live[session]
        self.ended[session] = Ended(number, kept, self.clock.now + LEASE_S)

    def run_step(self, session: str, sent: Sent) -> str:
        """An actor runs it, at its turn; what is answered."""
        live = self.live[session]
        live.touched = self.clock.now
        live.expected += 1
        if sent.kind == "end":
            self.expected_log.append(("end", session, sent.data, "asked"))
            answer = f"200 e{sent.data.decode()}"
            self.end(session, "asked", sent.number, answer)
            return answer
        self.expected_log.append(("tick", session, sent.data))
        answer = "actor_failed " if sent.data.startswith(b"raise") else f"200 t{sent.data.decode()}"
        live.kept = answer if sent.number is not None else None
        return answer

    def refused(self, live: Live, number: int | None) -> str | None:
        """Why a step cannot wait for its turn, if so."""
        following = live.expected + (1 if live.line else 0)
        num_queued = max(0, len(live.line) - 1)
        if number is not None and number != following + num_queued:
            return f"out_of_order {following}"
        return "overloaded " if num_queued >= MAX_QUEUE else None

    # -- rules

    def number_of(self, session: str, choice: str) -> int | None:
        live, ended = self.live.get(session), self.ended.get(session)
        following = 1
        if live is not None:
            following = live.expected + len(live.line)
        elif ended is not None and ended.number is not None:
            following = ended.number + 1
        return {"none": None, "next": following, "last": following - 1, "older": 0, "gap": following + 3}[choice]

    @rule(session=IDS, number=st.sampled_from([None, 0, 0, 1]), run=st.sampled_from(["", "1", "2"]))
    def start(self, session: str, number: int | None, run: str) -> None:
        live = self.live.get(session)
        if live is not None and live.line and run and run != live.run:
            return  # a game that came back while a step runs: `test_sessions.py` has it
        self.num_sent += 1
        data = b"%d" % self.num_sent
        answers = self.send("start", session, data, number, run)
        found = self.shown(answers)
        if live is not None:
            if number == 0 and run == live.run and live.expected == 1 and live.kept is not None:
                assert found == live.kept
                return
            if not run or run == live.run:
                assert found == "already_started "
                return
        if number not in (None, 0):
            assert found == "out_of_order 0"
            return
        if live is None and len(self.live) >= MAX_SESSIONS:
            assert found == "overloaded "
            return
        if live is not None:
            self.expected_log.append(("end", session, b"", "replaced"))
        self.ended.pop(session, None)
        answer = f"200 s{data.decode()}"
        self.live[session] = Live(run, self.clock.now, kept=answer if number is not None else None)
        self.expected_log.append(("start", session, data))
        assert found == answer

    @rule(session=IDS, number=NUMBERS, manner=MANNERS)
    def tick(self, session: str, number: str, manner: str) -> None:
        self.step("tick", session, number, manner)

    @rule(session=IDS, manner=MANNERS)
    def tick_in_a_hurry(self, session: str, manner: str) -> None:
        """More than may wait, if the first is slow."""
        for _ in range(MAX_QUEUE + 2):
            self.step("tick", session, "next", manner)

    @rule(session=IDS, number=st.sampled_from(["none", "next", "next", "last", "gap"]))
    def end_it(self, session: str, number: str) -> None:
        self.step("end", session, number)

    def step(self, kind: str, session: str, number: str, manner: str = "") -> None:
        self.num_sent += 1
        sent = Sent(kind, f"{manner}{self.num_sent}".encode(), self.number_of(session, number), [])
        self.gates[sent.data] = asyncio.Event()
        answers = self.send(kind, session, sent.data, sent.number)
        live = self.live.get(session)
        if live is None:
            assert self.shown(answers) == self.absent(session, sent.number)
            return
        if not live.line:
            if sent.number in (None, live.expected):
                if manner == "slow":
                    assert answers == []
                    live.touched = self.clock.now
                    sent.answers.append(answers)
                    live.line.append(sent)
                else:
                    assert self.shown(answers) == self.run_step(session, sent)
            elif sent.number == live.expected - 1 and live.kept is not None:
                live.touched = self.clock.now
                assert self.shown(answers) == live.kept
            else:
                assert self.shown(answers) == f"out_of_order {live.expected}"
            return
        same = [other for other in live.line if sent.number is not None and other.number == sent.number]
        if same:
            assert answers == []
            same[0].answers.append(answers)
            return
        refused = self.refused(live, sent.number)
        if refused is not None:
            assert self.shown(answers) == refused
        else:
            assert answers == []
            sent.answers.append(answers)
            live.line.append(sent)

    @precondition(lambda self: any(live.line for live in self.live.values()))
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        """The step under way ends, and those behind it have their turn."""
        session = data.draw(st.sampled_from([name for name, live in self.live.items() if live.line]))
        live = self.live[session]
        self.run(self.gates[live.line[0].data].set)
        line, live.line = live.line, []
        for position, sent in enumerate(line):
            if position and session in self.live and sent.data.startswith(b"slow"):
                live.touched = self.clock.now
                live.line = line[position:]
                return
            is_live = session in self.live
            expected = self.run_step(session, sent) if is_live else self.absent(session, sent.number)
            for answers in sent.answers:
                assert self.shown(answers) == expected

    @rule(leases=st.sampled_from([0.4, 0.7, 1.2]))
    def time_passes(self, leases: float) -> None:
        """A lease runs out unless a step is under way."""
        busy = [live for live in self.live.values() if live.line]
        if any(self.clock.now + leases * LEASE_S - live.touched > 9 * LEASE_S for live in busy):
            return  # steps that hang for ten leases: `test_sessions.py` has them
        self.clock.now += leases * LEASE_S
        self.run(self.sessions.sweep)
        for session, live in list(self.live.items()):
            if not live.line and self.clock.now - live.touched > LEASE_S:
                self.expected_log.append(("end", session, b"", "lease"))
                self.end(session, "lease")
        self.ended = {name: ended for name, ended in self.ended.items() if ended.until > self.clock.now}

    @invariant()
    def actors_ran_exactly_what_they_should(self) -> None:
        assert self.log == self.expected_log

    @invariant()
    def steps_of_sessions_that_are_not_live_are_refused_or_answered_as_before(self) -> None:
        for session in "abc":
            if session not in self.live:
                ended = self.ended.get(session)
                last = ended.number if ended is not None else None
                for number in (None, 0, last, None if last is None else last + 1):
                    answers = self.send("tick", session, b"late", number)
                    assert self.shown(answers) == self.absent(session, number)

    @invariant()
    def it_counts_as_the_model_does(self) -> None:
        assert {entry["session"]: entry["run"] for entry in self.sessions.describe()} == {
            session: live.run for session, live in self.live.items()
        }
        assert self.sessions.num_waiting == sum(len(live.line) for live in self.live.values())
        assert self.sessions.is_open == (len(self.live) < MAX_SESSIONS)

    def teardown(self) -> None:
        """The server leaves: what is under way is cancelled, every session is ended once, none begins any more."""
        waiting = [answers for live in self.live.values() for sent in live.line for answers in sent.answers]
        self.loop.run_until_complete(self.sessions.leave(grace_s=0.0))
        assert all(len(answers) == 1 for answers in waiting)
        assert len(self.sessions) == 0
        counts = [sum(entry[0] == kind for entry in self.log) for kind in ("start", "end")]
        assert counts[0] == counts[1], "every session that began was ended, once"
        assert self.shown(self.send("start", "z", b"", None)) == "shutting_down "
        self.loop.close()


TestSessions = SessionsMachine.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
pytestmark = pytest.mark.filterwarnings("error")
