"""Sessions without HTTP: turns, numbers, leases, ends."""

import asyncio

import pytest
from house import Echo, Hasty, House, Slow, run

from ludus import errors
from ludus.gateway.actor import Actor, call_end
from ludus.gateway.journal import Journal, read_journal
from ludus.gateway.session import current


@run
async def test_a_session_starts_ticks_and_ends():
    house = House()
    assert house.now("start", data=b"0").body == b"s0"
    assert [house.now("tick", data=bytes([n])).body for n in range(3)] == [b"t\0", b"t\1", b"t\2"]
    assert house.now("end", data=b"x").body == b"ex"
    assert [entry[0] for entry in house.log] == ["start", "tick", "tick", "tick", "end"]
    assert house.log[-1][3] == "asked"
    assert len(house.sessions) == 0


@run
async def test_steps_of_unknown_and_of_ended_sessions_are_distinguished():
    house = House()
    assert house.now("tick").code == "unknown_session"
    house.now("start")
    house.now("end")
    answer = house.now("tick")
    assert answer.code == "unknown_session"
    assert "ended: asked" in answer.detail


@run
async def test_a_repeated_number_gets_the_same_bytes_and_does_not_run_again():
    house = House()
    assert house.now("start", number=0).body == b"s"
    assert house.now("start", number=0).body == b"s"
    first = house.now("tick", data=b"1", number=1)
    again = house.now("tick", data=b"other", number=1)
    assert (first.body, again.body) == (b"t1", b"t1")
    assert house.now("end", data=b"2", number=2).body == b"e2"
    assert house.now("end", data=b"2", number=2).body == b"e2"
    assert [entry[0] for entry in house.log] == ["start", "tick", "end"]
    assert house.sessions.stats.num_repeats == 3


@run
async def test_the_answer_to_a_step_without_a_number_is_not_that_to_a_number():
    house = House()
    house.now("start")
    assert house.now("tick", data=b"own").body == b"town"
    assert house.now("tick", data=b"other", number=1).code == "out_of_order"
    assert [entry[0] for entry in house.log] == ["start", "tick"]


@run
async def test_gaps_and_older_numbers_are_refused_and_harm_nothing():
    house = House()
    house.now("start")
    house.now("tick", number=1)
    house.now("tick", number=2)
    for number in (1, 4, 0, 99):
        answer = house.now("tick", number=number)
        assert answer.code == "out_of_order"
        assert answer.members == {"expected": 3}
    assert not house.now("tick", number=3).code
    assert len(house.log) == 4


@run
async def test_a_start_on_a_live_id_is_refused_unless_its_run_differs():
    house = House()
    house.now("start", run="1")
    assert house.now("start").code == "already_started"
    assert house.now("start", run="1").code == "already_started"
    assert house.now("start", data=b"back", run="2").body == b"sback"
    assert house.log == [("start", "a", b""), ("end", "a", b"", "replaced"), ("start", "a", b"back")]
    assert not house.now("tick", number=1).code


@run
async def test_a_game_that_comes_back_waits_for_the_end_of_what_runs():
    house = House(Slow)
    house.now("start", run="1")
    tick = house.send("tick", data=b"x")
    await asyncio.sleep(0)
    back = house.send("start", data=b"2", run="2")
    following = house.send("tick", data=b"y", number=1)
    assert not back.done()
    Slow.gates[b"x"].set()
    assert (await tick).body == b"tx"
    assert (await back).body == b"s2"
    Slow.gates.setdefault(b"y", asyncio.Event()).set()
    assert (await following).body == b"ty"
    assert [entry[0] for entry in house.log] == ["start", "tick", "end", "start", "tick"]


@run
async def test_a_lease_that_runs_out_ends_the_session_with_the_reason():
    house = House(lease_s=10)
    house.now("start")
    house.clock.now += 9
    house.now("tick")
    house.clock.now += 9
    house.sessions.sweep()
    assert len(house.sessions) == 1
    house.clock.now += 2
    house.sessions.sweep()
    assert house.log[-1] == ("end", "a", b"", "lease")
    assert "ended: lease" in house.now("tick").detail
    assert not house.now("start").code


@run
async def test_a_repetition_renews_the_lease():
    house = House(lease_s=10)
    house.now("start")
    house.now("tick", data=b"x", number=1)
    for _ in range(3):
        house.clock.now += 9
        assert house.now("tick", data=b"x", number=1).body == b"tx"
        house.sessions.sweep()
    assert len(house.sessions) == 1
    house.clock.now += 11
    house.sessions.sweep()
    assert len(house.sessions) == 0


