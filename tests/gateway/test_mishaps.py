"""What goes wrong around a session: full disks, steps that hang or are cancelled, workers that die twice."""

import asyncio
import threading
import time

import pytest
from house import Echo, House, Slow, full, run

from ludus.gateway.actor import Actor
from ludus.gateway.client import GameClient, GameError
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.journal import Journal, read_journal
from ludus.gateway.session import current
from ludus.gateway.session_core import SessionLimits
from ludus.gateway.thread import GatewayThread
from ludus.testing.gateways import serving


@run
async def test_a_step_that_hangs_for_ten_leases_is_cancelled_and_its_session_ends():
    house = House(Slow, lease_s=10)
    house.now("start")
    house.clock.now += 9
    tick = house.send("tick", data=b"never", number=1)
    await asyncio.sleep(0)
    house.clock.now += 99
    house.sessions.sweep()
    await asyncio.sleep(0.01)
    assert not tick.done()
    house.clock.now += 2
    house.sessions.sweep()
    assert (await tick).code == "actor_failed"
    assert "was not done after 101 s" in (await tick).detail
    assert house.log[-1] == ("end", "a", b"", "lease")
    assert len(house.sessions) == 0


@run
async def test_a_game_that_comes_back_does_not_wait_for_a_step_that_hangs():
    house = House(Slow, lease_s=10)
    house.now("start", run="1")
    tick = house.send("tick", data=b"never")
    await asyncio.sleep(0)
    back = house.send("start", data=b"2", run="2")
    house.clock.now += 9
    house.sessions.sweep()
    await asyncio.sleep(0.01)
    assert not back.done()
    house.clock.now += 2
    house.sessions.sweep()
    assert (await tick).code == "actor_failed"
    assert (await back).body == b"s2"
    assert house.log == [("start", "a", b""), ("end", "a", b"", "replaced"), ("start", "a", b"2")]
    house.sessions.sweep()
    assert not house.now("end", number=1).code


class Exiting(Echo):
    def tick(self, data):
        if data == b"x":
            raise SystemExit(1)
        return super().tick(data)


class Cancelling(Echo):
    def tick(self, data):
        if data == b"x":
            raise asyncio.CancelledError
        return super().tick(data)


class Cancelled(Echo):
    async def tick(self, data):
        if data == b"x":
            inner = asyncio.ensure_future(asyncio.sleep(1))
            inner.cancel()
            await inner
        return super().tick(data)


@pytest.mark.parametrize("cls", [Exiting, Cancelling, Cancelled])
def test_an_actor_that_exits_or_is_cancelled_from_within_has_failed(cls):
    async def test():
        house = House(cls)
        house.now("start")
        failed = await house.send("tick", data=b"x", number=1)
        assert failed.code == "actor_failed"
        assert (await house.send("tick", data=b"x", number=1)) is failed
        assert (await house.send("tick", data=b"y", number=2)).body == b"ty"

    asyncio.run(test())


class OwnBaseException(BaseException):
    """Neither an Exception nor one of Python's own."""


class Raising(Echo):
    """Each method raises what the test wants, once per data."""

    error: type[BaseException] = SystemExit

    def tick(self, data):
        self.log.append(data)
        if data == b"x":
            raise self.error
        return b"t" + data

    def fallback(self, data):
        raise self.error


class RaisingLater(Raising):
    async def tick(self, data):
        await asyncio.sleep(0)
        return super().tick(data)


class RaisingInTask(Raising):
    """Waits for an awaitable that is no coroutine, and that raises."""

    def tick(self, data):
        return Waited(super().tick, data)


class Waited:
    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return self.function(*self.args)


@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, OwnBaseException]
)
@pytest.mark.parametrize("cls", [Raising, RaisingLater, RaisingInTask])
def test_whatever_an_actor_raises_its_step_is_answered_and_not_run_again(cls, error):
    async def test():
        house = House(type("Actor", (cls,), {"error": error}))
        house.now("start", number=0)
        house.log.clear()
        failed = await house.send("tick", data=b"x", number=1)
        assert failed.code == "actor_failed"
        assert (await house.send("tick", data=b"x", number=1)) is failed
        assert (await house.send(None, "", b"x")).code == "actor_failed"
        assert (await house.send("tick", data=b"y", number=2)).body == b"ty"
        assert house.log == [b"x", b"x", b"y"], "one of them was stateless"
        assert not (await house.send("end", number=3)).code
        assert (house.sessions.num_waiting, len(house.sessions)) == (0, 0)

    asyncio.run(asyncio.wait_for(test(), 60))


