"""The life of a session is as `session_table.py` says: every cell is walked through on the real sessions."""

import asyncio
from pathlib import Path

import pytest
from house import House

from ludus.gateway.actor import Actor
from ludus.gateway.journal import Journal
from ludus.gateway.session_table import ACTIONS, TABLE, Event, State, render

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
CELLS = [(event, state, move) for event, moves in TABLE.items() for state, move in moves.items()]
WAIT = ("begin", "replace", "run", "queue", "wait")  # what is done now has no outcome yet


class Gated(Actor):
    """Each method waits until it is let go."""

    gates: dict = {}  # noqa: RUF012 - the test's own
    fails: set = set()  # noqa: RUF012

    def __init__(self, log):
        self.log = log

    async def start(self, session, data):
        return await self._pass("start")

    async def tick(self, data):
        return await self._pass("tick")

    async def end(self, data, reason):
        return await self._pass("end")

    async def _pass(self, method):
        self.log.append(method)
        await self.gates[method].wait()
        if method in self.fails:
            raise ValueError("as the test wants it")
        return method.encode()


class Walk(House):
    """A session that was brought to a state, and the events that may come to it then."""

    def __init__(self, journal):
        super().__init__(Gated, journal=journal, lease_s=10)
        Gated.gates = {method: asyncio.Event() for method in ("start", "tick", "end")}
        Gated.fails = set()
        self.first = None  # the step that runs

    @property
    def state(self):
        live = self.sessions._live.get("a")
        return live.state if live is not None else self.sessions._ended.state_of("a")

    async def settle(self):
        for _ in range(8):
            await asyncio.sleep(0)

    async def let_go(self, method):
        Gated.gates[method].set()
        await self.settle()
        Gated.gates[method] = asyncio.Event()

    async def bring_to(self, state):
        if state in (State.ABSENT, State.LOST):
            return
        self.first = self.send("start", number=0, run="1")
        await self.settle()
        if state is State.STARTING:
            return
        await self.let_go("start")
        if state in (State.RUNNING, State.ENDING, State.ENDED):
            self.first = self.send("tick" if state is State.RUNNING else "end", number=1)
            await self.settle()
        if state is State.ENDED:
            await self.let_go("end")

    def come(self, event, state):
        """The step that is this event in this state."""
        is_running = state in (State.RUNNING, State.ENDING)
        following = 2 if is_running else 1
        last = {State.ENDED: 1}.get(state, 0)
        match event:
            case Event.START:
                return self.send("start", run="1")
            case Event.START_AGAIN:
                return self.send("start", number=0, run="1")
            case Event.OTHER_RUN:
                return self.send("start", number=0, run="2")
            case Event.TICK | Event.END:
                return self.send(event.value, number=following)
            case Event.LAST:
                return self.send("tick", number=last)
            case Event.SAME:
                return self.send("tick", number=1 if is_running else 0)
            case Event.OTHER:
                return self.send("tick", number=99)

    async def befall(self, event, state):
        """What no game does."""
        match event:
            case Event.DONE | Event.FAILED:
                method = {State.STARTING: "start", State.RUNNING: "tick", State.ENDING: "end"}[state]
                Gated.fails = {method} if event is Event.FAILED else set()
                await self.let_go(method)
            case Event.LEASE:
                self.clock.now += 11
                self.sessions.sweep()
            case Event.HUNG:
                self.clock.now += 101
                self.sessions.sweep()
            case Event.LEAVE:
                leaving = asyncio.ensure_future(self.sessions.leave(0.01))
                await asyncio.sleep(0)
                return leaving


def lose(path):
    """A journal with a session that an earlier process held when it died."""
    journal = Journal(path)
    journal.began("a", "1")
    journal.close()
    return Journal(path)


@pytest.mark.parametrize(
    ("event", "state", "move"), [cell for cell in CELLS if cell[2]], ids=lambda each: getattr(each, "value", "")
)
def test_every_cell_does_what_it_says(event, state, move, tmp_path):
    async def walk():
        house = Walk(lose(tmp_path / "journal") if state is State.LOST else None)
        await house.bring_to(state)
        assert house.state is state
        first, num_steps = house.first, len(house.log)
        step = house.come(event, state)
        leaving = await house.befall(event, state) if step is None else None
        after = house.state  # before what follows by itself
        await house.settle()
        log = house.log[num_steps:]
        if event is Event.LEAVE:
            assert after is move.next
            Gated.gates = {method: asyncio.Event() for method in Gated.gates}
            for gate in Gated.gates.values():
                gate.set()
            await leaving
            return
        assert (after if move.action in ("cancel", "repeat") else house.state) is move.next
        if step is not None:
            assert step.done() == (move.action not in WAIT)
        match move.action:
            case "begin":
                assert log == ["start"]
            case "replace":
                assert log == (["end"] if state is State.IDLE else [])
                assert house.sessions.find("a").run == "2"
            case "run":
                assert log == [event.value]
            case "queue":
                assert log == []
                assert house.sessions.num_waiting == 2
            case "wait":
                await house.let_go({State.STARTING: "start", State.RUNNING: "tick", State.ENDING: "end"}[state])
                assert step.result() is first.result()
                assert log == []
            case "repeat":
                assert step.result().body == {State.ENDED: b"end"}.get(state, b"start")
                assert log == []
            case "started" | "settle":
                assert first.result().code == ("actor_failed" if event is Event.FAILED else "")
            case "close":
                assert first.result().code == ("actor_failed" if event is Event.FAILED else "")
                assert len(house.sessions) == 0
            case "stop":
                assert log == ["end"]
            case "cancel":
                assert first.result().code == "actor_failed"
                assert house.state is (State.ENDING if state is State.RUNNING else State.ENDED)
            case "forget":
                assert (await house.send("tick", number=1)).code == "unknown_session"
            case code:
                assert step.result().code == code
                assert log == []
        for gate in Gated.gates.values():
            gate.set()
        await house.sessions.leave(1.0)

    asyncio.run(walk())


def test_the_page_of_the_protocol_has_the_table_as_the_code_prints_it():
    assert f"\n{render()}\n" in PROTOCOL.read_text()


def test_the_table_has_a_cell_for_every_state_and_words_for_everything():
    assert set(TABLE) == set(Event)
    assert all(set(moves) == set(State) for moves in TABLE.values())
    actions = {move.action for _, _, move in CELLS if move is not None}
    codes = {"already_started", "out_of_order", "unknown_session", "session_lost"}
    assert actions == set(ACTIONS) | codes