@run
async def test_a_repeated_start_does_not_renew_the_lease():
    house = House(lease_s=10)
    house.now("start", number=0)
    house.clock.now += 9
    assert house.now("start", number=0).body == b"s"
    house.clock.now += 2
    house.sessions.sweep()
    assert len(house.sessions) == 0


@run
async def test_a_session_with_a_step_under_way_does_not_run_out():
    house = House(Slow, lease_s=10)
    house.now("start")
    tick = house.send("tick", data=b"x")
    await asyncio.sleep(0)
    house.clock.now += 60
    house.sessions.sweep()
    assert len(house.sessions) == 1
    Slow.gates[b"x"].set()
    assert not (await tick).code


@run
async def test_a_lease_is_counted_from_the_last_answer():
    class Heavy(Echo):
        def start(self, session, data):
            house.clock.now += 60
            return super().start(session, data)

        def tick(self, data):
            house.clock.now += 60
            return super().tick(data)

    house = House(Heavy, lease_s=10)
    house.now("start")
    house.sessions.sweep()
    assert not house.now("tick", number=1).code
    house.sessions.sweep()
    assert not house.now("tick", number=2).code


@run
async def test_a_step_that_arrives_during_the_end_learns_that_there_is_no_session_any_more():
    class Parting(Echo):
        async def end(self, data, reason):
            await asyncio.sleep(0.01)
            return super().end(data, reason)

    house = House(Parting, lease_s=10)
    house.now("start")
    house.clock.now += 11
    house.sessions.sweep()
    late = house.send("tick", number=1)
    assert not late.done()
    assert (await late).code == "unknown_session"
    assert "ended: lease" in (await late).detail


@run
async def test_steps_without_numbers_wait_for_their_turn_in_order():
    house = House(Slow)
    house.now("start")
    ticks = [house.send("tick", data=bytes([n])) for n in range(3)]
    for n in (2, 1, 0):
        Slow.gates.setdefault(bytes([n]), asyncio.Event()).set()
    assert [(await tick).body for tick in ticks] == [b"t\0", b"t\1", b"t\2"]


@run
async def test_a_repetition_that_arrives_while_the_step_runs_waits_for_it():
    house = House(Slow)
    house.now("start")
    first, again = house.send("tick", data=b"x", number=1), house.send("tick", data=b"x", number=1)
    ahead, gap = house.send("tick", data=b"y", number=2), house.send("tick", data=b"z", number=4)
    ahead_again = house.send("tick", data=b"y", number=2)
    await asyncio.sleep(0)
    assert gap.result().code == "out_of_order"
    Slow.gates[b"x"].set()
    Slow.gates.setdefault(b"y", asyncio.Event()).set()
    assert (await first).body == (await again).body == b"tx"
    assert (await ahead).body == (await ahead_again).body == b"ty"
    assert len(house.log) == 3
    assert house.sessions.stats.num_repeats == 2


@run
async def test_a_missed_deadline_is_a_problem_and_the_tick_goes_on():
    house = House(Slow)
    house.now("start")
    tick = house.send("tick", data=b"x", number=1, deadline_s=0.01)
    assert (await tick).code == "deadline_exceeded"
    again = house.send("tick", data=b"x", number=1)
    Slow.gates[b"x"].set()
    assert (await again).body == b"tx"


@run
async def test_a_fallback_answers_for_a_tick_that_is_late_and_stays_the_answer():
    house = House(Hasty)
    house.now("start")
    assert (await house.send("tick", data=b"x", number=1, deadline_s=0.01)).body == b"fx"
    assert (await house.send("tick", data=b"x", number=1)).body == b"fx"
    late = house.send("tick", data=b"y", number=2, deadline_s=0.01)  # it waits behind the first
    assert (await late).body == b"fy"
    Slow.gates[b"x"].set()
    Slow.gates.setdefault(b"y", asyncio.Event()).set()
    while len(house.log) < 3:
        await asyncio.sleep(0.001)
    assert (await house.send("tick", data=b"y", number=2)).body == b"fy"
    assert house.sessions.stats.num_fallbacks == 2