def test_an_actor_that_exits_does_not_end_its_worker():
    class Exiting(Actor):
        def tick(self, data):
            raise SystemExit(3)

    class ExitingLater(Actor):
        async def tick(self, data):
            async def leave():
                raise SystemExit(3)

            if data == b"own task":
                await asyncio.ensure_future(leave())
            raise SystemExit(3)

    for cls in (Exiting, ExitingLater):
        with serving(cls) as url:
            for data in (b"x", b"own task", b"x"):
                with pytest.raises(GameError) as failed:
                    GameClient(url, timeout_s=60).stateless(data)
                assert failed.value.code == "actor_failed"


@run
async def test_a_thousand_repetitions_of_a_step_that_waits_for_its_turn_are_all_answered():
    house = House(Slow)
    house.now("start")
    first = house.send("tick", data=b"1", number=1)
    repeated = [house.send("tick", data=b"2", number=2) for _ in range(5000)]
    await asyncio.sleep(0)
    for data in (b"1", b"2"):
        Slow.gates.setdefault(data, asyncio.Event()).set()
    assert (await first).body == b"t1"
    assert {(await each).body for each in repeated} == {b"t2"}
    assert house.log[1:] == [("tick", "a", b"1"), ("tick", "a", b"2")]


@run
async def test_a_start_that_fails_while_another_waits_for_its_id_is_not_ended():
    class Doubtful(Slow):
        async def start(self, session, data):
            self.session = session
            await self.gates.setdefault(data, asyncio.Event()).wait()
            if data == b"bad":
                raise RuntimeError("no")

    house = House(Doubtful)
    bad, good = house.send("start", data=b"bad", run="1"), house.send("start", data=b"good", run="2")
    await asyncio.sleep(0)
    for gate in (b"bad", b"good"):
        Slow.gates.setdefault(gate, asyncio.Event()).set()
    assert ((await bad).code, (await good).code) == ("actor_failed", "")
    assert house.log == []
    assert house.sessions.stats.ended == {"failed": 1}


def test_on_a_full_disk_no_session_begins_and_those_that_live_go_on(tmp_path):
    async def test():
        journal = Journal(tmp_path / "journal")
        house = House(journal=journal)
        house.now("start", "old", run="1")
        with full(journal._fd):
            assert house.now("tick", "old", b"1", 1).body == b"t1"
            for run_ in ("1", "2"):
                refused = house.now("start", "new", number=0, run=run_)
                assert (refused.code, refused.retry_after_s) == ("overloaded", 1)
            assert house.now("tick", "new").code == "unknown_session"
            assert house.now("start", "old", run="2").code == "overloaded", "and the old one has ended"
            assert len(house.sessions) == 0
        assert not house.now("start", "new", number=0, run="3").code
        assert not house.now("end", "new", number=1).code
        assert house.sessions.num_unwritten == 4

    asyncio.run(test())
    events = [(sign, session, word) for sign, session, word, _ in read_journal(tmp_path / "journal")]
    assert events == [
        ("+", "old", "1"),
        ("-", "old", "replaced"),
        ("+", "new", "3"),
        ("-", "new", "asked"),
    ]


@pytest.mark.parametrize("cls", [Echo, Slow])
def test_a_recorder_that_fails_loses_no_answer(cls):
    def fail(step, answer, session):
        raise OSError("no space")

    async def test():
        house = House(cls, more={"observer": fail})
        assert house.now("start", number=0).body == b"s"
        Slow.gates[b"x"] = asyncio.Event()
        Slow.gates[b"x"].set()
        for _ in range(2):
            assert (await house.send("tick", data=b"x", number=1)).body == b"tx"
        assert house.now("end", number=2).body == b"e"
        assert len(house.sessions) == 0
        assert house.sessions.num_unwritten == 3

    asyncio.run(test())


