"""Looking at live sessions: what is kept of their steps, and that nothing is when nobody looks."""

import asyncio
import json

from house import Echo, House, Slow, run


@run
async def test_the_newest_sessions_are_listed_first_and_no_more_than_asked_for():
    house = House()
    for name in "abc":
        house.now("start", session=name)
    found = house.sessions.looks.newest(2)
    assert found["num"] == 3
    assert [each["session"] for each in found["sessions"]] == ["c", "b"]
    assert len(house.sessions.looks) == 2


@run
async def test_steps_are_kept_from_the_first_look_on():
    house = House()
    house.now("start")
    house.now("tick", data=b"unseen")
    assert house.sessions.looks.steps("a")["steps"] == []
    house.now("tick", data=b"[1.23456, 2]", number=2)
    house.now("tick", data=b"raise", number=3)
    seen = house.sessions.looks.steps("a")
    assert [(each["step"], each["request"], each["is_failed"]) for each in seen["steps"]] == [
        (3, "5 bytes", True),
        (2, "[1.235, 2]", False),
    ]
    assert "ValueError" in seen["steps"][0]["answer"]
    assert seen["last_s"] == seen["steps"][0]["seconds"] >= 0.0


@run
async def test_a_session_that_nobody_looks_at_any_more_has_its_actor_back():
    house = House()
    house.now("start")
    house.sessions.looks.steps("a")
    live = house.sessions._live["a"]
    assert not isinstance(live.actor, Echo)
    house.clock.now += 11.0
    house.sessions.sweep()
    assert isinstance(live.actor, Echo)
    assert len(house.sessions.looks) == 0


@run
async def test_a_tick_that_waits_is_timed_and_keeps_its_session():
    house = House(Slow)
    house.now("start")
    house.sessions.looks.steps("a")
    answer = house.send("tick", data=b"x")
    while b"x" not in Slow.gates:
        await asyncio.sleep(0)
    Slow.gates[b"x"].set()
    assert (await answer).body == b"tx"
    assert house.sessions.looks.steps("a")["steps"][0]["request"] == "1 bytes"


@run
async def test_a_session_that_ended_is_not_looked_at_and_its_end_has_its_reason():
    house = House()
    house.now("start")
    house.sessions.looks.newest(10)
    house.now("end")
    assert house.log[-1][3] == "asked"
    assert house.sessions.looks.steps("a") is None
    house.sessions.sweep()
    assert len(house.sessions.looks) == 0


@run
async def test_what_is_kept_is_bounded():
    house = House()
    house.now("start")
    looks = house.sessions.looks
    looks.steps("a")
    body = json.dumps([0.5] * 500).encode()
    for _ in range(100):
        house.now("tick", data=body)
    steps = looks.steps("a", 1000)["steps"]
    assert len(steps) == 64
    assert max(len(each["request"]) for each in steps) < 200