@run
async def test_a_repetition_that_gets_the_fallback_settles_the_answer_of_its_number():
    house = House(Hasty)
    house.now("start")
    first = house.send("tick", data=b"x", number=1)
    slow = house.send("tick", data=b"x", number=1, deadline_s=5)
    assert (await house.send("tick", data=b"x", number=1, deadline_s=0.01)).body == b"fx"
    Slow.gates[b"x"].set()
    assert [(await each).body for each in (first, slow)] == [b"fx", b"fx"]
    assert house.now("tick", data=b"x", number=1).body == b"fx"
    assert house.sessions.stats.num_fallbacks == 1


@run
async def test_all_who_are_late_for_one_number_get_the_same_fallback():
    made = []

    class Fickle(Slow):
        def fallback(self, data):
            made.append(data)
            return b"f%d" % len(made)

    house = House(Fickle)
    house.now("start")
    late = [house.send("tick", data=b"x", number=1, deadline_s=0.01 * n) for n in (1, 2, 3)]
    assert [(await each).body for each in late] == [b"f1", b"f1", b"f1"]
    Slow.gates[b"x"].set()
    assert made == [b"x"]


@run
async def test_what_an_actor_raises_has_an_id_and_the_session_lives_on():
    house = House()
    house.now("start")
    answer = house.now("tick", data=b"raise", number=1)
    assert answer.code == "actor_failed"
    assert answer.members["id"]
    assert house.now("tick", data=b"raise", number=1) is answer, "a repetition gets the same problem"
    assert house.now("tick", data=b"dict", number=2).code == "actor_failed"
    assert house.now("tick", data=b"on", number=3).body == b"ton"


class Picky(Echo):
    def tick(self, data):
        if data == b"bad":
            raise errors.InvalidObservation("obs must be an array of shape (2,); this one has the shape (3,)")
        return super().tick(data)


class PickyCoroutine(Picky):
    async def tick(self, data):
        return super().tick(data)


@pytest.mark.parametrize("cls", [Picky, PickyCoroutine])
def test_an_invalid_observation_is_answered_with_its_sentence_and_uses_its_number(cls):
    @run
    async def play():
        house = House(cls)
        house.now("start")
        answer = await house.send("tick", data=b"bad", number=1)
        assert answer.code == "invalid_observation"
        assert "this one has the shape (3,)" in answer.detail
        assert (await house.send("tick", data=b"bad", number=1)) is answer, "a repetition gets the same"
        assert (await house.send("tick", data=b"on", number=2)).body == b"ton"
        stateless = await house.send(None, session="", data=b"bad")
        assert stateless.code == "invalid_observation"

    play()


def test_a_start_that_raises_begins_no_session(tmp_path):
    class Broken(Echo):
        def start(self, session, data):
            raise RuntimeError("no")

    async def test():
        house = House(Broken, journal=Journal(tmp_path / "journal"))
        assert house.now("start").code == "actor_failed"
        assert house.now("tick").code == "unknown_session"

    asyncio.run(test())
    assert [(sign, word) for sign, _, word, _ in read_journal(tmp_path / "journal")] == [("+", "-"), ("-", "failed")]


@run
async def test_limits_answer_with_overloaded():
    house = House(Slow, max_sessions=2, max_waiting=2, max_queue=1)
    house.now("start", "a")
    house.now("start", "b")
    full = house.now("start", "c")
    assert (full.code, full.retry_after_s) == ("overloaded", 1)
    house.send("tick", "a", b"x")
    house.send("tick", "a", b"y")
    assert house.now("tick", "a", b"z").code == "overloaded"
    assert house.now("tick", "b", b"w").code == "overloaded"
    for gate in (b"x", b"y"):
        Slow.gates.setdefault(gate, asyncio.Event()).set()
    await asyncio.sleep(0.01)
    Slow.gates.setdefault(b"w", asyncio.Event()).set()
    assert not (await house.send("tick", "b", b"w")).code


@run
async def test_a_session_can_be_ended_while_as_many_steps_are_under_way_as_may():
    house = House(Slow, max_waiting=1)
    house.now("start", "a")
    house.now("start", "b")
    tick = house.send("tick", "a", b"x")
    assert house.now("tick", "b", b"y").code == "overloaded"
    assert house.now("end", "b", b"y").body == b"ey"
    Slow.gates.setdefault(b"x", asyncio.Event()).set()
    assert (await tick).body == b"tx"


@run
async def test_leaving_ends_every_session_after_its_step():
    house = House(Slow)
    house.now("start", "a")
    house.now("start", "b")
    tick = house.send("tick", "a", b"x")
    await asyncio.sleep(0)
    leaving = asyncio.ensure_future(house.sessions.leave(5))
    await asyncio.sleep(0.01)
    assert house.now("start", "c").code == "shutting_down"
    Slow.gates[b"x"].set()
    await leaving
    assert (await tick).body == b"tx"
    assert [entry for entry in house.log if entry[0] == "end"] == [
        ("end", "b", b"", "shutdown"),
        ("end", "a", b"", "shutdown"),
    ]