@run
async def test_an_end_that_follows_a_step_that_was_cancelled_has_time_of_its_own():
    class Parting(Slow):
        async def end(self, data, reason):
            await asyncio.sleep(0.05)
            return super().end(data, reason)

    class Stuck(Slow):
        async def end(self, data, reason):
            await asyncio.sleep(1000)

    house, stuck = House(Parting), House(Stuck)
    for each in (house, stuck):
        each.now("start")
        each.send("tick", data=b"never")
    await asyncio.sleep(0)
    await asyncio.gather(house.sessions.leave(0.05), stuck.sessions.leave(0.05))
    assert house.log[-1] == ("end", "a", b"", "shutdown")
    assert (len(house.sessions), len(stuck.sessions)) == (0, 0)


@run
async def test_what_a_stateless_tick_holds_is_let_go_after_the_next():
    held = []

    class Holding(Actor):
        def __init__(self, log):
            pass

        def tick(self, data):
            held.append(data)
            current.get().add_done_callback(lambda: held.remove(data))

    house = House(Holding)
    for data in (b"1", b"2", b"3"):
        house.now(None, "", data)
    assert held == [b"3"]
    await house.sessions.leave(0.1)
    assert held == []


def test_a_session_that_was_lost_stays_lost_when_the_worker_dies_again(tmp_path):
    async def live(session):
        house = House(journal=Journal(tmp_path / "0.journal", tmp_path.glob("*.journal")))
        codes = [house.now("tick", each).code for each in ("first", "elsewhere", "gone")]
        house.now("start", session)
        return codes

    async def elsewhere():
        house = House(journal=Journal(tmp_path / "3.journal"))  # of a worker that there is no more
        for session in ("elsewhere", "gone"):
            house.now("start", session)
        house.now("end", "gone")

    asyncio.run(elsewhere())
    assert asyncio.run(live("first")) == ["unknown_session", "session_lost", "unknown_session"]
    for session in ("second", "third"):
        assert asyncio.run(live(session)) == ["session_lost", "session_lost", "unknown_session"]
    lost = [session for sign, session, word, _ in read_journal(tmp_path / "0.journal") if word == "lost"]
    assert lost == ["first", "second"], "each is written down once"


def test_a_line_of_the_journal_that_was_cut_off_spoils_no_other(tmp_path):
    (tmp_path / "journal").write_bytes(b"+ a - 1.0\n- a as")
    Journal(tmp_path / "journal").began("b", "")
    assert [event[:3] for event in read_journal(tmp_path / "journal")] == [
        ("+", "a", "-"),
        ("-", "a", "lost"),
        ("+", "b", "-"),
    ]


@run
async def test_no_lease_runs_out_while_the_event_loop_is_held_up():
    house = House(lease_s=10)
    for session in ("early", "late", "done"):
        house.now("start", session)
    house.now("end", "done", number=1)
    house.clock.now += 8
    house.now("tick", "late", b"1", 1)
    house.clock.now += 60
    house.sessions.sweep(60.0)
    house.clock.now += 1.5
    house.sessions.sweep()
    assert len(house.sessions) == 2
    assert house.now("end", "done", number=1).body == b"e", "a repetition that waited is answered, too"
    house.clock.now += 1
    house.sessions.sweep()
    assert [each["session"] for each in house.sessions.describe()] == ["late"], "what was left of a lease is left"
    assert [each["idle_s"] for each in house.sessions.describe()] == [2.5]
    assert house.now("end", "done", number=1).code == "unknown_session"
    house.clock.now += 8
    house.sessions.sweep()
    assert len(house.sessions) == 0


class Blocking(Actor):
    held_up = threading.Event()

    def tick(self, data):
        if data == b"block":
            self.held_up.set()
            time.sleep(4.0)  # the whole loop, as a stop or a long garbage collection would
        return data


def test_a_tick_that_arrives_while_the_loop_is_held_up_for_longer_than_a_lease_is_answered():
    Blocking.held_up.clear()
    with (
        GatewayThread(Blocking, GatewayOptions(sessions=SessionLimits(lease_s=2.0))) as gateway,
        GameClient(gateway.url, "blocking", retries=0) as blocking,
        GameClient(gateway.url, "waiting", retries=0, timeout_s=60) as waiting,
    ):
        blocking.start()
        waiting.start()
        thread = threading.Thread(target=blocking.tick, args=(b"block",))
        thread.start()
        assert Blocking.held_up.wait(60)
        assert waiting.tick(b"1") == b"1"
        thread.join(60)