@run
async def test_leaving_does_not_wait_for_a_step_without_end():
    house = House(Slow)
    house.now("start")
    tick = house.send("tick", data=b"never")
    await asyncio.sleep(0)
    await house.sessions.leave(0.05)
    assert (await tick).code == "shutting_down"
    assert house.log[-1] == ("end", "a", b"", "shutdown")


@run
async def test_what_is_not_asked_for_is_as_the_route_says():
    class Asking(Actor):
        def __init__(self, log):
            pass

        def tick(self, data):
            return f"{current.get().wanted('m')} {current.get().wanted('other')}"

    route = {"route": lambda: {"": "main"}, "stateless_route": lambda: {"": "any"}}
    house, free = House(Asking, more=route), House(Asking)
    for number, (wants, played) in enumerate(
        [({}, b"main main"), ({"other": "3"}, b"main 3"), ({"": "follow"}, b"follow follow")]
    ):
        house.now("start", str(number), wants=wants)
        assert house.now("tick", str(number)).body == played
    assert house.now(None, "").body == b"any any"
    assert house.now(None, "", wants={"other": "3"}).body == b"any 3"
    assert free.now(None, "").body == b"follow follow"


@run
async def test_stateless_ticks_share_one_actor():
    class Counting(Actor):
        made = 0

        def __init__(self, log):
            Counting.made += 1

        def tick(self, data):
            return data * 2

    house = House(Counting)
    assert [house.now(None, "", b"x").body for _ in range(3)] == [b"xx"] * 3
    assert Counting.made == 1


def test_a_successor_knows_which_sessions_were_lost(tmp_path):
    path = tmp_path / "journal"

    async def first():
        house = House(journal=Journal(path))
        for session in ("kept", "done"):
            house.now("start", session)
        house.now("end", "done")

    async def second():
        house = House(journal=Journal(path))
        assert house.now("tick", "kept").code == "session_lost"
        assert house.now("tick", "done").code == "unknown_session"
        assert not house.now("start", "kept").code
        assert not house.now("tick", "kept").code
        house.now("end", "kept")

    asyncio.run(first())
    with open(path, "ab") as file:
        file.write(b"- kept cut-off\n")  # a line that was not written whole is left out
    asyncio.run(second())
    events = [(sign, session, word) for sign, session, word, _ in read_journal(path)]
    assert events == [
        ("+", "kept", "-"),
        ("+", "done", "-"),
        ("-", "done", "asked"),
        ("-", "kept", "lost"),
        ("+", "kept", "-"),
        ("-", "kept", "asked"),
    ]


@pytest.mark.parametrize("output", [b"x", "x", bytearray(b"x"), memoryview(b"x")])
def test_bytes_and_text_can_be_answered(output):
    class Typed(Actor):
        def __init__(self, log):
            pass

        def tick(self, data):
            return output

    async def test():
        house = House(Typed)
        house.now("start")
        assert house.now("tick").body == b"x"

    asyncio.run(test())


class Ends:
    """All the ways in which an `end` may be written."""

    def plain(self, data):
        return (data,)

    def usual(self, data, reason):
        return (data, reason)

    def other_name(self, data, why):
        return (data, why)

    def by_name(self, data, *, reason):
        return (data, reason)

    def anything(self, data, **more):
        return (data, more["reason"])

    def rest(self, data, *rest):
        return (data, *rest)

    def option(self, data, verbose=False):
        return (data, verbose)

    def late(self, data, verbose=False, reason=""):
        return (data, verbose, reason)


@pytest.mark.parametrize(
    ("end", "given"),
    [
        (Ends.plain, (b"x",)),
        (Ends.usual, (b"x", "asked")),
        (Ends.other_name, (b"x", "asked")),
        (Ends.by_name, (b"x", "asked")),
        (Ends.anything, (b"x", "asked")),
        (Ends.rest, (b"x", "asked")),
        (Ends.option, (b"x", False)),
        (Ends.late, (b"x", False, "asked")),
    ],
)
def test_an_end_is_given_the_reason_if_it_takes_one(end, given):
    assert call_end(type("Ending", (Actor,), {"end": end})(), b"x", "asked") == given
